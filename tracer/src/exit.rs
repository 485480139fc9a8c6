//! Exit codes: a stable contract with scripts.

use std::process::ExitCode;

/// How plegtrace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The node was seen and is healthy.
    Healthy = 0,
    /// A stall was found, or the node is slow.
    Stall = 1,
    /// The command line is wrong.
    Usage = 2,
    /// plegtrace cannot run here: privileges, kernel, or how it was built.
    CannotRun = 3,
    /// No kubelet or container runtime on this machine.
    NothingToTrace = 4,
    /// It ran, but what it saw allows no judgement.
    CannotTell = 5,
    /// A defect of plegtrace.
    Bug = 70,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
