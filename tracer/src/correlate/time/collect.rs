//! Relists → their table, each as soon as it is complete, before what it consists of is forgotten.

use std::{cmp::Reverse, collections::HashSet};

use super::{RequestTime, TimeTable};
use crate::{
    correlate::{Caller, Correlator, Relist, RequestTree, parks::Names, relist::Done},
    decode::MonoNs,
    input::Layer,
    span::SpanId,
};

/// Relists are added in batches of so many: each batch looks once through all recent calls.
const BATCH: usize = 32;

impl Correlator {
    /// Adds relists of which no record is missing any more to the table, when there are enough of them.
    pub(in crate::correlate) fn spend_relists(&mut self) {
        let settled = self.newest.minus(self.limits.reorder_ns);
        let due = |done: &&Done| !done.spent && done.call.end <= settled;
        if self.relists.done().filter(due).count() < BATCH {
            return;
        }
        let batch: Vec<Done> = self.relists.done().filter(due).cloned().collect();
        self.spend(&batch);
        self.relists.spent_until(settled);
    }

    /// Adds these relists to the table.
    pub(in crate::correlate) fn spend(&mut self, batch: &[Done]) {
        let all: Vec<&Done> = batch.iter().filter(|done| !done.spent).collect();
        let Some(scope) = self.scope(&all, &[]) else { return };
        let (mut joined, mut names) = (self.joined(Some(&scope)), Names::default());
        let mut table = std::mem::take(&mut self.relist_time);
        for done in all {
            let Some(mut relist) = self.finished_relist(&done.call, &done.parts, self.newest) else {
                continue;
            };
            relist.tree.graft(&mut joined.answers);
            self.parks.attach(&mut relist.tree.root, &mut names);
            table.add(relist.root(), self.newest);
        }
        self.relist_time = table;
    }

    /// The table of all relists: those that have been added, and these of which that is still to come.
    pub(in crate::correlate) fn relist_time_at(&self, relists: &[Relist], now: MonoNs) -> TimeTable {
        let spent = self.relists.done().filter(|done| done.spent);
        let spent: HashSet<SpanId> = spent.map(|done| done.call.id().into()).collect();
        let mut table = self.relist_time.clone();
        let fresh = relists.iter().map(Relist::root).filter(|root| !spent.contains(&root.id));
        fresh.for_each(|root| table.add(root, now));
        table.sort();
        table
    }
}

/// The table of the operation with the longest request; those of plegtrace itself, and such as are open by design, do
/// not count.
pub(in crate::correlate) fn request_time(requests: &[RequestTree], now: MonoNs) -> Option<RequestTime> {
    let of_node = |request: &&RequestTree| {
        let root = request.root();
        let own = root.layer() == Layer::Handler && request.caller == Caller::Own;
        !own && !root.is_long_lived()
    };
    let all = || requests.iter().filter(of_node).map(RequestTree::root);
    let slowest = all().max_by_key(|root| (root.duration_ns(now), Reverse(root.id)))?;
    let operation = slowest.operation().to_owned();
    let table = TimeTable::of(all().filter(|root| root.operation() == operation), now);
    Some(RequestTime { operation, table })
}
