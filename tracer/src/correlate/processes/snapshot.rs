//! [`Processes`]: the processes of the node at one moment, as a snapshot shows them.

use super::ProcessKind;
use crate::{
    correlate::{Latency, Phase},
    decode::MonoNs,
};

/// The short-lived processes of the node, and the first processes of its containers.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// When the kernel's map was read; `None` when never.
    pub read_at: Option<MonoNs>,
    /// It was read to its end.
    pub complete: bool,
    /// Short-lived processes that have not ended, oldest first.
    pub open: Vec<OpenProcess>,
    /// Figures of those that have ended, by kind.
    pub rows: Vec<ProcessRow>,
    /// The longest of those that have ended, longest first; a bounded number.
    pub slowest: Vec<EndedProcess>,
    /// The last of those that failed or were killed, oldest first; a bounded number.
    pub failed: Vec<EndedProcess>,
    /// First processes of containers and of execs that live.
    pub workloads: Vec<WorkloadProcess>,
    /// The last of those that have ended; a bounded number. Whether somebody has waited for them is not known here.
    pub workloads_ended: Vec<WorkloadProcess>,
    /// Processes that were gone although no end was seen.
    pub ended_unseen: u64,
}

/// A process that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenProcess {
    /// Process id.
    pub pid: u32,
    /// What it does.
    pub kind: ProcessKind,
    /// When its program began; `None`: before the probes.
    pub start: Option<MonoNs>,
    /// How long its program runs.
    pub age_ns: u64,
    /// It may be older.
    pub at_least: bool,
    /// The kernel's name of it.
    pub comm: String,
    /// Container it works for.
    pub container: Option<String>,
    /// Bundle of that container.
    pub bundle: Option<String>,
    /// For `runc init`: sub-command of the runc that started it.
    pub under: Option<String>,
    /// Who started it, also when nothing else is known of that.
    pub parent: Option<u32>,
    /// Its parent, the parent of that, and so on up to a component of the node.
    pub parents: Vec<(u32, ProcessKind)>,
    /// What a runc is doing, outermost first; empty when that is not seen.
    pub phases: Vec<Phase>,
    /// The age from which it is late; `None`: never by its age.
    pub late_after_ns: Option<u64>,
    /// It should have ended by now.
    pub late: bool,
}

/// Figures of one kind of process. Every process counts once, when it ends.
#[derive(Clone, Debug)]
pub struct ProcessRow {
    /// Which.
    pub kind: ProcessKind,
    /// From the start of their program to the end; for `runc init` to the `execve` into the workload.
    pub latency: Latency,
    /// Of these, how many ended with an exit code other than 0.
    pub failed: u64,
    /// Of these, how many were killed by a signal.
    pub killed: u64,
}

/// A process that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedProcess {
    /// Process id.
    pub pid: u32,
    /// What it did.
    pub kind: ProcessKind,
    /// Container it worked for.
    pub container: Option<String>,
    /// When its program began.
    pub start: MonoNs,
    /// When it ended.
    pub end: MonoNs,
    /// How.
    pub how: ProcessEnd,
}

impl EndedProcess {
    /// How long it ran.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end.since(self.start)
    }
}

/// How a process, or its program, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It exited with this code.
    Exited(u32),
    /// It was killed by this signal.
    Killed(u32),
    /// It became the workload.
    BecameWorkload,
    /// It became another program.
    Replaced,
}

impl ProcessEnd {
    /// What a wait status (exit code × 256 + signal; 128 more after a core dump) says.
    pub(super) fn of_status(status: u32) -> Self {
        match status & 0x7f {
            0 => Self::Exited(status >> 8 & 0xff),
            signal => Self::Killed(signal),
        }
    }
}

/// First process of a container, or of an exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadProcess {
    /// Process id.
    pub pid: u32,
    /// Its container.
    pub container: Option<String>,
    /// Sub-command of the runc that made it: "create", "exec", …
    pub under: Option<String>,
    /// When it became the workload.
    pub start: Option<MonoNs>,
    /// When and how it ended; `None` while it lives.
    pub end: Option<(MonoNs, ProcessEnd)>,
}
