//! [`Governor`]: which programs pass the probes on Go's scheduler so often that these must come off.
//!
//! `runtime.gopark` and `runtime.execute` fire for every goroutine of a program, also for those in no call. In a quiet
//! kubelet that is some hundred hits a second; in one that contains an API server, or a runtime under thousands of
//! requests a second, it is the largest cost of all.

use std::collections::HashMap;

/// Readings closer together than this say nothing about a rate: the reader was held up and catches up.
const MIN_INTERVAL_NS: u64 = 500_000_000;
/// A program must be above its budget for so long: thirty pods that start at once, or a kubelet that starts, are a burst
/// (ten thousand hits a second for two or three), and pass.
const LASTING_NS: u64 = 5_000_000_000;

/// Watches the rate of each program.
#[derive(Debug)]
pub(crate) struct Governor {
    /// Hits per second that a program may have.
    budget: u64,
    programs: HashMap<u64, Program>,
}

/// The last reading of a program.
#[derive(Clone, Copy, Debug)]
struct Program {
    at_ns: u64,
    hits: u64,
    /// So long it has been above the budget, up to this reading.
    above_ns: u64,
}

/// A program whose probes on the scheduler must come off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverBudget {
    /// The caller's number of it.
    pub(crate) program: u64,
    /// Hits per second between the last two readings.
    pub(crate) hits_per_s: u64,
}

impl Governor {
    /// A governor that allows each program `budget` hits per second.
    pub(crate) fn new(budget: u64) -> Self {
        Self { budget, programs: HashMap::new() }
    }

    /// Hits per second that a program may have.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Takes the hits of each program since its probes are on, read at `now_ns` (CLOCK_MONOTONIC); gives the programs
    /// that have been above the budget for long enough. Each is given once, and forgotten.
    pub(crate) fn read(
        &mut self,
        now_ns: u64,
        hits: impl IntoIterator<Item = (u64, u64)>,
    ) -> Vec<OverBudget> {
        let readings = hits.into_iter();
        readings.filter_map(|(program, hits)| self.one(now_ns, program, hits)).collect()
    }

    fn one(&mut self, at_ns: u64, program: u64, hits: u64) -> Option<OverBudget> {
        let Some(last) = self.programs.get(&program).copied().filter(|last| last.hits <= hits) else {
            self.programs.insert(program, Program { at_ns, hits, above_ns: 0 });
            return None;
        };
        let ns = at_ns.saturating_sub(last.at_ns);
        if ns < MIN_INTERVAL_NS {
            return None;
        }
        let hits_per_s = per_second(hits - last.hits, ns);
        let above_ns = if hits_per_s > self.budget { last.above_ns.saturating_add(ns) } else { 0 };
        if above_ns < LASTING_NS {
            self.programs.insert(program, Program { at_ns, hits, above_ns });
            return None;
        }
        self.programs.remove(&program);
        Some(OverBudget { program, hits_per_s })
    }
}

fn per_second(hits: u64, ns: u64) -> u64 {
    u64::try_from(u128::from(hits) * 1_000_000_000 / u128::from(ns.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// The readings of one program, as (nanosecond, hits so far), with what each came to.
    fn readings(budget: u64, all: &[(u64, u64)]) -> Vec<Option<u64>> {
        let mut governor = Governor::new(budget);
        let read =
            |(at, hits): &(u64, u64)| governor.read(*at, [(3, *hits)]).first().map(|over| over.hits_per_s);
        all.iter().map(read).collect()
    }

    /// Five seconds above the budget are enough, however often it is read; the budget itself is allowed.
    #[test]
    fn lasting_load_trips_it() {
        let each_second: Vec<_> = (1..=6).map(|second| (second * S, second * 7000)).collect();
        assert_eq!(readings(5000, &each_second), [None, None, None, None, None, Some(7000)]);
        assert_eq!(readings(7000, &each_second), [None; 6]);
        assert_eq!(readings(5000, &[(S, 0), (6 * S, 35_000)]), [None, Some(7000)]);
    }

    /// The start of a kubelet passes, however high it is, and so do bursts that do not follow each other.
    #[test]
    fn bursts_pass() {
        let bursts = [0, 90_000, 180_000, 270_000, 280_000, 280_100, 370_000, 460_000, 550_000, 640_000];
        let all: Vec<_> = (1..).zip(bursts).map(|(second, hits)| (second * S, hits)).collect();
        assert_eq!(readings(5000, &all), [None; 10]);
    }

    /// Readings that crowd together after a delay are no seconds of their own: 6,000 hits in two seconds are 3,000/s.
    #[test]
    fn crowded_readings_are_no_rate() {
        let pairs = (1..20).flat_map(|n| [(2 * n * S, n * 6000), (2 * n * S + 1, n * 6000 + 3000)]);
        let all: Vec<_> = pairs.collect();
        assert!(readings(5000, &all).iter().all(Option::is_none));
        assert_eq!(readings(0, &[(S, 0), (S, 9), (S, 99)]), [None; 3], "no time has passed");
    }

    /// Hits from before its first reading do not count, nor does a counter that began anew.
    #[test]
    fn the_first_reading_is_the_base() {
        assert_eq!(readings(5000, &[(S, 1_000_000), (2 * S, 1_000_010)]), [None; 2]);
        let anew = [(S, 9_000), (4 * S, 36_000), (5 * S, 10), (8 * S, 27_010), (10 * S, 45_010)];
        assert_eq!(readings(5000, &anew), [None, None, None, None, Some(9000)]);
    }

    /// Each program has a budget of its own, and one that was given is not given again unless it is above it anew.
    #[test]
    fn programs_are_apart() {
        let mut governor = Governor::new(100);
        let mut tripped = Vec::new();
        for reading in 1..=6 {
            let hits = [(1, 3 * reading * 90), (2, 3 * reading * 200)];
            tripped.push(governor.read(3 * reading * S, hits));
        }
        let one = OverBudget { program: 2, hits_per_s: 200 };
        assert_eq!(tripped, [vec![], vec![], vec![one], vec![], vec![], vec![one]]);
    }
}
