//! [`Slow`]: what ends, but takes longer than on any sound node, and does so again and again. One slow relist is none, nor is
//! a call that takes as long as what was asked for: a command, an image, a grace period.

use crate::{
    correlate::{
        Place, RecentKind, Relist, RequestTree, Snapshot, TimeTable,
        thresholds::{CNI_SLOW_NS, RECENT_NS, RELIST_CALLS, RUNC_SLOW_NS},
    },
    cri::Takes,
    input::Component,
    span::Span,
};

/// Relists, or calls that are answered from memory, are slow when so many of them tell; …
const MANY: u64 = 5;
/// … and what is rarer, and takes longer, when so many do.
const FEW: u64 = 3;

/// Something that is slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// What.
    pub what: SlowKind,
    /// How many were seen in the last minute.
    pub count: u64,
    /// What half of them took, or more.
    pub p50_ns: u64,
    /// What they take at most on a node that is merely busy.
    pub normal_ns: u64,
    /// The largest part of that time, and its share in percent; `None` where nothing was measured.
    pub part: Option<(Place, u64)>,
}

/// What can be slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlowKind {
    /// Relists.
    Relists,
    /// Calls of the kubelet, commands of runc, or plugins.
    Recent(RecentKind),
}

impl Slow {
    /// The component in which most of the time goes; `None`: between two, or not known.
    #[must_use]
    pub fn component(&self) -> Option<Component> {
        match (&self.what, &self.part) {
            (SlowKind::Recent(RecentKind::Runc(_)), _) => Some(Component::Runc),
            (SlowKind::Recent(RecentKind::Cni(_)), _) => Some(Component::Helper),
            (_, Some((place, _))) => place.component,
            _ => None,
        }
    }
}

/// What is slow now, relists first, then what is furthest from normal.
pub(super) fn find(snapshot: &Snapshot) -> Vec<Slow> {
    let mut others: Vec<Slow> =
        snapshot.recent.iter().filter_map(|recent| operation(recent, snapshot)).collect();
    others.sort_by_key(|slow| std::cmp::Reverse(slow.p50_ns / (slow.normal_ns / 1000).max(1)));
    relists(snapshot).into_iter().chain(others).collect()
}

/// Relists of which most took longer than their calls should: those of the last minute, and one that is open.
fn relists(snapshot: &Snapshot) -> Option<Slow> {
    let now = snapshot.now;
    let length = |relist: &&Relist| relist.root().duration_ns(now);
    let allowed =
        |relist: &&Relist| relist.calls.max(RELIST_CALLS) * Takes::Memory.normal_ns().unwrap_or(u64::MAX);
    let recent = snapshot.relists.iter().filter(|relist| {
        let of_now = relist.root().end.is_none_or(|end| now.since(end) <= RECENT_NS);
        // One that has just begun tells nothing yet.
        of_now && (!relist.root().is_open() || length(relist) > allowed(relist))
    });
    let recent: Vec<&Relist> = recent.collect();
    let slow: Vec<&Relist> =
        recent.iter().copied().filter(|relist| length(relist) > allowed(relist)).collect();
    let count = recent.len() as u64;
    if count < MANY || slow.len() * 2 <= recent.len() {
        return None;
    }
    let mut by_length: Vec<(u64, u64)> =
        recent.iter().map(|relist| (length(relist), allowed(relist))).collect();
    by_length.sort_unstable();
    let (p50_ns, normal_ns) = by_length[(by_length.len() - 1) / 2];
    let part = largest(slow.iter().map(|relist| relist.root()), snapshot);
    Some(Slow { what: SlowKind::Relists, count, p50_ns, normal_ns: normal_ns.min(p50_ns), part })
}

fn operation(recent: &crate::correlate::Recent, snapshot: &Snapshot) -> Option<Slow> {
    let (normal_ns, enough) = match &recent.what {
        // Those of relists are told with them.
        RecentKind::Calls(method) if method.facts().needed_by_relist => return None,
        RecentKind::Calls(method) => {
            let takes = method.facts().takes;
            (takes.normal_ns()?, if takes == Takes::Memory { MANY } else { FEW })
        }
        RecentKind::Runc(sub) => (runc_normal_ns(sub)?, MANY),
        RecentKind::Cni(_) => (CNI_SLOW_NS, FEW),
    };
    if recent.count < enough || recent.p50_ns <= normal_ns {
        return None;
    }
    let part = match &recent.what {
        RecentKind::Calls(method) => {
            let same = snapshot.requests.iter().map(RequestTree::root);
            largest(same.filter(|root| root.method() == Some(*method)), snapshot)
        }
        RecentKind::Runc(_) | RecentKind::Cni(_) => None,
    };
    let (count, p50_ns) = (recent.count, recent.p50_ns);
    Some(Slow { what: SlowKind::Recent(recent.what.clone()), count, p50_ns, normal_ns, part })
}

/// Some commands last as long as somebody wants them to.
fn runc_normal_ns(sub: &str) -> Option<u64> {
    matches!(sub, "create" | "start" | "exec" | "state" | "kill" | "delete" | "update")
        .then_some(RUNC_SLOW_NS)
}

/// The largest part of the time of these trees.
fn largest<'a>(roots: impl Iterator<Item = &'a Span>, snapshot: &Snapshot) -> Option<(Place, u64)> {
    let table = TimeTable::of(roots, snapshot.now);
    let first = table.rows.first()?;
    let share = u128::from(first.sum_ns) * 100 / u128::from(table.wall_ns.max(1));
    Some((first.place.clone(), u64::try_from(share).unwrap_or(100)))
}
