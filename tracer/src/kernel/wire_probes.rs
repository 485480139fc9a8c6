//! The programs of family `wire`: what they sit on.
//!
//! Functions of sockets are best: nobody else passes them. But a kernel that preempts programs there leaves out runs of other tasks
//! meanwhile, and not every kernel lets programs on its functions. Raw tracepoints on system calls are cheap, and every kernel
//! has them. Where those are preempted, too (`tracer-ebpf/src/preemption.rs`), the same programs sit on the events of the system
//! calls that matter: there the kernel switches preemption off (kernel/trace/trace_syscalls.c, `perf_syscall_enter`).

use aya::{
    Ebpf,
    programs::{RawTracePoint, TracePoint},
};

use super::{at_once::Loaded, error::KernelError, load::program, preempts::Preempts};
use crate::cli::SocketBackend;

/// The system calls that read or write sockets.
const CALLS: [&str; 8] = ["read", "write", "readv", "writev", "recvfrom", "sendto", "recvmsg", "sendmsg"];
/// Of this one only the end matters.
const CONNECT: &str = "connect";

/// On what the programs of family `wire` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireProbes {
    /// On the kernel's functions of AF_UNIX stream sockets (fentry and fexit).
    Functions,
    /// On raw tracepoints of system calls.
    RawTracepoints,
    /// On the events of system calls.
    Events,
}

impl WireProbes {
    /// What to try on the running kernel, the best first; nothing when it allows none of what is wanted.
    #[must_use]
    pub fn candidates(wanted: SocketBackend) -> &'static [Self] {
        Self::on(wanted, Preempts::running())
    }

    fn on(wanted: SocketBackend, preempts: Preempts) -> &'static [Self] {
        match (wanted, preempts) {
            (SocketBackend::Auto, Preempts::Never) => &[Self::Functions, Self::RawTracepoints],
            (SocketBackend::Functions, Preempts::Never) => &[Self::Functions],
            (SocketBackend::Functions, _) => &[],
            (_, Preempts::OnTracepoints) => &[Self::Events],
            (_, Preempts::Never | Preempts::InFunctions) => &[Self::RawTracepoints],
        }
    }

    /// Loads the programs on system calls.
    ///
    /// # Errors
    ///
    /// The kernel refuses one.
    pub(super) fn load(self, ebpf: &mut Ebpf, loaded: &mut Loaded) -> Result<(), KernelError> {
        if self == Self::Functions {
            return Err(KernelError::NoFunction);
        }
        self.programs().iter().try_for_each(|name| loaded.take(ebpf, name))
    }

    /// Attaches the programs on system calls, exits first: a write that begins is corrected when it ends.
    ///
    /// # Errors
    ///
    /// The kernel refuses, or has no events of system calls (no CONFIG_FTRACE_SYSCALLS, no tracefs) where it needs them.
    pub(super) fn attach(self, ebpf: &mut Ebpf) -> Result<(), KernelError> {
        for (&name, tracepoint) in self.programs().iter().zip(["sys_exit", "sys_enter"]) {
            if self == Self::RawTracepoints {
                let attached = program::<RawTracePoint>(ebpf, name)?.attach(tracepoint);
                attached.map_err(|e| KernelError::Tracepoint { name: tracepoint, source: Box::new(e) })?;
                continue;
            }
            let program: &mut TracePoint = program(ebpf, name)?;
            let ended = (tracepoint == "sys_exit").then_some(CONNECT);
            for call in CALLS.into_iter().chain(ended) {
                let event = format!("{tracepoint}_{call}");
                if let Err(e) = program.attach("syscalls", &event) {
                    return Err(KernelError::SyscallEvent { event, source: Box::new(e) });
                }
            }
        }
        Ok(())
    }

    /// Detaches the programs on system calls, entries first, also when not all are attached. Were exits off first, each thread
    /// that writes twice before entries are off as well would count as a loss
    /// ([`Reason::ExitUnseen`](plegtrace_common::reason::Reason::ExitUnseen)); a busy node may let us wait between the two.
    pub(super) fn detach(self, ebpf: &mut Ebpf) {
        for &name in self.programs().iter().rev() {
            let detached = match self {
                Self::Events => program(ebpf, name).map(TracePoint::unload),
                Self::RawTracepoints | Self::Functions => program(ebpf, name).map(RawTracePoint::unload),
            };
            drop(detached);
        }
    }

    /// The programs on system calls, in the order in which they go on: of exits, and of entries.
    pub(super) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Functions => &[],
            Self::RawTracepoints => &["wire_exit", "wire_enter"],
            Self::Events => &["wire_exit_tp", "wire_enter_tp"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions only where nothing is preempted there; else system calls, and their events where tracepoints are preempted.
    #[test]
    fn by_kernel() {
        use {
            Preempts::{InFunctions, Never, OnTracepoints},
            SocketBackend::{Auto, Functions, Syscalls},
            WireProbes::{Events, RawTracepoints},
        };
        let on = WireProbes::on;
        assert_eq!(on(Auto, Never), [WireProbes::Functions, RawTracepoints]);
        assert_eq!([on(Auto, InFunctions), on(Auto, OnTracepoints)], [&[RawTracepoints], &[Events]]);
        assert_eq!(on(Functions, Never), [WireProbes::Functions]);
        assert!(on(Functions, InFunctions).is_empty() && on(Functions, OnTracepoints).is_empty());
        let calls = [Never, InFunctions, OnTracepoints].map(|preempts| on(Syscalls, preempts)[0]);
        assert_eq!(calls, [RawTracepoints, RawTracepoints, Events]);
    }
}
