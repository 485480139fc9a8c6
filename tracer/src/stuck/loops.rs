//! Loops of a kubelet that hang: looks found them deeper than in their own select, and not gone on, for longer than what they wait for
//! may take.

use super::{Stuck, StuckKind};
use crate::correlate::{Age, BusyLoop, LoopKind, LoopWait, Snapshot};

/// Loops of one kind that wait for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopStall {
    /// The one that has waited longest.
    pub oldest: BusyLoop,
    /// The goroutines of all of them.
    pub goids: Vec<u64>,
}

/// Those of all kubelets, one entry for all that wait alike.
pub(super) fn find(snapshot: &Snapshot) -> Vec<Stuck> {
    let mut found: Vec<(u64, LoopStall)> = Vec::new();
    for (late_ns, one) in late(snapshot) {
        let alike = |stall: &LoopStall| {
            let key = |one: &BusyLoop| (one.pid, one.kind);
            key(&stall.oldest) == key(one) && stall.oldest.wait == one.wait
        };
        match found.iter_mut().find(|(_, stall)| alike(stall)) {
            Some((oldest_ns, stall)) => {
                stall.goids.push(one.goid);
                if late_ns > *oldest_ns {
                    (*oldest_ns, stall.oldest) = (late_ns, one.clone());
                }
            }
            None => found.push((late_ns, LoopStall { oldest: one.clone(), goids: vec![one.goid] })),
        }
    }
    found.into_iter().map(|(late_ns, stall)| stuck(late_ns, stall)).collect()
}

fn late(snapshot: &Snapshot) -> impl Iterator<Item = (u64, &BusyLoop)> {
    let between = snapshot.census.loops.iter().flat_map(|loops| &loops.between);
    let asks = between.filter_map(|one| Some((one.asks_again_ns()?, one)));
    busy(snapshot).filter_map(|one| Some((one.late_ns()?, one))).chain(asks)
}

fn stuck(late_ns: u64, stall: LoopStall) -> Stuck {
    Stuck {
        since: Age { ns: late_ns, at_least: true },
        container: None,
        parks: Vec::new(),
        frames: stall.oldest.frames.clone(),
        phases: Vec::new(),
        sockets: Vec::new(),
        waiters: Vec::new(),
        what: StuckKind::Loop(Box::new(stall)),
    }
}

/// Has a loop of a kubelet not gone on between two looks, at a place where it can get late, or did a look find the sync loop at such a
/// place, where it is for milliseconds? Then further looks are worth their price.
pub(crate) fn loops_wait(snapshot: &Snapshot) -> bool {
    let may_be_late =
        |one: &BusyLoop| (one.looks >= 2 || one.kind == LoopKind::SyncLoop) && one.limit_ns().is_some();
    busy(snapshot).any(may_be_late) || late(snapshot).next().is_some()
}

/// Does a loop wait for a plugin, longer than one that answers lets it?
pub(crate) fn plugins_are_awaited(snapshot: &Snapshot) -> bool {
    busy(snapshot).any(|one| {
        let lasts = one.looks >= 2 || one.kind == LoopKind::SyncLoop;
        lasts && matches!(one.wait, LoopWait::Plugin { .. })
    })
}

/// Did more than one look find a loop in requests to the API server?
pub(crate) fn api_is_awaited(snapshot: &Snapshot) -> bool {
    let asks =
        |one: &BusyLoop| matches!(one.wait, LoopWait::Api { throttled: false }) && one.again.looks >= 2;
    snapshot.census.loops.iter().any(|loops| loops.busy.iter().chain(&loops.between).any(asks))
}

fn busy(snapshot: &Snapshot) -> impl Iterator<Item = &BusyLoop> {
    snapshot.census.loops.iter().flat_map(|loops| &loops.busy)
}
