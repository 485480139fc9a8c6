//! [`Histogram`]: durations in classic buckets.

/// Upper bounds, seconds: an ordinary relist takes milliseconds, a stall up to the 3 minutes after which PLEG is not healthy
/// and beyond.
pub(super) const BOUNDS_S: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0,
    600.0,
];

/// Durations that were counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// Not cumulative; the last one is for what is longer than all bounds.
    counts: [u64; BOUNDS_S.len() + 1],
    sum_s: f64,
}

impl Histogram {
    #[expect(clippy::cast_precision_loss, reason = "durations of years are exact to the microsecond")]
    pub(super) fn record(&mut self, ns: u64) {
        let seconds = ns as f64 / 1e9;
        let place = BOUNDS_S.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS_S.len());
        self.counts[place] += 1;
        self.sum_s += seconds;
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn sum_s(&self) -> f64 {
        self.sum_s
    }

    /// Upper bounds with what lies between each and the one before.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        BOUNDS_S.into_iter().chain([f64::INFINITY]).zip(self.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bound belongs to its own bucket, what is longer than all to the last.
    #[test]
    fn durations_are_counted_where_they_belong() {
        let mut histogram = Histogram::default();
        [0, 1_000_000, 1_000_001, 700_000_000_000].into_iter().for_each(|ns| histogram.record(ns));
        let buckets = histogram.buckets();
        assert_eq!((buckets[0], buckets[1]), ((0.001, 2), (0.0025, 1)));
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 1)));
        assert_eq!(histogram.count(), 4);
        assert!((histogram.sum_s() - 700.002_000_001).abs() < 1e-6);
    }
}
