//! What a lab can be asked for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::cri::Api;
use crate::kubelet::KubeletBuild;
use crate::packages::Suite;

/// A generation of containerd, by its series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Generation {
    /// 1.4 of bullseye: Go 1.15, stack ABI, CRI v1alpha2 only.
    V1_4,
    /// 1.6 of bookworm: Go 1.19.
    #[default]
    V1_6,
    /// 1.7 of trixie: Go 1.24.
    V1_7,
    /// 2.1 of sid: CRI v1 only.
    V2_1,
}

impl Generation {
    /// All of them, oldest first.
    pub const ALL: [Generation; 4] = [Generation::V1_4, Generation::V1_6, Generation::V1_7, Generation::V2_1];

    /// The suite whose package it is.
    #[must_use]
    pub fn suite(self) -> Suite {
        match self {
            Generation::V1_4 => Suite::Bullseye,
            Generation::V1_6 => Suite::Bookworm,
            Generation::V1_7 => Suite::Trixie,
            Generation::V2_1 => Suite::Sid,
        }
    }

    /// The newest CRI it speaks.
    #[must_use]
    pub fn api(self) -> Api {
        match self {
            Generation::V1_4 => Api::V1alpha2,
            Generation::V1_6 | Generation::V1_7 | Generation::V2_1 => Api::V1,
        }
    }

    /// Whether it speaks `v1alpha2`, which is all that kubelet 1.20 knows: with others a kubelet that asks by `v1` runs.
    #[must_use]
    pub fn serves_v1alpha2(self) -> bool {
        self != Generation::V2_1
    }

    /// Whether its suite has Docker 20.10, the last release that kubelet 1.20 knows.
    #[must_use]
    pub fn has_docker(self) -> bool {
        matches!(self, Generation::V1_4 | Generation::V1_6)
    }

    fn series(self) -> &'static str {
        match self {
            Generation::V1_4 => "1.4",
            Generation::V1_6 => "1.6",
            Generation::V1_7 => "1.7",
            Generation::V2_1 => "2.1",
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.series())
    }
}

impl FromStr for Generation {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Generation> {
        let found = Generation::ALL.into_iter().find(|generation| generation.series() == text);
        found.ok_or_else(|| anyhow::anyhow!("unknown generation {text}: use 1.4, 1.6, 1.7 or 2.1"))
    }
}

/// Who makes the cgroups of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupDriver {
    /// runc writes to the cgroup file system.
    #[default]
    Cgroupfs,
    /// runc asks systemd over D-Bus: only on machines that run systemd.
    Systemd,
}

impl CgroupDriver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            CgroupDriver::Cgroupfs => "cgroupfs",
            CgroupDriver::Systemd => "systemd",
        }
    }
}

/// What network pods get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// The node's.
    #[default]
    Host,
    /// One of their own, by CNI on a private bridge.
    Bridge,
}

/// The kubelet's own default for [`Knobs::request_timeout`].
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Where the node's shims come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShimBuild {
    /// The package of containerd.
    #[default]
    Packaged,
    /// containerd 1.7 with the bug of 1.7.21: after a command that could not be started they never report the end of its container.
    Lossy,
    /// containerd 1.7 with the bug of 1.7.7: they wait for themselves when the first process of a container dies at once.
    SelfLocking,
    /// containerd 1.7 with the bug of 1.2.0: their lock and their reaper wait for each other when commands end while they start one.
    Deadlocking,
}

/// How the node is set up. `Knobs::default()` is containerd 1.6 with one idle pod in the host's network.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// Which containerd.
    pub generation: Generation,
    /// The kubelet asks Docker 20.10 of the same suite, through its dockershim, and Docker asks containerd. With 1.4 and 1.6
    /// only.
    pub docker: bool,
    /// Which suite's runc; bookworm's runs everywhere.
    pub runc: Suite,
    /// Which compiler built the kubelet; with containerd 2.1, and with `blocking_pleg`, it is the default one.
    pub kubelet: KubeletBuild,
    /// Number of static pods.
    pub pods: usize,
    /// Number of containers in each of them.
    pub containers: usize,
    /// Whether each container has an exec probe once a second.
    pub exec_probes: bool,
    /// Only the first so many pods have that probe.
    pub probed_pods: usize,
    /// How long the kubelet waits for an answer of the runtime, in whole seconds (`runtimeRequestTimeout`).
    pub request_timeout: Duration,
    /// Who makes the cgroups of pods.
    pub cgroup_driver: CgroupDriver,
    /// What network pods get.
    pub network: Network,
    /// The node's runc is the genuine 1.0.0-rc93, whose `runc init` hangs on a large seccomp profile, instead of `runc`.
    pub rc93: bool,
    /// The node's shims.
    pub shim: ShimBuild,
    /// The node's containerd is a 1.7 that locks itself out of its network configuration, as 2.0.1 and 2.0.2 do.
    pub deadlocking: bool,
    /// The kubelet's relist waits for room in its event channel, as before Kubernetes 1.14, and there is little. It is built
    /// by the default compiler.
    pub blocking_pleg: bool,
    /// The kubelet locks itself out when a certain pod comes. It is built by the default compiler.
    pub locking_kubelet: bool,
    /// A CNI plugin before the bridge and OCI hooks around each container, which let all pass until a fault says
    /// otherwise (see [`crate::gate`]). Containers of Docker have no such hooks.
    pub gates: bool,
    /// Address of the bus on which runc asks systemd; none: that of the machine.
    pub bus: Option<String>,
    /// What containerd keeps lies on a disk of its own, which a fault can slow down.
    pub disk: bool,
    /// containerd asks plugins of NRI. With 1.7 and 2.1 only.
    pub nri: bool,
    /// The kubelet takes device plugins. Their sockets have a fixed path, so it gets a `/var/lib` of its own, which is empty.
    pub device_plugins: bool,
    /// The kubelet has an API server, of its own release, and is a node there.
    pub control_plane: bool,
    /// A message to or from containerd may have 128 MiB instead of 16.
    pub large_messages: bool,
}

impl Default for Knobs {
    fn default() -> Knobs {
        Knobs {
            generation: Generation::default(),
            docker: false,
            runc: Suite::Bookworm,
            kubelet: KubeletBuild::default(),
            pods: 1,
            containers: 1,
            exec_probes: false,
            probed_pods: usize::MAX,
            request_timeout: REQUEST_TIMEOUT,
            cgroup_driver: CgroupDriver::default(),
            network: Network::default(),
            rc93: false,
            shim: ShimBuild::default(),
            deadlocking: false,
            blocking_pleg: false,
            locking_kubelet: false,
            gates: false,
            bus: None,
            disk: false,
            nri: false,
            device_plugins: false,
            control_plane: false,
            large_messages: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_read_as_they_are_printed() {
        for generation in Generation::ALL {
            assert_eq!(generation.to_string().parse::<Generation>().unwrap(), generation);
        }
        assert!("1.5".parse::<Generation>().is_err());
    }
}
