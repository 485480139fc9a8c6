//! [`UnkillableSeen`]: processes of containers that SIGKILL does not end, and since when every look found them in the same call.

use std::collections::BTreeMap;

use super::{CensusState, blocked::is_same_call};
use crate::{
    decode::MonoNs,
    input::{CensusFact, Unkillable, Weight},
};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnkillableSeen {
    /// As the last look found it.
    pub fact: Unkillable,
    /// Since when every look found it so: the first one.
    pub since: MonoNs,
}

/// All of them, by process.
pub(super) type All = BTreeMap<u32, UnkillableSeen>;

impl CensusState {
    /// Those of a new round. One that was cut may have missed some.
    pub(super) fn unkillable(&mut self, round: &CensusFact) {
        let mut before = std::mem::take(&mut self.unkillable);
        for fact in &round.unkillable {
            let same = before.remove(&fact.pid).filter(|before| is_same(&before.fact, fact));
            let since = same.map_or(MonoNs(fact.at_ns), |before| before.since);
            self.unkillable.insert(fact.pid, UnkillableSeen { fact: fact.clone(), since });
        }
        if round.cut {
            before.into_iter().for_each(|(pid, old)| {
                self.unkillable.entry(pid).or_insert(old);
            });
        }
    }
}

/// What they take, bytes.
pub(super) fn bytes(all: &All) -> usize {
    Weight::sum(all.values().map(|seen| &seen.fact))
}

fn is_same(a: &Unkillable, b: &Unkillable) -> bool {
    a.started_ns == b.started_ns && a.park.tid == b.park.tid && is_same_call(&a.park, &b.park)
}
