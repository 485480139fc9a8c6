//! [`Latency`]: durations of one kind of call, with percentiles, exact count, sum and maximum.

use hdrhistogram::Histogram;
use plegtrace_common::hist::{BUCKETS, bucket};

/// So many durations are kept as they are: percentiles are exact, and rare operations cost little memory.
const EXACT: usize = 512;
/// With more of them percentiles are right to three digits, but never to less than [`UNIT_NS`].
const DIGITS: u8 = 3;
/// What histograms do not tell apart: half the memory of those that do.
const UNIT_NS: u64 = 512;

#[derive(Clone, Debug)]
enum Values {
    Few(Vec<u64>),
    Many(Histogram<u32>),
}

/// Durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    values: Values,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
    buckets: [u64; BUCKETS],
}

impl Default for Latency {
    fn default() -> Self {
        Self { values: Values::Few(Vec::new()), count: 0, sum_ns: 0, max_ns: 0, buckets: [0; BUCKETS] }
    }
}

impl Latency {
    /// Adds one duration.
    pub fn record(&mut self, ns: u64) {
        match &mut self.values {
            Values::Few(values) if values.len() < EXACT => values.push(ns),
            Values::Few(values) => {
                let mut hist = histogram();
                values.iter().chain([&ns]).for_each(|ns| add(&mut hist, *ns));
                self.values = Values::Many(hist);
            }
            Values::Many(hist) => add(hist, ns),
        }
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
        self.buckets[bucket(ns)] += 1;
    }

    /// Adds all durations of another one.
    pub fn add(&mut self, other: &Self) {
        let hist = match &other.values {
            Values::Few(values) => return values.iter().for_each(|ns| self.record(*ns)),
            Values::Many(hist) => hist,
        };
        let mut both = hist.clone();
        match &self.values {
            Values::Few(values) => values.iter().for_each(|ns| add(&mut both, *ns)),
            Values::Many(mine) => both.add(mine).expect("both grow with their largest value"),
        }
        self.values = Values::Many(both);
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.buckets.iter_mut().zip(other.buckets).for_each(|(mine, others)| *mine += others);
    }

    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The longest; 0 when there is none.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The duration that a share `q` (0 to 1) of all does not exceed; `None` when there is none.
    #[must_use]
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        match &self.values {
            Values::Few(values) => nearest_rank(values, q),
            Values::Many(hist) => Some(hist.value_at_quantile(q).min(self.max_ns)),
        }
    }

    /// How many fall into each power of two, see [`bucket`].
    #[must_use]
    pub fn buckets(&self) -> &[u64; BUCKETS] {
        &self.buckets
    }
}

/// An empty one, which grows with its largest value.
fn histogram() -> Histogram<u32> {
    let mut hist = Histogram::new_with_bounds(UNIT_NS, 2 * UNIT_NS, DIGITS).expect("3 digits are allowed");
    hist.auto(true);
    hist
}

/// Adds to a histogram that grows with its largest value; above 292 years it keeps 292 years.
fn add(hist: &mut Histogram<u32>, ns: u64) {
    let value = ns.min(i64::MAX.unsigned_abs());
    if hist.record(value).is_err() {
        hist.saturating_record(value);
    }
}

/// The smallest value that at least a share `q` of all does not exceed.
fn nearest_rank(values: &[u64], q: f64) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (q.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few durations give exact percentiles.
    #[test]
    fn few_are_exact() {
        let mut latency = Latency::default();
        (1..=100u64).rev().for_each(|n| latency.record(n * 1_000_003));
        let quantiles = [0.0, 0.5, 0.9, 0.99, 1.0].map(|q| latency.quantile_ns(q).unwrap() / 1_000_003);
        assert_eq!(quantiles, [1, 50, 90, 99, 100]);
    }

    /// Percentiles of many are within a thousandth; count, sum and maximum are exact.
    #[test]
    fn figures() {
        let mut latency = Latency::default();
        for n in 1..=1000u64 {
            latency.record(n * 1_000_000);
        }
        assert_eq!(
            (latency.count(), latency.sum_ns(), latency.max_ns()),
            (1000, 500_500_000_000, 1_000_000_000)
        );
        let p99 = latency.quantile_ns(0.99).unwrap();
        assert!((989_000_000..=991_000_000).contains(&p99), "{p99}");
        assert_eq!(latency.quantile_ns(1.0), Some(1_000_000_000));
    }

    /// Two that are added are as if all had been recorded in one, however many each has.
    #[test]
    fn sums_of_two() {
        for (few, many) in [(3, 5), (3, 2000), (2000, 3), (1500, 2000)] {
            let of = |numbers: std::ops::Range<u64>| {
                let mut latency = Latency::default();
                numbers.for_each(|n| latency.record(n * 1_000_000));
                latency
            };
            let (mut sum, all) = (of(0..few), of(0..few + many));
            sum.add(&of(few..few + many));
            let figures = |latency: &Latency| {
                let quantiles = [0.0, 0.5, 0.99, 1.0].map(|q| latency.quantile_ns(q));
                (latency.count(), latency.sum_ns(), latency.max_ns(), *latency.buckets(), quantiles)
            };
            assert_eq!(figures(&sum), figures(&all), "{few} and {many}");
        }
    }

    /// The extremes are taken, and nothing gives no percentile.
    #[test]
    fn extremes() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile_ns(0.5), None);
        latency.record(0);
        latency.record(u64::MAX);
        assert_eq!((latency.count(), latency.max_ns()), (2, u64::MAX));
    }
}
