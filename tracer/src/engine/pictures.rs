//! [`Pictures`]: when the whole picture of the node is drawn. It costs what is kept, so a calm node is looked at whole
//! only now and then, and one that has been sick for long less and less often.

use std::time::{Duration, Instant};

use crate::correlate::Pulse;

/// From one picture to the next while the pulse is calm: half as long as it has been calm, within bounds. A
/// one-shot needs a recent one; in an observation of months the pulse, and news of the census, say when to look.
const CALM: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(120)];
/// For so long what is not calm is looked at each second: a verdict is to come soon.
const EAGER: Duration = Duration::from_secs(30);
/// From one picture to the next after that.
const PATIENT: Duration = Duration::from_secs(5);

/// A node that has been calm for so long rests: its counters are read less often too.
const RESTS: Duration = Duration::from_secs(20);

/// When the last picture was drawn, and since when the node has not been calm.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    last: Option<Instant>,
    restless_since: Option<Instant>,
    calm_since: Option<Instant>,
    /// When something that is open will be late.
    late_at: Option<Instant>,
    /// The census has found something since the last picture.
    fresh: bool,
    /// The last picture showed something that may be stuck.
    suspicious: bool,
}

impl Pictures {
    /// The census has found something.
    pub(super) fn something_new(&mut self) {
        self.fresh = true;
    }

    /// A picture was drawn: does something look stuck in it?
    pub(super) fn showed(&mut self, suspicious: bool) {
        self.suspicious = suspicious;
    }

    /// Did the last picture show something that may be stuck?
    pub(super) fn is_suspicious(&self) -> bool {
        self.suspicious
    }

    /// Has the node been calm for a while?
    pub(super) fn is_at_rest(&self) -> bool {
        self.calm_since.is_some_and(|since| since.elapsed() >= RESTS)
    }

    /// Is it time for another picture?
    pub(super) fn is_due(&mut self, pulse: &Pulse) -> bool {
        self.is_due_at(pulse, Instant::now())
    }

    fn is_due_at(&mut self, pulse: &Pulse, now: Instant) -> bool {
        let pause = if pulse.calm && !self.suspicious {
            self.restless_since = None;
            let since = *self.calm_since.get_or_insert(now);
            ((now - since) / 2).clamp(CALM[0], CALM[1])
        } else {
            self.calm_since = None;
            let since = *self.restless_since.get_or_insert(now);
            if now - since < EAGER { Duration::ZERO } else { PATIENT }
        };
        let late = self.late_at.is_some_and(|at| now >= at);
        self.late_at = pulse.until_late_ns.map(|left| now + Duration::from_nanos(left));
        let due = std::mem::take(&mut self.fresh) || late || self.last.is_none_or(|last| now - last >= pause);
        if due {
            self.last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::LastList;

    fn pulse(calm: bool) -> Pulse {
        Pulse { relists: 0, open: 0, oldest_ns: 0, until_late_ns: None, last_list: LastList::Untraced, calm }
    }

    /// Seconds at which a picture is drawn, one question a second.
    fn drawn(seconds: u64, calm: impl Fn(u64) -> bool) -> Vec<u64> {
        let (mut pictures, began) = (Pictures::default(), Instant::now());
        let due = |n: &u64| pictures.is_due_at(&pulse(calm(*n)), began + Duration::from_secs(*n));
        (0..seconds).filter(due).collect()
    }

    /// A calm node is drawn now and then, after minutes every two; one that is not each second at first, then less
    /// often, and each second again when it was calm in between.
    #[test]
    fn seldom_while_calm() {
        assert_eq!(drawn(600, |_| true), [0, 5, 10, 20, 40, 80, 160, 280, 400, 520]);
        assert_eq!(drawn(4, |_| false), [0, 1, 2, 3]);
        let long = drawn(60, |_| false);
        assert_eq!(long.iter().filter(|n| **n >= 30).collect::<Vec<_>>(), [&34, &39, &44, &49, &54, &59]);
        assert!(drawn(60, |n| n == 50).ends_with(&[51, 52, 53, 54, 55, 56, 57, 58, 59]));
    }

    /// A calm pulse is not enough where the last picture showed something: the census sees what no call is open for.
    #[test]
    fn suspicion_lasts() {
        let (mut pictures, now) = (Pictures::default(), Instant::now());
        let mut due = |n| pictures.is_due_at(&pulse(true), now + Duration::from_secs(n));
        assert_eq!([0, 1].map(&mut due), [true, false]);
        pictures.showed(true);
        let mut due = |n| pictures.is_due_at(&pulse(true), now + Duration::from_secs(n));
        assert_eq!([2, 3].map(&mut due), [true, true]);
        pictures.showed(false);
        assert!(!pictures.is_due_at(&pulse(true), now + Duration::from_secs(4)));
    }

    /// What has become late is looked at, once.
    #[test]
    fn lateness_is_looked_at() {
        let (mut pictures, now) = (Pictures::default(), Instant::now());
        let mut due = |seconds, left: Option<u64>| {
            let pulse = Pulse { until_late_ns: left.map(|left| left * 1_000_000_000), ..pulse(true) };
            pictures.is_due_at(&pulse, now + Duration::from_secs(seconds))
        };
        assert_eq!(
            [due(0, Some(2)), due(1, Some(1)), due(2, None), due(3, None)],
            [true, false, true, false]
        );
    }

    /// What the census found is looked at at once.
    #[test]
    fn news_are_looked_at() {
        let (mut pictures, now) = (Pictures::default(), Instant::now());
        assert!(pictures.is_due_at(&pulse(true), now));
        assert!(!pictures.is_due_at(&pulse(true), now));
        pictures.something_new();
        assert!(pictures.is_due_at(&pulse(true), now));
        assert!(!pictures.is_due_at(&pulse(true), now));
    }
}
