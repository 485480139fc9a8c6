//! [`GoroutineError`]: why the goroutines of a process cannot be read.

use crate::census::memory::MemoryError;
use crate::target::RefuseReason;

/// Why there is no picture of the goroutines: one sentence each.
#[derive(Debug, thiserror::Error)]
pub enum GoroutineError {
    /// Nothing has this process id.
    #[error("there is no process {0}")]
    NoSuchProcess(u32),
    /// Of another user, or protected.
    #[error("no permission to look at process {0}")]
    Denied(u32),
    /// A kernel thread or a zombie.
    #[error("process {0} has no program: it is a kernel thread, or has ended")]
    NoProgram(u32),
    /// Its program is nothing we can read goroutines of.
    #[error("the program of process {pid} cannot be read")]
    Program {
        /// The process.
        pid: u32,
        /// Why.
        #[source]
        why: RefuseReason,
    },
    /// The process has the program at an address that cannot be, or has something else there.
    #[error("the program of process {pid} is not loaded where it should be: {why}")]
    NotLoaded {
        /// The process.
        pid: u32,
        /// What contradicts.
        why: &'static str,
    },
    /// The list of goroutines was not found.
    #[error("the runtime's list of goroutines was not found: none of {0} candidates holds it")]
    NoList(usize),
    /// Several places look like it.
    #[error("the runtime's list of goroutines was not found: {0} candidates look like it")]
    AmbiguousList(usize),
    /// It ended, or began another program, meanwhile.
    #[error("process {0} ended while it was read")]
    Gone(u32),
    /// Reading its memory failed.
    #[error("the memory of process {pid} cannot be read")]
    Memory {
        /// The process.
        pid: u32,
        /// Why.
        #[source]
        why: MemoryError,
    },
}

impl GoroutineError {
    /// A failure to read memory of `pid`.
    pub(super) fn memory(pid: u32, why: MemoryError) -> Self {
        match why {
            MemoryError::Gone => Self::Gone(pid),
            MemoryError::Denied => Self::Denied(pid),
            why @ MemoryError::Io(_) => Self::Memory { pid, why },
        }
    }
}
