//! [`PutOff`]: programs that are not probed now, because that would stop the node, and are tried again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Nobody looks more often whether it has become possible.
const AGAIN: Duration = Duration::from_secs(5);

/// By their places in the plan's `binaries`, since when.
#[derive(Debug, Default)]
pub(super) struct PutOff {
    since: BTreeMap<usize, Instant>,
}

impl PutOff {
    /// Not now; says whether that is news.
    pub(super) fn add(&mut self, place: usize, now: Instant) -> bool {
        self.since.insert(place, now).is_none()
    }

    /// Is it one that had to wait?
    pub(super) fn has(&self, place: usize) -> bool {
        self.since.contains_key(&place)
    }

    /// It is probed, or nobody wants it any more.
    pub(super) fn forget(&mut self, place: usize) {
        self.since.remove(&place);
    }

    /// Those to be tried again, each once.
    pub(super) fn due(&mut self, now: Instant) -> Vec<usize> {
        let due = self.since.iter_mut().filter(|(_, since)| now.duration_since(**since) >= AGAIN);
        due.map(|(place, since)| {
            *since = now;
            *place
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tried_again_now_and_then() {
        let (mut all, begun) = (PutOff::default(), Instant::now());
        assert!(all.add(3, begun) && !all.add(3, begun), "said once");
        assert!(all.due(begun + AGAIN / 2).is_empty());
        assert_eq!(all.due(begun + AGAIN), [3]);
        assert!(all.due(begun + AGAIN).is_empty() && all.has(3));
        assert_eq!(all.due(begun + AGAIN * 2), [3]);
        all.forget(3);
        assert!(!all.has(3) && all.due(begun + AGAIN * 9).is_empty());
    }
}
