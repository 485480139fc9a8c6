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
    load::{LoadOptions, program, refused},
};

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
    /// What this kernel wants, if it lets us: events where tracepoints may be preempted.
    pub(super) fn wanted(options: &LoadOptions) -> Self {
        let uname = rustix::system::uname();
        let preempts = uname.version().to_string_lossy().contains("PREEMPT");
        if options.preemption.is_some() && preempts { Self::Events } else { Self::RawTracepoints }
    }

    /// The programs: of exits, and of entries.
    fn programs(self) -> [&'static str; 2] {
        match self {
            Self::RawTracepoints => ["wire_exit", "wire_enter"],
            Self::Events => ["wire_exit_event", "wire_enter_event"],
        }
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

    /// Attaches the programs: exits first, as a write that begins is corrected when it ends.
    ///
    /// # Errors
    ///
    /// The kernel refuses, or has no events of system calls (no CONFIG_FTRACE_SYSCALLS, no tracefs) where it needs them.
    pub(super) fn attach(self, ebpf: &mut Ebpf) -> Result<(), KernelError> {
        for (name, tracepoint) in self.programs().into_iter().zip(["sys_exit", "sys_enter"]) {
            let failed = |e| KernelError::Tracepoint { name: tracepoint, source: Box::new(e) };
            match self {
                Self::RawTracepoints => {
                    let program: &mut RawTracePoint = program(ebpf, name)?;
                    program.attach(tracepoint).map_err(failed)?;
                }
                Self::Events => {
                    let program: &mut TracePoint = program(ebpf, name)?;
                    for call in CALLS {
                        program.attach("syscalls", &format!("{tracepoint}_{call}")).map_err(failed)?;
                    }
                }
            }
        }
        Ok(())
    }
}
