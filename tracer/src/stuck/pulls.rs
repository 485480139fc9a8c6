//! Pulls of images through which nothing comes. Age proves nothing: an image may take an hour.

use crate::{
    correlate::{
        Age, Caller, OpenCall, Quiet, Request, Snapshot,
        thresholds::{PULL_NS, PULL_SILENT_NS},
    },
    cri::Method,
    input::{Component, Layer},
};

/// A runtime that owes the kubelet an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    /// The runtime.
    pub(crate) pid: u32,
    /// How long the oldest pull is open.
    pub(crate) age: Age,
}

/// Is one open for so long that a look at connections is worth its price?
pub(crate) fn any_pull(snapshot: &Snapshot) -> bool {
    let open = snapshot.open.iter().any(|call| is_pull(call) && call.age_ns >= PULL_NS);
    open || snapshot.census.requests.iter().any(is_seen)
}

/// Pulls of the kubelet, by runtime, while nothing moves on the runtime's connections.
pub(crate) fn silent_pulls(snapshot: &Snapshot) -> impl Iterator<Item = (Pull, &Quiet)> {
    let is_silent = |quiet: &&Quiet| quiet.silent_ns().is_some_and(|ns| ns >= PULL_SILENT_NS);
    let silent = snapshot.census.downloads.iter().filter(is_silent);
    silent.filter_map(|quiet| Some((pull(quiet.fact.pid, snapshot)?, quiet)))
}

/// The oldest pull that the kubelet waits for in this runtime. Whoever typed `crictl pull` waits for that himself.
fn pull(pid: u32, snapshot: &Snapshot) -> Option<Pull> {
    let kubelet_waits = kubelet_pulls(snapshot);
    let of_kubelet = |call: &&OpenCall| match call.caller {
        Caller::Waiting => true,
        Caller::Unknown => kubelet_waits,
        Caller::NotAsked | Caller::Gone(_) | Caller::Foreign | Caller::Own => false,
    };
    let handlers = || snapshot.open.iter().filter(|call| is_pull(call) && call.span.id.tgid == pid);
    let traced = handlers().filter(of_kubelet).map(|call| Age { ns: call.age_ns, at_least: false });
    // What a probe shows is known better than by looks.
    let seen = snapshot.census.requests.iter().filter(|one| one.pid == pid && is_seen(one));
    let seen = seen.filter(|_| kubelet_waits && handlers().next().is_none()).map(|one| one.since);
    let age = traced.chain(seen).max_by_key(|age| age.ns)?;
    (age.ns >= PULL_NS).then_some(Pull { pid, age })
}

fn is_pull(call: &OpenCall) -> bool {
    let handler = call.span.layer() == Layer::Handler && call.span.method() == Some(Method::PullImage);
    handler && !call.replied
}

fn is_seen(request: &Request) -> bool {
    request.method() == Some(Method::PullImage) && request.stays && request.component.role().is_runtime()
}

/// Does a goroutine of a kubelet, or an open call of it, wait for an image?
fn kubelet_pulls(snapshot: &Snapshot) -> bool {
    let client = |call: &OpenCall| {
        let layer = matches!(call.span.layer(), Layer::KubeletCall | Layer::KubeletClient);
        layer && call.span.method() == Some(Method::PullImage)
    };
    let asks = |frame: &String| frame.ends_with("mageServiceClient).PullImage");
    let kubelets = snapshot.census.goroutines.iter().filter(|read| read.component == Component::Kubelet);
    let mut groups = kubelets.flat_map(|read| &read.groups);
    snapshot.open.iter().any(client) || groups.any(|group| group.frames.iter().any(asks))
}
