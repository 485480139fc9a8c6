//! [`PutOff`]: what is not probed now and is tried again: because attaching would stop the node, or because it failed.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Nobody looks more often whether it has become possible.
const AGAIN: Duration = Duration::from_secs(5);
/// Who fails again and again is tried this often at last.
const SELDOM: Duration = Duration::from_secs(600);

/// When something is tried next, and how long was waited for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Next {
    at: Instant,
    pause: Duration,
}

/// By `K`: the place in the plan's `binaries`, or a process.
#[derive(Debug)]
pub(super) struct PutOff<K> {
    next: BTreeMap<K, Next>,
}

impl<K> Default for PutOff<K> {
    fn default() -> Self {
        Self { next: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> PutOff<K> {
    /// Not now: it is tried again soon, however often. Says whether that is news.
    pub(super) fn add(&mut self, key: K, now: Instant) -> bool {
        self.next.insert(key, Next { at: now + AGAIN, pause: AGAIN }).is_none()
    }

    /// It has failed: each time the pause is twice as long, up to ten minutes. Says whether that is news.
    pub(super) fn fail(&mut self, key: K, now: Instant) -> bool {
        let last = self.next.get(&key);
        let pause = last.map_or(AGAIN, |last| (last.pause * 2).min(SELDOM));
        self.next.insert(key, Next { at: now + pause, pause }).is_none()
    }

    /// Is it one that had to wait?
    pub(super) fn has(&self, key: K) -> bool {
        self.next.contains_key(&key)
    }

    /// Has it to wait still?
    pub(super) fn waits(&self, key: K, now: Instant) -> bool {
        self.next.get(&key).is_some_and(|next| now < next.at)
    }

    /// It is probed, or nobody wants it any more.
    pub(super) fn forget(&mut self, key: K) {
        self.next.remove(&key);
    }

    /// Forgets all others.
    pub(super) fn keep(&mut self, keep: impl Fn(K) -> bool) {
        self.next.retain(|key, _| keep(*key));
    }

    /// Those to be tried again, each once; who does not fail again is forgotten by whoever tries.
    pub(super) fn due(&mut self, now: Instant) -> Vec<K> {
        let due = self.next.iter_mut().filter(|(_, next)| now >= next.at);
        due.map(|(key, next)| {
            next.at = now + next.pause;
            *key
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

    /// Who fails for ever is tried for ever, and ever less often, but not for less than once in ten minutes.
    #[test]
    fn failures_are_tried_less_often() {
        let (mut all, mut now) = (PutOff::default(), Instant::now());
        let (begun, mut tries) = (now, 0);
        assert!(all.fail(3, now) && !all.due(now).contains(&3));
        while now < begun + Duration::from_secs(24 * 3600) {
            now += Duration::from_secs(1);
            for _ in all.due(now) {
                tries += 1;
                assert!(!all.fail(3, now), "said once");
                assert!(all.waits(3, now + AGAIN));
            }
        }
        assert!((144..=152).contains(&tries), "{tries}");
        all.keep(|_| false);
        assert!(!all.has(3));
    }
}
