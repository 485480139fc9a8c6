//! [`Pulse`]: what an observation asks each second. It costs what is open now, not what is kept: no tree, no table.

use std::collections::BTreeMap;

use super::{
    Correlator, LastList, ListOutcome, TracedState,
    inflight::OpenEntry,
    thresholds::{ABANDONED_AFTER_NS, LAST_LIST_NS, RELIST_OPEN_NS, stuck_after_ns},
};
use crate::{
    decode::MonoNs,
    input::{Component, HookFact, Layer},
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
    /// So long until one of them, or a program of the node that runs, has lasted longer than it should, nanoseconds.
    pub until_late_ns: Option<u64>,
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

/// Open handlers and open calls of the kubelet, by operation: is there a handler whose caller may have given up?
#[derive(Debug, Default)]
struct Callers<'a>(BTreeMap<&'a str, [u64; 3]>);

impl<'a> Callers<'a> {
    /// Takes an open call of a hook, and its age.
    fn add(&mut self, hook: Option<&'a HookFact>, age_ns: u64) {
        let Some(hook) = hook else { return };
        let kind = match hook.layer {
            Layer::Handler if age_ns >= ABANDONED_AFTER_NS => 0,
            Layer::KubeletCall => 1,
            // Most of them are inside of a counted call.
            Layer::KubeletClient => 2,
            _ => return,
        };
        self.0.entry(&hook.operation).or_default()[kind] += 1;
    }

    fn may_have_left(&self) -> bool {
        self.0.values().any(|[handlers, calls, clients]| handlers > calls.max(clients))
    }
}

/// How long until a call of this hook is late.
fn until_late(hook: &HookFact, age_ns: u64) -> Option<u64> {
    let limit = match hook.layer {
        Layer::Relist | Layer::PodRelist => Some(RELIST_OPEN_NS),
        Layer::Handler => stuck_after_ns(&hook.operation),
        _ => None,
    };
    limit?.checked_sub(age_ns)
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
        let ages = open.filter_map(|entry| Some((entry, self.is_to_last(entry)?, now.since(entry.start()))));
        let (mut count, mut oldest_ns, mut callers) = (0, 0, Callers::default());
        let mut until_late_ns = self.processes.until_late(now, self.node.observing_since());
        for (entry, lasts, age) in ages {
            count += 1;
            if !lasts {
                oldest_ns = age.max(oldest_ns);
                let hook = self.node.hooks.get(&entry.fact.hook).map(AsRef::as_ref);
                until_late_ns =
                    until_late_ns.into_iter().chain(hook.and_then(|hook| until_late(hook, age))).min();
                callers.add(hook, age);
            }
        }
        let last_list = self.latest_list();
        let late_process = self.processes.any_late(now, self.node.observing_since());
        let calm = oldest_ns < RELIST_OPEN_NS
            && !callers.may_have_left()
            && !late_process
            && last_list.is_some_and(|at| now.since(at) <= LAST_LIST_NS)
            && !self.is_down();
        let last_list = self.last_list(last_list);
        let open_relists = self.open_relists().len() as u64;
        let relists = self.relists.count + open_relists;
        Pulse { relists, open: count, oldest_ns, until_late_ns, last_list, calm }
    }

    /// Is this call made to last, like a stream of events? `None` for a call of a hook that nobody announced.
    pub(super) fn is_to_last(&self, entry: &OpenEntry) -> Option<bool> {
        let hook = self.node.hooks.get(&entry.fact.hook)?;
        Some(hook.long_lived || hook.layer == Layer::Mark)
    }

    /// The start of the last relist of the kubelet that runs, when that got its list.
    fn latest_list(&self) -> Option<MonoNs> {
        let last = self.relists.done().filter(|done| self.node.is_kubelet_of_now(done.call.tgid)).last()?;
        let relist = self.finished_relist(&last.call, &last.parts, last.call.end)?;
        (relist.list == ListOutcome::Ok && relist.is_of(self.node.relists_since)).then_some(last.call.start)
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
