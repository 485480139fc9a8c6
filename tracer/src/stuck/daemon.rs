//! Which kubelet and which runtime are the node's, and what shows that they work.
//!
//! A process that has their name need not be one of them: kind and docker-in-docker run whole nodes in containers, and a
//! dockerd may stand beside the runtime of the kubelet. If it is stopped, nothing on this node is held up.

use crate::{
    correlate::{ListOutcome, ProcessSeen, Relist, Snapshot, TracedState, thresholds::STILL_NS},
    decode::MonoNs,
    input::{Component, Layer},
    span::Span,
};

/// What a process has to do with the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is the kubelet or runtime that was found, or no daemon at all.
    Known,
    /// It may stand behind the runtime, or be it.
    Possible,
    /// The node has another one.
    Foreign,
}

/// Since when a process that was found standing still holds up the node. `None` when it does not: it is not the node's, or
/// has worked since.
pub(super) fn halted_since(seen: &ProcessSeen, still: MonoNs, snapshot: &Snapshot) -> Option<MonoNs> {
    let fact = &seen.fact;
    let place = place(fact.component, fact.pid, snapshot);
    if fact.component == Component::Shim && fact.state != 'Z' {
        return shim_halted_since(seen, still, snapshot);
    }
    if fact.state == 'Z' || place == Place::Known && !is_daemon(fact.component) {
        return Some(still);
    }
    let worked = worked(fact.component, fact.pid, snapshot).filter(|worked| *worked > still);
    match (place, worked) {
        (Place::Foreign, _) | (Place::Possible, Some(_)) => None,
        // The last look found it standing still again, unless it has worked after that, too.
        (Place::Known, Some(worked)) => (worked.0 <= fact.at_ns).then_some(MonoNs(fact.at_ns)),
        (Place::Known | Place::Possible, None) => Some(still),
    }
}

/// A shim that starts programs between the looks that find it stopped is slow: it is stopped and continued in turns. Unless it
/// has done nothing for so long that it hangs now.
fn shim_halted_since(seen: &ProcessSeen, still: MonoNs, snapshot: &Snapshot) -> Option<MonoNs> {
    let worked = snapshot.shims_worked.get(&seen.fact.pid).filter(|worked| **worked > still);
    let Some(worked) = worked else { return Some(still) };
    let (idle, looked) = (snapshot.now.since(*worked) >= STILL_NS, MonoNs(seen.fact.at_ns));
    (idle && *worked <= looked).then_some(looked)
}

fn is_daemon(component: Component) -> bool {
    component == Component::Kubelet || component.role().is_runtime()
}

fn place(component: Component, pid: u32, snapshot: &Snapshot) -> Place {
    if !is_daemon(component) {
        return Place::Known;
    }
    let kind =
        |other: Component| is_daemon(other) && component.role().is_runtime() == other.role().is_runtime();
    let live = snapshot.targets.iter().filter(|target| target.state == TracedState::Live);
    let of_kind: Vec<_> =
        live.filter(|target| kind(target.fact.component)).map(|target| &target.fact).collect();
    // Docker is several daemons, and only one of them is called by the kubelet.
    let in_front = |front: Component| match front {
        Component::CriDockerd => matches!(component, Component::Dockerd | Component::Containerd),
        Component::Dockerd => component == Component::Containerd,
        _ => false,
    };
    if of_kind.iter().any(|fact| fact.pid == pid) {
        Place::Known
    } else if of_kind.is_empty() || of_kind.iter().any(|fact| in_front(fact.component)) {
        Place::Possible
    } else {
        Place::Foreign
    }
}

/// When a daemon was last seen to work. A kubelet ends a relist; a runtime ends a request, and without the runtime, whoever
/// it is, no relist gets its list.
fn worked(component: Component, pid: u32, snapshot: &Snapshot) -> Option<MonoNs> {
    let relists = snapshot.relists.iter();
    if component == Component::Kubelet {
        let own = relists.map(Relist::root).filter(|root| root.id.tgid == pid);
        return own.filter_map(|root| root.end).max();
    }
    let roots = snapshot.requests.iter().map(|request| &request.tree.root);
    let spans = relists.clone().map(Relist::root).chain(roots).flat_map(Span::walk);
    let handlers = spans.filter(|span| span.layer() == Layer::Handler && span.id.tgid == pid);
    let listed = relists.filter(|relist| relist.list == ListOutcome::Ok).map(|relist| relist.root().start());
    handlers.filter_map(|span| span.end).chain(listed).max()
}
