//! What lists take on a node of this size, with this runtime.

use crate::{
    correlate::{Snapshot, TracedState},
    cri::{Method, Takes},
    input::Component,
};

/// A list is answered from memory: for each container and sandbox in it, read, encoded and decoded, so long.
const EACH_NS: u64 = 50_000;
/// The same for each KiB of the answer, of which the socket tells.
const KIB_NS: u64 = 50_000;
/// cri-dockerd, and a kubelet with dockershim, ask Docker for each list, which looks at each container: so many times as long.
const DOCKER: u64 = 5;

/// What a relist with so many calls takes at most on a node that is merely busy, nanoseconds.
pub(super) fn relist_ns(calls: u64, snapshot: &Snapshot) -> u64 {
    let each = Takes::Memory.normal_ns().unwrap_or(u64::MAX);
    let lists = items(snapshot).saturating_mul(EACH_NS).max(kib(snapshot).saturating_mul(KIB_NS));
    let factor = if asks_docker(snapshot) { DOCKER } else { 1 };
    calls.saturating_mul(each).saturating_add(lists).saturating_mul(factor)
}

/// Containers and sandboxes that the runtime tells of, or whose bundles were found.
fn items(snapshot: &Snapshot) -> u64 {
    let Some(round) = &snapshot.census.round else { return 0 };
    let said = round.says.as_ref().map_or(0, |says| says.containers.len() as u64 + u64::from(says.left_out));
    said.max(round.containers.len() as u64)
}

/// Of the last answers to both lists of a relist.
fn kib(snapshot: &Snapshot) -> u64 {
    let is_list = |name: &str| Method::from_name(name).is_some_and(Method::is_relist_list);
    let rows = snapshot.grpc.rows.iter().filter(|row| is_list(&row.method));
    rows.map(|row| row.answer_bytes / 1024).fold(0, u64::saturating_add)
}

fn asks_docker(snapshot: &Snapshot) -> bool {
    let live = |component| {
        let mut targets = snapshot.targets.iter();
        targets.any(|target| target.fact.component == component && target.state == TracedState::Live)
    };
    let other = live(Component::Containerd) || live(Component::Crio);
    live(Component::CriDockerd) || live(Component::Dockerd) && !other
}
