//! The kubelet's own measure of health, long before its threshold: how long ago its last list succeeded. Its relists show that, and so
//! does what it has noted itself.

use super::{health::is_live, reason::Reason};
use crate::{
    correlate::{LastList, ListOutcome, Relist, Snapshot, thresholds::SECOND_NS},
    decode::MonoNs,
    input::{Component, GoroutinesFact},
};

/// A look at the memory of a kubelet of which no relist can be seen counts for so long: looks at a node that is held up follow each
/// other within 48 s.
const LOOK_COUNTS_NS: u64 = 60 * SECOND_NS;

/// Has the kubelet not got a list for too long?
pub(super) fn find(snapshot: &Snapshot) -> Option<Reason> {
    let age = snapshot.last_list.age(snapshot.now)?;
    let ended = snapshot.relists_now().filter(|relist| !relist.root().is_open());
    let last = ended.max_by_key(|relist| relist.root().end);
    let failing = last.is_some_and(|last| last.list == ListOutcome::Failed);
    let is_stale = last.is_some_and(|last| lists_are_missed(last, age.ns, snapshot)) || is_noted(snapshot);
    (failing || is_stale).then_some(Reason::ListStale { age, failing })
}

/// Lost records could hide a success, so with losses only what is open counts.
fn lists_are_missed(last: &Relist, age_ns: u64, snapshot: &Snapshot) -> bool {
    let unsure = snapshot.fresh_losses().next().is_some() || last.list == ListOutcome::Unknown;
    let open = snapshot.relists_of_now().any(|relist| relist.root().is_open());
    age_ns > snapshot.pace().late_ns && (open || !unsure) && is_live(snapshot, Component::Kubelet)
}

/// Has the kubelet itself noted that its last list was too long ago, when its memory was read, and has none come since?
fn is_noted(snapshot: &Snapshot) -> bool {
    let late_ns = snapshot.pace().late_ns;
    snapshot.census.goroutines.iter().any(|look| {
        let late = |list: &u64| look.at_ns.saturating_sub(*list) > late_ns;
        let is_last = |list: &u64| snapshot.last_list == LastList::At(MonoNs(*list));
        look.last_list_ns.filter(late).filter(is_last).is_some() && still_counts(look, snapshot)
    })
}

/// Would a list have been seen that came after this look?
fn still_counts(look: &GoroutinesFact, snapshot: &Snapshot) -> bool {
    let seen = snapshot.relist_window.from.is_some_and(|from| from.0 <= look.at_ns);
    let is_whole = snapshot.fresh_losses().next().is_none();
    seen && is_whole || snapshot.now.since(MonoNs(look.at_ns)) <= LOOK_COUNTS_NS
}
