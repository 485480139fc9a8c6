//! [`Growth`]: when each loss was last seen to grow. A loss counts against a verdict in the window in which it happened,
//! not for as long as plegtrace runs.

use std::collections::HashMap;

use super::limits::Limits;
use crate::{decode::MonoNs, input::LossCount};

/// The last known count of each loss, and when it became that.
#[derive(Debug, Default)]
pub(super) struct Growth {
    known: HashMap<(String, String), (u64, MonoNs)>,
}

impl Growth {
    /// The counts at a moment.
    pub(super) fn note<'a>(
        &mut self,
        at: MonoNs,
        losses: impl Iterator<Item = &'a LossCount>,
        limits: &Limits,
    ) {
        for loss in losses {
            let key = (loss.stage.clone(), loss.reason.clone());
            let known = self.known.get(&key).map(|(count, _)| *count);
            // What is not remembered has always just happened.
            let fits = known.is_some() || self.known.len() < limits.facts;
            if fits && known != Some(loss.count) {
                self.known.insert(key, (loss.count, at));
            }
        }
    }

    /// When a loss last grew, as far as is known at `now`.
    pub(super) fn last(&self, loss: &LossCount, now: MonoNs) -> MonoNs {
        let known = self.known.get(&(loss.stage.clone(), loss.reason.clone()));
        known.filter(|(count, _)| *count == loss.count).map_or(now, |(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(count: u64) -> LossCount {
        let (stage, reason) = ("kernel".to_owned(), "ring_full".to_owned());
        LossCount { stage, reason, sentence: String::new(), count, is_loss: true }
    }

    /// A count that stays is as old as its last change; one that was not noted yet is of now.
    #[test]
    fn only_changes_count() {
        let (mut growth, limits) = (Growth::default(), Limits::default());
        for (at, count) in [(10, 1), (20, 3), (30, 3), (40, 3)] {
            growth.note(MonoNs(at), [loss(count)].iter(), &limits);
        }
        assert_eq!(growth.last(&loss(3), MonoNs(99)), MonoNs(20));
        assert_eq!(growth.last(&loss(4), MonoNs(99)), MonoNs(99));
    }

    /// What does not fit is never taken for old.
    #[test]
    fn bounded() {
        let mut growth = Growth::default();
        growth.note(MonoNs(1), [loss(1)].iter(), &Limits { facts: 0, ..Limits::default() });
        assert_eq!(growth.last(&loss(1), MonoNs(9)), MonoNs(9));
    }
}
