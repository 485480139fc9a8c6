//! Facts of processors: what the daemons of the node get of them, and what holds them off.

use serde::{Deserialize, Serialize};

/// What kubelet and runtime got of the processors so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuFact {
    /// When it was read.
    pub at_ns: u64,
    /// One entry per process.
    pub daemons: Vec<DaemonCpu>,
    /// For so long some task of the node has waited for a processor since the node was booted; `None`: the kernel does not
    /// say (`/proc/pressure/cpu`, "some total").
    pub pressure_ns: Option<u64>,
    /// Who ran most since the reading before, the most first, at most five; only while a daemon waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runners: Vec<RunnerFact>,
}

/// A process that had a processor while others waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerFact {
    /// Process.
    pub pid: u32,
    /// The kernel's name of it. Hostile text.
    pub comm: String,
    /// So long it ran since the reading before, in user space and in the kernel, to a clock tick; with what it started and what has
    /// ended since.
    pub ran_ns: u64,
    /// Of that, what ran in processes that were there at neither reading.
    #[serde(default)]
    pub started_ns: u64,
}

/// What one process got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonCpu {
    /// Process.
    pub pid: u32,
    /// So long its threads were on a processor since plegtrace first looked, added up (`/proc/PID/task/*/schedstat`). A lower
    /// bound: the last moments of threads that ended are missing.
    pub ran_ns: u64,
    /// So long they were ready to run and waited for one, held off by a quota included; a lower bound, too.
    pub waited_ns: u64,
    /// Threads that were looked at.
    pub threads: u32,
    /// Threads that were too many.
    pub left_out: u32,
    /// The cgroups over it that have a quota, its own first.
    pub quotas: Vec<QuotaFact>,
}

/// A cgroup with a quota of processor time, and how it has fared since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaFact {
    /// Its directory. Hostile text.
    pub path: String,
    /// It may run so long (`cpu.cfs_quota_us`, `cpu.max`) …
    pub quota_ns: u64,
    /// … in each period.
    pub period_ns: u64,
    /// Periods in which it wanted to run (`nr_periods`).
    pub periods: u64,
    /// Of these, in how many it was held off (`nr_throttled`).
    pub throttled: u64,
    /// For so long it was held off, added up over processors (`throttled_time`, `throttled_usec`).
    pub throttled_ns: u64,
}
