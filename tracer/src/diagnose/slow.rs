//! [`Slow`]: what ends, but takes longer than on any sound node, and does so again and again. One slow relist is none, nor is
//! a call that takes as long as what was asked for: a command, an image, a grace period.

use std::collections::BTreeMap;

use crate::{
    correlate::{
        Place, ProcessKind, RecentKind, Relist, RequestTree, Snapshot, TimeTable,
        thresholds::{
            CNI_SLOW_NS, HOOK_SLOW_NS, RECENT_NS, RELIST_CALLS, RUNC_SLOW_NS, SECOND_NS, SHIM_SLOW_NS,
        },
    },
    cri::Takes,
    diagnose::{held_off::is_throttled, size},
    input::{Component, ContainerFact, Layer},
    span::Span,
};

/// Relists, or calls that are answered from memory, are slow when so many of them tell; …
const MANY: u64 = 5;
/// … and what is rarer, or takes longer, when so many do.
const FEW: u64 = 3;

/// Something that is slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// What.
    pub what: SlowKind,
    /// How many were seen in the last minute.
    pub count: u64,
    /// How many of them took longer than `normal_ns`: most, or of relists that a quota holds up a fifth or more.
    pub late: u64,
    /// What half of them took, or more.
    pub p50_ns: u64,
    /// What they take at most on a node that is merely busy.
    pub normal_ns: u64,
    /// The largest part of that time, and its share in percent; `None` where nothing was measured.
    pub part: Option<(Place, u64)>,
    /// The pod of a shim.
    pub container: Option<ContainerFact>,
}

/// What can be slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlowKind {
    /// Relists.
    Relists,
    /// Calls of the kubelet, commands of runc, plugins, hooks, or what a shim takes for commands.
    Recent(RecentKind),
}

impl Slow {
    /// The component in which most of the time goes; `None`: between two, or not known.
    #[must_use]
    pub fn component(&self) -> Option<Component> {
        match (&self.what, &self.part) {
            (SlowKind::Recent(RecentKind::Runc { .. }), _) => Some(Component::Runc),
            (SlowKind::Recent(RecentKind::Cni { .. } | RecentKind::Hook(_)), _) => Some(Component::Helper),
            (SlowKind::Recent(RecentKind::Shim(_)), _) => Some(Component::Shim),
            (_, Some((place, _))) => place.component,
            _ => None,
        }
    }
}

/// What is slow now, relists first, then what is furthest from normal.
pub(super) fn find(snapshot: &Snapshot) -> Vec<Slow> {
    let mut others: Vec<Slow> =
        lengths(snapshot).into_iter().filter_map(|(what, took)| operation(&what, took, snapshot)).collect();
    others.sort_by_key(|slow| std::cmp::Reverse(slow.p50_ns / (slow.normal_ns / 1000).max(1)));
    relists(snapshot).into_iter().chain(others).collect()
}

/// Relists of which most took longer than their calls should: those of the last minute, and one that is open.
fn relists(snapshot: &Snapshot) -> Option<Slow> {
    let now = snapshot.now;
    let length = |relist: &Relist| relist.root().duration_ns(now);
    let allowed = |relist: &Relist| size::relist_ns(relist.calls.max(RELIST_CALLS), snapshot);
    let is_late = |relist: &Relist| length(relist) > allowed(relist);
    let recent = snapshot.relists.iter().filter(|relist| {
        let of_now = relist.root().end.is_none_or(|end| now.since(end) <= RECENT_NS);
        // One that has just begun tells nothing yet.
        of_now && (!relist.root().is_open() || is_late(relist))
    });
    let (mut late, mut by_length) = (Vec::new(), Vec::new());
    for relist in recent {
        late.extend(is_late(relist).then(|| relist.root()));
        by_length.push((length(relist), allowed(relist)));
    }
    by_length.sort_unstable();
    let (p50_ns, normal_ns) = *by_length.get(by_length.len().saturating_sub(1) / 2)?;
    let (count, many) = (by_length.len() as u64, late.len() as u64);
    if !are_late(count, many, p50_ns, snapshot) {
        return None;
    }
    let normal_ns = if many * 2 > count { normal_ns.min(p50_ns) } else { normal_ns };
    let part = largest(late.into_iter(), snapshot);
    Some(Slow { what: SlowKind::Relists, count, late: many, p50_ns, normal_ns, part, container: None })
}

