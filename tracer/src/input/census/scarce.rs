//! What the node can run out of, and has little or nothing left of.

use serde::{Deserialize, Serialize};

use super::ContainerFact;
use crate::input::Component;

/// So few are always few; of a small limit, one in so many.
const FEW: u64 = 8;
const ONE_IN: u64 = 16;

/// Is there little or nothing left?
#[must_use]
pub fn is_scarce(used: u64, limit: u64) -> bool {
    limit.saturating_sub(used) <= FEW.min(limit / ONE_IN)
}

/// What there is little or nothing left of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scarce {
    /// Instances of inotify that root may have.
    pub inotify: Option<InotifyFact>,
    /// Daemons that have as many files open as they may have, or nearly; at most 64.
    pub descriptors: Vec<DescriptorsFact>,
}

/// Instances of inotify, of root in the first user namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InotifyFact {
    /// How many root may have (`fs.inotify.max_user_instances`).
    pub limit: u64,
    /// How many its processes hold, each counted once.
    pub used: u64,
    /// Not all processes could be looked at: there may be more.
    pub at_least: bool,
    /// Whether two processes hold the same one could not be told: there may be fewer.
    pub at_most: bool,
    /// Another one was tried, and refused or not; `None` when that could not be tried.
    pub refused: Option<bool>,
    /// Programs that hold them, those with most first; at most 8.
    pub users: Vec<InotifyUser>,
}

/// All processes of one name that hold instances of inotify.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InotifyUser {
    /// The kernel's name of them. Hostile text.
    pub comm: String,
    /// How many processes.
    pub processes: u32,
    /// Instances of all of them.
    pub instances: u64,
    /// The process of them that holds most, the first of several.
    pub pid: u32,
    /// How many that holds.
    pub own: u64,
    /// The container in which that runs.
    pub container: Option<ContainerFact>,
    /// Its cgroup, the one of systemd. Hostile text.
    pub cgroup: Option<String>,
}

/// A daemon that can open nothing more, or nearly nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescriptorsFact {
    /// Process.
    pub pid: u32,
    /// What it is to the node.
    pub component: Component,
    /// Descriptors below its limit.
    pub open: u64,
    /// Its limit (`RLIMIT_NOFILE`).
    pub limit: u64,
}

/// The kernel refuses a seccomp filter of a program without privileges, because it cannot compile it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeccompFact {
    /// What all compiled BPF programs may take together (`net.core.bpf_jit_limit`), bytes.
    pub limit: Option<u64>,
    /// It takes the same filter from a program with privileges, which are not bound by that limit.
    pub spares_root: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight of a usual limit, one in sixteen of a small one; of nothing nothing is left.
    #[test]
    fn little_is_left() {
        assert!(is_scarce(120, 128) && !is_scarce(119, 128));
        assert!(is_scarce(8184, 8192) && !is_scarce(8183, 8192));
        assert!(is_scarce(31, 32) && is_scarce(30, 32) && !is_scarce(29, 32));
        assert!(is_scarce(4, 4) && !is_scarce(3, 4) && is_scarce(0, 0) && is_scarce(9, 4));
    }
}
