//! [`Census`]: the last complete round of the census.

use std::{collections::BTreeMap, mem::take, sync::Arc};

use crate::input::{CensusFact, GoroutinesFact, ProcessFact};

/// What one round of the census told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Census {
    /// Processes by pid.
    pub processes: BTreeMap<u32, ProcessFact>,
    /// Goroutines by process.
    pub goroutines: BTreeMap<u32, GoroutinesFact>,
    /// The round itself: when, who did not answer, which containers there are.
    pub round: CensusFact,
}

/// Collects a round; what it told counts when it is complete.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    coming: Census,
    last: Option<Arc<Census>>,
}

impl Rounds {
    /// Takes a process; returns 1 when there was no room.
    pub(super) fn process(&mut self, fact: ProcessFact, bound: usize) -> u64 {
        insert(&mut self.coming.processes, fact.pid, fact, bound)
    }

    /// Takes goroutines; returns 1 when there was no room.
    pub(super) fn goroutines(&mut self, fact: GoroutinesFact, bound: usize) -> u64 {
        insert(&mut self.coming.goroutines, fact.pid, fact, bound)
    }

    /// The round is complete.
    pub(super) fn complete(&mut self, round: CensusFact) {
        self.last = Some(Arc::new(Census { round, ..take(&mut self.coming) }));
    }

    /// The last complete round.
    pub(super) fn last(&self) -> Option<Arc<Census>> {
        self.last.clone()
    }
}

fn insert<T>(map: &mut BTreeMap<u32, T>, pid: u32, fact: T, bound: usize) -> u64 {
    if map.len() >= bound && !map.contains_key(&pid) {
        return 1;
    }
    map.insert(pid, fact);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goroutines(pid: u32) -> GoroutinesFact {
        let text = r#"{"at_ns":1,"took_ns":1,"component":"kubelet","go_version":"","total":0,"unread":0,
            "groups":[],"groups_left_out":0,"pid":0}"#;
        GoroutinesFact { pid, ..serde_json::from_str(text).unwrap() }
    }

    /// A round counts when it is complete, and replaces the one before it whole; its size is bounded.
    #[test]
    fn rounds_replace_each_other() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.goroutines(goroutines(1), 2), 0);
        assert_eq!(rounds.last(), None);
        rounds.complete(CensusFact { processes: 1, ..CensusFact::default() });
        let dropped: u64 = [2, 3, 4, 3].map(|pid| rounds.goroutines(goroutines(pid), 2)).iter().sum();
        assert_eq!(dropped, 1);
        assert_eq!(rounds.last().unwrap().goroutines.keys().collect::<Vec<_>>(), [&1]);
        rounds.complete(CensusFact::default());
        assert_eq!(rounds.last().unwrap().goroutines.keys().collect::<Vec<_>>(), [&2, &3]);
    }
}
