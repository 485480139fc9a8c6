//! What is slowed down, and how: by a factor of what it takes on a sound node that is not idle.

use std::time::Duration;

use plegtrace_lab::fault::{self, Fault};
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

/// The shares of a CPU from which on a quota gets smaller until relists are slow enough.
const OF_CONTAINERD: f64 = 0.03;
const OF_KUBELET: f64 = 0.05;
/// What relists, plugins and hooks take on a node that is not idle.
const RELIST: Duration = Duration::from_millis(10);
const PLUGIN: Duration = Duration::from_millis(300);
const HOOK: Duration = Duration::from_millis(100);
/// Writes in a second of a disk that takes 10 ms to make a commit of two writes last.
const WRITES: f64 = 200.0;
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

    /// Makes it so many times as slow.
    pub(super) fn slow_down(self, node: &Node, factor: f64) -> Fault {
        let slow = match self {
            Kind::Containerd => {
                fault::throttled_until(node, node.containerd().pid(), OF_CONTAINERD, RELIST.mul_f64(factor))
            }
            Kind::Kubelet => {
                fault::throttled_until(node, node.kubelet().pid(), OF_KUBELET, RELIST.mul_f64(factor))
            }
            Kind::Plugin => fault::slow_gate(node, Place::Cni, PLUGIN.mul_f64(factor)),
            Kind::Hook => fault::slow_gate(node, Place::CreateRuntime, HOOK.mul_f64(factor)),
            Kind::Disk => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between 4 and 100"
                )]
                let writes = (WRITES / factor).ceil() as u32;
                fault::slow_disk(node, writes)
            }
            Kind::Shim => fault::slow_shim(node, &node.pod(POD).unwrap(), factor),
        };
        slow.unwrap()
    }
}
