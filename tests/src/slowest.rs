//! What the report says was slowest in each relist and request, to compare traces with.

use plegtrace::{
    correlate::{Relist, RequestTree, Snapshot},
    span::{Span, critical_path, violation},
};

/// Names of calls and programs, each with its nanoseconds, outermost first.
pub type Path = Vec<(String, u64)>;

/// The relists and requests that the report tells about.
#[must_use]
pub fn roots(snapshot: &Snapshot) -> Vec<&Span> {
    let relists = snapshot.relists.iter().map(Relist::root);
    let all = relists.chain(snapshot.requests.iter().map(RequestTree::root));
    all.filter(|root| !root.is_long_lived()).collect()
}

/// The slowest path of each of them, sorted. A tree that contradicts itself has none.
#[must_use]
pub fn paths(snapshot: &Snapshot) -> Vec<Path> {
    let sound = roots(snapshot).into_iter().filter(|root| violation(root).is_none());
    let mut paths: Vec<Path> = sound.map(|root| path(root, snapshot)).collect();
    paths.sort();
    paths
}

fn path(root: &Span, snapshot: &Snapshot) -> Path {
    let name = |span: &Span| {
        if span.id == root.id && root.operation() == "Relist" { "relist" } else { span.operation() }
            .to_owned()
    };
    let path = critical_path(root, snapshot.now);
    path.iter().map(|span| (name(span), span.duration_ns(snapshot.now))).collect()
}
