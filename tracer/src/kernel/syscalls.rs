//! The programs of family `wire` on the entries and exits of system calls.
//!
//! Raw tracepoints are cheapest, and every kernel has them. But a kernel that preempts their programs leaves out runs of other
//! tasks meanwhile (`tracer-ebpf/src/preemption.rs`). There the same programs sit on the events of the system calls that
//! matter, where the kernel switches preemption off (kernel/trace/trace_syscalls.c, `perf_syscall_enter`).

use aya::{
    Ebpf,
    programs::{RawTracePoint, TracePoint},
};

use super::{
    error::KernelError,
    load::{program, refused},
};
use crate::preflight::KernelVersion;

/// The first kernel that may preempt programs on tracepoints.
const PREEMPTED: KernelVersion = KernelVersion::new(7, 0);
/// The system calls that read or write sockets.
const CALLS: [&str; 8] = ["read", "write", "readv", "writev", "recvfrom", "sendto", "recvmsg", "sendmsg"];

/// On what the programs of family `wire` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallProbes {
    /// On raw tracepoints.
    RawTracepoints,
    /// On the events of system calls.
    Events,
}

impl SyscallProbes {
    /// What the running kernel wants.
    #[must_use]
    pub fn wanted() -> Self {
        let uname = rustix::system::uname();
        Self::wanted_by(&uname.release().to_string_lossy(), &uname.version().to_string_lossy())
    }

    /// Events where tracepoints may be preempted. Neither its type information nor a trial tells that, so here the version does:
    /// it is so on 7.2 and not on 6.18.
    fn wanted_by(release: &str, build: &str) -> Self {
        let preempted = KernelVersion::parse(release).is_some_and(|version| version >= PREEMPTED);
        if preempted && build.contains("PREEMPT") { Self::Events } else { Self::RawTracepoints }
    }

    /// The programs, in the order in which they go on: of exits, and of entries. A write that begins is corrected when it ends.
    fn programs(self) -> [&'static str; 2] {
        match self {
            Self::RawTracepoints => ["wire_exit", "wire_enter"],
            Self::Events => ["wire_exit_tp", "wire_enter_tp"],
        }
    }

    /// The programs in the order in which they come off. Were exits off first, each thread that writes twice before entries are
    /// off as well would count as a loss ([`Reason::ExitUnseen`](plegtrace_common::reason::Reason::ExitUnseen)); a busy node
    /// may let us wait between the two.
    fn programs_off(self) -> [&'static str; 2] {
        let [exits, entries] = self.programs();
        [entries, exits]
    }

    /// Loads the programs.
    ///
    /// # Errors
    ///
    /// The kernel refuses one.
    pub(super) fn load(self, ebpf: &mut Ebpf) -> Result<(), KernelError> {
        for name in self.programs() {
            let loaded = match self {
                Self::RawTracepoints => program::<RawTracePoint>(ebpf, name)?.load(),
                Self::Events => program::<TracePoint>(ebpf, name)?.load(),
            };
            loaded.map_err(|e| refused(name, &e))?;
        }
        Ok(())
    }

    /// Attaches the programs, exits first.
    ///
    /// # Errors
    ///
    /// The kernel refuses, or has no events of system calls (no CONFIG_FTRACE_SYSCALLS, no tracefs) where it needs them.
    pub(super) fn attach(self, ebpf: &mut Ebpf) -> Result<(), KernelError> {
        for (name, tracepoint) in self.programs().into_iter().zip(["sys_exit", "sys_enter"]) {
            match self {
                Self::RawTracepoints => {
                    let program: &mut RawTracePoint = program(ebpf, name)?;
                    let attached = program.attach(tracepoint);
                    attached
                        .map_err(|e| KernelError::Tracepoint { name: tracepoint, source: Box::new(e) })?;
                }
                Self::Events => {
                    let program: &mut TracePoint = program(ebpf, name)?;
                    for call in CALLS {
                        let event = format!("{tracepoint}_{call}");
                        if let Err(e) = program.attach("syscalls", &event) {
                            return Err(KernelError::SyscallEvent { event, source: Box::new(e) });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Detaches the programs, entries first, also when not all are attached.
    pub(super) fn detach(self, ebpf: &mut Ebpf) {
        for name in self.programs_off() {
            let detached = match self {
                Self::RawTracepoints => {
                    program::<RawTracePoint>(ebpf, name).map(aya::programs::RawTracePoint::unload)
                }
                Self::Events => program::<TracePoint>(ebpf, name).map(aya::programs::TracePoint::unload),
            };
            drop(detached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only kernels that preempt, and only since they do so on tracepoints.
    #[test]
    fn by_kernel() {
        let events =
            |release: &str, build: &str| SyscallProbes::wanted_by(release, build) == SyscallProbes::Events;
        assert!(events("7.2.13+deb14-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 7.2.13-1 (2026-10-28)"));
        assert!(events("7.0-rc3", "#1 SMP PREEMPT_RT"));
        assert!(!events("7.2.13", "#1 SMP"));
        assert!(!events("6.18.44", "#1 SMP PREEMPT_DYNAMIC"));
        assert!(!events("6.12.57+deb13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.57-1"));
        assert!(!events("unknown", "#1 SMP PREEMPT"));
    }

    /// While entries are seen, exits are.
    #[test]
    fn exits_outlast_entries() {
        for probes in [SyscallProbes::RawTracepoints, SyscallProbes::Events] {
            let [first_on, last_on] = probes.programs();
            assert!(first_on.starts_with("wire_exit") && last_on.starts_with("wire_enter"));
            assert_eq!(probes.programs_off(), [last_on, first_on]);
        }
    }
}
