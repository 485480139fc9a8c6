//! Facts of the census: what was already there when we came, read from outside, without an event and without a signal.
//!
//! One round tells every process of interest ([`ProcessFact`]), the stacks of the Go programs among them
//! ([`GoroutinesFact`]), and closes with a [`CensusFact`] that says who did not answer. Lists are cut at the bounds in
//! their docs, and say so.

mod descriptor;
mod download;
mod goroutines;
mod plugin;
mod process;
mod runtime;
mod scarce;
mod sent;

use serde::{Deserialize, Serialize};

pub use self::{
    descriptor::{FdFact, FdTarget, Holder, PipeFact, SocketFact},
    download::{Downloads, TcpFact},
    goroutines::{GoroutineGroup, GoroutinesFact, IdOnStack, Subject},
    plugin::{DEVICE_PLUGINS, DRIVERS, PLUGIN_DIRECTORIES, PluginFact, REGISTRY},
    process::{
        Command, DiskFact, Freezer, ParkedThreads, ProcessFact, SyscallFact, TaskLimit, WriteLimit, served_by,
    },
    runtime::{
        CallError, ContainerFact, EndedInit, OwnCall, RuntimeCondition, RuntimeSays, RuntimeState, Unkillable,
    },
    scarce::{DescriptorsFact, InotifyFact, InotifyUser, Scarce, SeccompFact, is_scarce},
    sent::{KubeletConnections, SentFact},
};

/// One round of the census is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusFact {
    /// First read of the round.
    pub began_ns: u64,
    /// Last read of the round.
    pub ended_ns: u64,
    /// Processes looked at.
    pub processes: u32,
    /// It ended before all was told of all processes: who is missing may be there all the same.
    #[serde(default)]
    pub cut: bool,
    /// Who did not answer in time, or could not be read.
    pub unanswered: Vec<Unanswered>,
    /// Processes that were left out because there were too many, or because the time was over.
    pub left_out: u32,
    /// Containers whose bundles were found, with or without a process in this round: who is meant by an id in a
    /// command line. At most 4096.
    #[serde(default)]
    pub containers: Vec<ContainerFact>,
    /// How much is waited for processors and disks; `None` where the kernel does not count it (before Linux 4.20).
    #[serde(default)]
    pub pressure: Option<Pressure>,
    /// What the disks do not have yet.
    #[serde(default)]
    pub unwritten: Option<Unwritten>,
    /// Versions of the node's programs; only in the round in which they were asked.
    #[serde(default)]
    pub versions: Vec<VersionFact>,
    /// What the runtime itself says, when it was asked.
    #[serde(default)]
    pub says: Option<RuntimeSays>,
    /// Containers and sandboxes whose first process has ended. At most 4096.
    #[serde(default)]
    pub ended: Vec<EndedInit>,
    /// Processes of containers that SIGKILL does not end. At most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unkillable: Vec<Unkillable>,
    /// Programs that answer for the kernel; `None` when nothing waits for one.
    #[serde(default)]
    pub answerers: Option<Answerers>,
    /// What the node has little or nothing left of; `None` when there is enough of all, and in rounds that did not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scarce: Option<Scarce>,
    /// Connections of the kubelet to other programs; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<PluginFact>,
    /// A seccomp filter was tried and refused; `None` when it was taken, and in rounds that did not try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<SeccompFact>,
    /// What the runtimes have received over TCP; only in rounds in which that was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub downloads: Vec<Downloads>,
    /// What becomes of what kubelets send over TCP; only in rounds in which that was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubelet_connections: Vec<KubeletConnections>,
}

/// Programs that answer for the kernel. At most 16 of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answerers {
    /// They hold /dev/fuse: servers of FUSE file systems.
    pub fuse: Vec<Holder>,
    /// They may refuse accesses to files (fanotify).
    pub permission: Vec<Holder>,
    /// There may be others.
    pub incomplete: bool,
}

/// What version a program of the node says it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionFact {
    /// "kubelet", "containerd", "runc", "systemd", …
    pub program: String,
    /// "1.6.20~ds1"
    pub version: String,
}

/// Shares of the last ten seconds in which somebody waited, hundredths of a percent (`/proc/pressure`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// At least one thread waited for a processor.
    pub cpu_some_avg10: u32,
    /// At least one thread waited for a disk.
    pub io_some_avg10: u32,
    /// All threads that wanted to run waited for a disk.
    pub io_full_avg10: u32,
    /// All threads that wanted to run waited for memory.
    pub memory_full_avg10: u32,
}

/// What programs have written and the disks of the node do not have yet, bytes (`/proc/meminfo`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwritten {
    /// Nobody writes it to a disk yet.
    pub dirty: u64,
    /// It is on its way.
    pub writeback: u64,
}

/// A question that got no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// Who was asked.
    pub pid: u32,
    /// The kernel's name of it. Hostile text.
    pub comm: String,
    /// What was asked: "command line", "kernel stack", "goroutines", …
    pub what: String,
    /// Why there is no answer: "no answer within 300 ms", "permission denied", …
    pub why: String,
}
