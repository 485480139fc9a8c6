//! Which captures there are, and how each is made on a real runtime.

mod docker_log;
mod dockershim;
mod go;
mod kubelet;
mod metrics;
mod shim;
mod tonic;

use std::time::Duration;

use anyhow::{Context as _, Result};
use plegtrace_lab::{Generation, Knobs, kubelet::Kubelet, process};

use super::Protocol;

const LIMIT: Duration = Duration::from_secs(60);
/// gRPC's code for what was cancelled; a reset stream has no status, its handler has this one.
pub const CANCELLED: u32 = 1;
/// gRPC's code for what is not served.
pub const UNIMPLEMENTED: u32 = 12;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The kubelet asks containerd; the lab's client, too, whether its pods run.
    Kubelet,
    /// The lab's client, made of tonic, asks containerd.
    Tonic,
    /// A client with Kubernetes' own library asks containerd.
    Go,
    /// The dockershim of a kubelet, and its cAdvisor, ask dockerd.
    Dockershim,
    /// containerd asks the shim of a container.
    Containerd,
}

impl Client {
    /// What it speaks.
    #[must_use]
    pub const fn protocol(self) -> Protocol {
        match self {
            Client::Kubelet | Client::Tonic | Client::Go => Protocol::Grpc,
            Client::Dockershim => Protocol::Http1,
            Client::Containerd => Protocol::Ttrpc,
        }
    }
}

/// A client and a runtime.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Name of the capture.
    pub name: &'static str,
    /// The runtime.
    pub generation: Generation,
    /// The client.
    pub client: Client,
}

const fn pair(name: &'static str, client: Client, generation: Generation) -> Pair {
    Pair { name, generation, client }
}

/// All pairs that speak gRPC of which there is a capture. There is no `go-1.4`: containerd 1.4 serves `v1alpha2` of the CRI only,
/// and Kubernetes' library asks by `v1` only.
pub const CLIENTS: [Pair; 11] = [
    pair("go-1.6", Client::Go, Generation::V1_6),
    pair("go-1.7", Client::Go, Generation::V1_7),
    pair("go-2.1", Client::Go, Generation::V2_1),
    pair("kubelet-1.4", Client::Kubelet, Generation::V1_4),
    pair("kubelet-1.6", Client::Kubelet, Generation::V1_6),
    pair("kubelet-1.7", Client::Kubelet, Generation::V1_7),
    pair("kubelet-2.1", Client::Kubelet, Generation::V2_1),
    pair("tonic-1.4", Client::Tonic, Generation::V1_4),
    pair("tonic-1.6", Client::Tonic, Generation::V1_6),
    pair("tonic-1.7", Client::Tonic, Generation::V1_7),
    pair("tonic-2.1", Client::Tonic, Generation::V2_1),
];

/// Kubelets above a dockerd.
pub const DOCKERS: [Pair; 1] = [pair("docker-20.10", Client::Dockershim, Generation::V1_6)];

/// containerd and a shim.
pub const SHIMS: [Pair; 4] = [
    pair("shim-1.4", Client::Containerd, Generation::V1_4),
    pair("shim-1.6", Client::Containerd, Generation::V1_6),
    pair("shim-1.7", Client::Containerd, Generation::V1_7),
    pair("shim-2.1", Client::Containerd, Generation::V2_1),
];

/// Captures of what runc and systemd of each release say to each other over D-Bus: `cargo xtask vm --test bus_streams`, then `record-bus`, make them.
pub const RUNCS: [&str; 4] = ["runc-bullseye", "runc-bookworm", "runc-trixie", "runc-sid"];

/// All that [`make`] makes.
#[must_use]
pub fn all() -> Vec<Pair> {
    [&CLIENTS[..], &DOCKERS, &SHIMS].concat()
}

/// Makes captures anew.
///
/// # Errors
///
/// A node does not start, or a capture is not what it should be.
pub fn make(pairs: &[Pair]) -> Result<()> {
    for pair in pairs {
        let knobs = Knobs { generation: pair.generation, ..Knobs::default() };
        let capture = match pair.client {
            Client::Kubelet => kubelet::capture(&knobs),
            Client::Tonic => tonic::capture(&knobs),
            Client::Go => go::capture(&knobs),
            Client::Dockershim => dockershim::capture(knobs),
            Client::Containerd => shim::capture(&knobs),
        };
        capture.and_then(|capture| capture.save(pair.name, pair.client.protocol())).context(pair.name)?;
    }
    Ok(())
}

/// A pod comes and goes beside the one that is there.
fn one_pod_more(kubelet: &Kubelet) -> Result<()> {
    let wait = |what: &str, wanted: usize| {
        process::wait_for(what, LIMIT, || Ok((kubelet.running_pods()?.len() == wanted).then_some(())))
    };
    kubelet.add_pod("p2")?;
    wait("a second pod", 2)?;
    kubelet.remove_pod("p2")?;
    wait("its end", 1)
}

/// Waits until a command runs in a container.
fn wait_for_command(container: &str, command: &[&str]) -> Result<()> {
    process::wait_for("the command", LIMIT, || {
        let all = process::in_cgroup(container);
        Ok(all.into_iter().any(|pid| process::arguments(pid) == command).then_some(()))
    })
}
