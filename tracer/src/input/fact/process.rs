//! Facts of the watched processes.

use serde::{Deserialize, Serialize};

use crate::input::Command;

/// The watched processes at one moment: those in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessesFact {
    /// When the map was read (before the ring buffer was drained).
    pub at_ns: u64,
    /// The processes.
    pub processes: Vec<WatchedFact>,
    /// The map could be read to its end.
    pub complete: bool,
}

/// One watched process, as the kernel keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedFact {
    /// Process.
    pub pid: u32,
    /// Number of its [`Role`](plegtrace_common::role::Role).
    pub role: u32,
    /// Number of the role of who started it; 0 when that was not watched.
    pub parent_role: u32,
    /// When the program it runs began; 0 when it was there before the probes.
    pub since_ns: u64,
    /// Its parent when that program began; 0 when not known.
    pub parent: u32,
    /// `PROCESS_*` bits.
    pub flags: u32,
    /// What records before this stream have told of it; only in a preamble.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<KnownFact>,
}

/// What a stream knows of a process from records that it does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFact {
    /// Its short name.
    pub comm: String,
    /// What it was told to do.
    pub command: Option<Command>,
    /// The container that it, or the runc that it belongs to, works for.
    pub container: Option<String>,
    /// The bundle of that container.
    pub bundle: Option<String>,
    /// Sub-command of the runc that it belongs to.
    pub under: Option<String>,
    /// The runc that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub works_for: Option<u32>,
    /// Of a runc: what it made has become the command, or the workload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_begun: bool,
}

/// What a process was told to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandFact {
    /// Process.
    pub pid: u32,
    /// When the program began; with the pid it tells which.
    pub since_ns: u64,
    /// The command line could not be read: the command says less than it could.
    pub unread: bool,
    /// Only what is on the allow-list.
    pub command: Command,
}
