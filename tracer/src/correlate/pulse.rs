//! [`Pulse`]: what an observation asks each second. It costs what is open now, not what is kept: no tree, no table.

use std::collections::BTreeMap;

use super::{
    Correlator, LastList, ListOutcome, TracedState,
    inflight::OpenEntry,
    thresholds::{LAST_LIST_NS, RELIST_OPEN_NS},
};
use crate::{
    decode::MonoNs,
    input::{Component, Layer},
};

/// The node in a few figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Relists that have been seen, those that are open included.
    pub relists: u64,
    /// Calls that are open.
    pub open: u64,
    /// Age of the oldest of them that is not made to last, nanoseconds; 0 when there is none.
    pub oldest_ns: u64,
    /// The start of the last relist that got its list, as far as the last relist tells.
    pub last_list: LastList,
    /// Nothing that is open is old, and lists come: a [`Snapshot`](super::Snapshot) would show nothing new. What only the
    /// census finds is not in it.
    pub calm: bool,
}

/// Calls of one layer and operation that have not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightCalls {
    /// Where they stand in the chain.
    pub layer: Layer,
    /// What they are calls of.
    pub operation: String,
    /// How many.
    pub count: u64,
    /// The start of the oldest.
    pub oldest: MonoNs,
}

impl Correlator {
    /// What is in flight, by layer and operation; what is made to last is left out. It costs what is open.
    #[must_use]
    pub fn calls_in_flight(&self) -> Vec<InFlightCalls> {
        let mut rows: BTreeMap<(Layer, &str), (u64, MonoNs)> = BTreeMap::new();
        for entry in self.open.entries().filter(|entry| entry.is_open()) {
            let Some(hook) = self.node.hooks.get(&entry.fact.hook) else { continue };
            if hook.long_lived || hook.layer == Layer::Mark {
                continue;
            }
            let row = rows.entry((hook.layer, &hook.operation)).or_insert((0, entry.start()));
            *row = (row.0 + 1, row.1.min(entry.start()));
        }
        let call = |((layer, operation), (count, oldest)): ((Layer, &str), _)| InFlightCalls {
            layer,
            operation: operation.to_owned(),
            count,
            oldest,
        };
        rows.into_iter().map(call).collect()
    }

    /// The pulse at `now`, which is not before the last event.
    #[must_use]
    pub fn pulse(&self, now: MonoNs) -> Pulse {
        let open = self.open.entries().filter(|entry| entry.is_open());
        let ages = open.filter_map(|entry| Some((self.is_to_last(entry)?, now.since(entry.start()))));
        let (mut count, mut oldest_ns) = (0, 0);
        for (lasts, age) in ages {
            count += 1;
            oldest_ns = if lasts { oldest_ns } else { age.max(oldest_ns) };
        }
        let last_list = self.latest_list();
        let late_process = self.processes.any_late(now, self.node.observing_since());
        let calm = oldest_ns < RELIST_OPEN_NS
            && !late_process
            && last_list.is_some_and(|at| now.since(at) <= LAST_LIST_NS)
            && !self.is_down();
        let last_list = match (last_list.max(self.census.last_list), self.node.relists_since) {
            (Some(at), _) => LastList::At(at),
            (None, Some(since)) => LastList::NotSince(since),
            (None, None) => LastList::Untraced,
        };
        let open_relists = self.open_relists().len() as u64;
        Pulse { relists: self.relists.count + open_relists, open: count, oldest_ns, last_list, calm }
    }

    /// Is this call made to last, like a stream of events? `None` for a call of a hook that nobody announced.
    pub(super) fn is_to_last(&self, entry: &OpenEntry) -> Option<bool> {
        let hook = self.node.hooks.get(&entry.fact.hook)?;
        Some(hook.long_lived || hook.layer == Layer::Mark)
    }

    /// The start of the last relist, when that got its list.
    fn latest_list(&self) -> Option<MonoNs> {
        let last = self.relists.done().last()?;
        let relist = self.finished_relist(&last.call, &last.parts, last.call.end)?;
        (relist.list == ListOutcome::Ok).then_some(last.call.start)
    }

    /// Has a kubelet or runtime gone without a successor?
    fn is_down(&self) -> bool {
        let is_daemon =
            |component: Component| component == Component::Kubelet || component.role().is_runtime();
        let targets = || self.node.targets.values().filter(|target| is_daemon(target.fact.component));
        let live = |component| {
            targets().any(|other| other.fact.component == component && other.state == TracedState::Live)
        };
        targets().any(|target| target.state != TracedState::Live && !live(target.fact.component))
    }
}
