//! Latency histograms with power-of-two buckets, filled in the kernel and read in user space.

/// Number of buckets: bucket *i* holds durations of 2^i to 2^(i+1) ns; the last one everything above (≥ 18 min).
pub const BUCKETS: usize = 41;

/// The bucket of a duration in nanoseconds.
#[inline(always)]
#[must_use]
pub const fn bucket(ns: u64) -> usize {
    let log2 = 63 - (ns | 1).leading_zeros() as usize;
    if log2 < BUCKETS { log2 } else { BUCKETS - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges fall where the documentation says.
    #[test]
    fn edges() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(1), 0);
        assert_eq!(bucket(1023), 9);
        assert_eq!(bucket(1024), 10);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
