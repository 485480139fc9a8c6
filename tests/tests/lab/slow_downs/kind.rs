//! What is slowed down, and how: to a factor of what it may take at most on a sound node.

use std::time::Duration;

use plegtrace::correlate::thresholds::{CNI_SLOW_NS, HOOK_SLOW_NS, RELIST_CALLS};
use plegtrace::cri::Takes;
use plegtrace_lab::fault::{self, Fault, LEAST_SHARE};
use plegtrace_lab::gate::Place;
use plegtrace_lab::{Node, disk, host};

/// The component that is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// containerd has too little of a CPU.
    Containerd,
    /// The kubelet has.
    Kubelet,
    /// A CNI plugin takes its time.
    Plugin,
    /// An OCI hook does.
    Hook,
    /// The disk of containerd does few writes a second.
    Disk,
    /// The shim of a pod is stopped and continued in turns.
    Shim,
}

/// The shares of a CPU from which on a quota gets smaller until relists are slow enough, of the least slow ones, and the
/// smallest: with less, the kubelet does not even serve its metrics in ten seconds.
const OF_CONTAINERD: [f64; 2] = [0.03, LEAST_SHARE];
const OF_KUBELET: [f64; 2] = [0.05, 0.009];
/// Writes in a second of a disk on which CreateContainer takes what it may, 3 s.
const WRITES: f64 = 100.0;
/// So many times as long as it runs a shim is stopped to take for a command what it may, half a second. From six times that on
/// each stop lasts three seconds: then it is stopped, not slow, which the fault matrix has.
const STOPS: f64 = 25.0;
const STOPPED: f64 = 6.0;
/// The pod whose shim is slow.
pub(super) const POD: &str = "p1";

impl Kind {
    pub(super) const ALL: [Kind; 6] =
        [Kind::Containerd, Kind::Kubelet, Kind::Plugin, Kind::Hook, Kind::Disk, Kind::Shim];

    /// As in the environment, and in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Containerd => "containerd",
            Kind::Kubelet => "kubelet",
            Kind::Plugin => "plugin",
            Kind::Hook => "hook",
            Kind::Disk => "disk",
            Kind::Shim => "shim",
        }
    }

    /// Can this machine do it?
    pub(super) fn is_possible(self) -> bool {
        let possible = self != Kind::Disk || disk::can_be_throttled();
        if !possible {
            host::declare_skip("a slow disk", &anyhow::anyhow!("blkio of cgroups version 1 is not there"));
        }
        possible
    }

    /// Does it show in pods that come?
    pub(super) fn shows_in_pods(self) -> bool {
        matches!(self, Kind::Plugin | Kind::Hook | Kind::Disk)
    }

    /// Makes it so many times as slow as it may be.
    pub(super) fn slow_down(self, node: &Node, factor: f64) -> Fault {
        let slow = match self {
            Kind::Containerd => throttled(node, node.containerd().pid(), OF_CONTAINERD, factor),
            Kind::Kubelet => throttled(node, node.kubelet().pid(), OF_KUBELET, factor),
            Kind::Plugin => fault::slow_gate(node, Place::Cni, times(CNI_SLOW_NS, factor)),
            Kind::Hook => fault::slow_gate(node, Place::CreateRuntime, times(HOOK_SLOW_NS, factor)),
            Kind::Disk => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between 2 and 50"
                )]
                let writes = (WRITES / factor).ceil() as u32;
                fault::slow_disk(node, writes)
            }
            Kind::Shim => {
                let times = STOPS * factor.min(STOPPED);
                fault::slow_shim(node, &node.pod(POD).unwrap(), times)
            }
        };
        slow.unwrap()
    }
}

fn times(figure_ns: u64, factor: f64) -> Duration {
    Duration::from_nanos(figure_ns).mul_f64(factor)
}

/// A daemon that gets so little of a CPU that relists take so many times what they may.
fn throttled(node: &Node, pid: u32, [share, least]: [f64; 2], factor: f64) -> anyhow::Result<Fault> {
    let slow = times(RELIST_CALLS * Takes::Memory.normal_ns().unwrap(), factor);
    fault::throttled_until(node, pid, [(share / factor.sqrt()).max(least), least], slow)
}
