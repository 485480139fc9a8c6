//! [`Needed`]: what of the past is not given up by age.

use crate::decode::{Call, MonoNs};

/// What of the past is needed still.
#[derive(Debug)]
pub(super) struct Needed {
    /// What ended then, or later.
    since: MonoNs,
    /// What ran in one of these intervals; sorted, and none touches another.
    relists: Vec<(MonoNs, MonoNs)>,
}

impl Needed {
    pub(super) fn new(since: MonoNs, relists: impl Iterator<Item = (MonoNs, MonoNs)>) -> Self {
        let mut all: Vec<(MonoNs, MonoNs)> = relists.filter(|(start, _)| *start < since).collect();
        all.sort_unstable();
        let mut relists: Vec<(MonoNs, MonoNs)> = Vec::new();
        for (start, end) in all {
            match relists.last_mut() {
                Some(last) if start <= last.1 => last.1 = end.max(last.1),
                _ => relists.push((start, end)),
            }
        }
        Self { since, relists }
    }

    /// Is something that ran from `start` to `end` needed?
    pub(super) fn wants(&self, start: MonoNs, end: MonoNs) -> bool {
        let first = self.relists.partition_point(|relist| relist.1 < start);
        end >= self.since || self.relists.get(first).is_some_and(|relist| relist.0 <= end)
    }

    /// Is this call needed?
    pub(super) fn wants_call(&self, call: &Call) -> bool {
        self.wants(call.start, call.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(since: u64, relists: &[(u64, u64)]) -> impl Fn(u64, u64) -> bool {
        let relists = relists.iter().map(|(start, end)| (MonoNs(*start), MonoNs(*end)));
        let needed = Needed::new(MonoNs(since), relists);
        move |start, end| needed.wants(MonoNs(start), MonoNs(end))
    }

    /// What is young, and what ran beside a relist, however little of it.
    #[test]
    fn young_or_beside_a_relist() {
        let wants = needed(1000, &[(300, 400), (100, 200), (150, 250), (900, 1100)]);
        assert!(wants(990, 1000) && wants(0, 2000));
        assert!(wants(90, 100) && wants(220, 230) && wants(400, 401) && wants(260, 310));
        assert!(!wants(0, 99) && !wants(251, 299) && !wants(401, 899));
    }
}
