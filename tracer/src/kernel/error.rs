//! [`KernelError`]: what can go wrong between us and the kernel.

use std::{io, path::PathBuf};

/// Loading, attaching or reading failed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Built with plain `cargo build`.
    #[error("this plegtrace was built without its eBPF programs")]
    Stub,
    /// The object could not be read or its maps not created.
    #[error("cannot load the eBPF object")]
    Object(#[source] Box<aya::EbpfError>),
    /// A program or map of the object is missing.
    #[error("the eBPF object has no `{0}`")]
    Missing(&'static str),
    /// A map could not be opened.
    #[error("cannot access the map {map}")]
    Map {
        /// Its name.
        map: &'static str,
        /// The lower error.
        #[source]
        source: aya::maps::MapError,
    },
    /// The kernel refused a program.
    #[error("cannot load the program {program}: {summary}")]
    Program {
        /// Its name.
        program: &'static str,
        /// The lines of the verifier's log that matter, or the errno.
        summary: String,
    },
    /// Relocation for uprobe_multi failed.
    #[error("cannot relocate the programs for uprobe_multi: {0}")]
    Relocate(String),
    /// One site could not be attached.
    #[error("cannot attach {count} probes to {}", path.display())]
    Attach {
        /// The executable.
        path: PathBuf,
        /// How many.
        count: usize,
        /// The lower error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel has no event of a system call, or does not let us attach to it.
    #[error(
        "cannot attach to the event {event} of system calls, which the source 'wire' needs on this kernel; mount \
         tracefs at /sys/kernel/tracing, and see that the kernel was built with CONFIG_FTRACE_SYSCALLS"
    )]
    SyscallEvent {
        /// Its name.
        event: String,
        /// The lower error.
        #[source]
        source: Box<aya::programs::ProgramError>,
    },
    /// Nothing is left that the programs of family `wire` may sit on.
    #[error("this kernel interrupts programs on its functions, which loses events")]
    Preempted,
    /// There is nothing to put the programs on that need functions.
    #[error("this kernel does not name its functions for AF_UNIX sockets")]
    NoFunction,
    /// A tracepoint could not be attached.
    #[error("cannot attach to the tracepoint {name}")]
    Tracepoint {
        /// Its name.
        name: &'static str,
        /// The lower error.
        #[source]
        source: Box<aya::programs::ProgramError>,
    },
    /// The programs' own messages cannot be read.
    #[error("cannot read the debug log of the programs: {0}")]
    DebugLog(String),
    /// A `bpf(2)` command failed.
    #[error("bpf({command}) failed")]
    Syscall {
        /// The command.
        command: &'static str,
        /// errno.
        #[source]
        source: io::Error,
    },
}