/// Are so many relists late, of this median? Most of them; or a fifth, when kubelet or runtime are throttled: a quota lets them
/// be late in bursts. Of those that take seconds few come in the time.
fn are_late(count: u64, late: u64, p50_ns: u64, snapshot: &Snapshot) -> bool {
    let enough = if p50_ns > SECOND_NS { FEW } else { MANY };
    let most = || late * 2 > count;
    let bursts = || late >= FEW && late * 5 >= count && is_throttled(snapshot);
    count >= enough && (most() || bursts())
}

/// What each kind took lately: those that have ended, and those that are open for longer than normal already.
fn lengths(snapshot: &Snapshot) -> BTreeMap<RecentKind, Vec<u64>> {
    let ended = snapshot.recent.iter().map(|recent| (recent.what.clone(), recent.took_ns.clone()));
    let mut all: BTreeMap<RecentKind, Vec<u64>> = ended.collect();
    let calls = snapshot.open.iter().filter(|call| call.span.layer() == Layer::KubeletCall);
    let calls = calls.filter_map(|call| Some((RecentKind::Calls(call.span.method()?), call.age_ns)));
    let programs =
        snapshot.processes.open.iter().filter_map(|open| Some((program(&open.kind)?, open.age_ns)));
    for (what, age_ns) in calls.chain(programs).chain(unanswered(snapshot)) {
        if normal(&what).is_some_and(|(normal_ns, _)| age_ns > normal_ns) {
            all.entry(what).or_default().push(age_ns);
        }
    }
    all
}

/// Shims that have not answered, each with the age of its oldest request. While a runc of its own runs, the time is not its own.
fn unanswered(snapshot: &Snapshot) -> impl Iterator<Item = (RecentKind, u64)> {
    let runs = |shim: u32| snapshot.processes.open.iter().any(|open| open.parent == Some(shim));
    let mut oldest: BTreeMap<u32, u64> = BTreeMap::new();
    let open = snapshot.messages.open.iter().filter(|open| open.should_end() && !open.fact.over);
    for open in open.filter(|open| open.fact.answerer > 0 && !runs(open.fact.answerer)) {
        let age_ns = oldest.entry(open.fact.answerer).or_default();
        *age_ns = open.age_ns.max(*age_ns);
    }
    oldest.into_iter().map(|(shim, age_ns)| (RecentKind::Shim(shim), age_ns))
}

/// Open programs that tell something by themselves: a runc may wait for its hook.
fn program(kind: &ProcessKind) -> Option<RecentKind> {
    match kind {
        ProcessKind::Cni { plugin, action } => {
            Some(RecentKind::Cni { plugin: plugin.clone(), action: action.clone() })
        }
        ProcessKind::Hook { program } => Some(RecentKind::Hook(program.clone())),
        _ => None,
    }
}

/// What this takes at most on a node that is merely busy, and how many have to tell; `None`: nothing can be said.
fn normal(what: &RecentKind) -> Option<(u64, u64)> {
    Some(match what {
        // Those of relists are told with them.
        RecentKind::Calls(method) if method.facts().needed_by_relist => return None,
        RecentKind::Calls(method) => {
            let takes = method.facts().takes;
            (takes.normal_ns()?, if takes == Takes::Memory { MANY } else { FEW })
        }
        RecentKind::Runc { sub, .. } => (runc_normal_ns(sub)?, MANY),
        RecentKind::Cni { .. } => (CNI_SLOW_NS, FEW),
        RecentKind::Hook(_) => (HOOK_SLOW_NS, FEW),
        RecentKind::Shim(_) => (SHIM_SLOW_NS, FEW),
    })
}

fn operation(what: &RecentKind, mut took: Vec<u64>, snapshot: &Snapshot) -> Option<Slow> {
    let (normal_ns, enough) = normal(what)?;
    took.sort_unstable();
    let (count, p50_ns) = (took.len() as u64, *took.get(took.len().saturating_sub(1) / 2)?);
    if count < enough || p50_ns <= normal_ns {
        return None;
    }
    let part = match what {
        RecentKind::Calls(method) => {
            let same = snapshot.requests.iter().map(RequestTree::root);
            largest(same.filter(|root| root.method() == Some(*method)), snapshot)
        }
        _ => None,
    };
    let late = took.iter().filter(|took| **took > normal_ns).count() as u64;
    let container = pod_of(what, snapshot);
    Some(Slow { what: SlowKind::Recent(what.clone()), count, late, p50_ns, normal_ns, part, container })
}

/// The pod whose shim this is.
fn pod_of(what: &RecentKind, snapshot: &Snapshot) -> Option<ContainerFact> {
    let RecentKind::Shim(pid) = what else { return None };
    let seen = snapshot.census.processes.iter().find(|seen| seen.fact.pid == *pid)?;
    seen.fact.container.clone()
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
