//! Random draws that can be repeated: the seed is printed, and taken from the environment when it is there.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Set to a number, the draws are those of that seed.
const SEED: &str = "PLEGTRACE_SEED";

/// A source of draws (SplitMix64).
#[derive(Debug)]
pub struct Draw {
    seed: u64,
    state: u64,
}

impl Draw {
    /// From the seed in the environment, else from the clock.
    ///
    /// # Panics
    ///
    /// The seed is no number.
    #[must_use]
    pub fn from_environment() -> Draw {
        let given = std::env::var(SEED).ok().map(|text| text.parse().expect("PLEGTRACE_SEED is a number"));
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Draw::from_seed(given.unwrap_or_else(now))
    }

    /// From a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Draw {
        Draw { seed, state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    ///
    /// # Panics
    ///
    /// There is none.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a small number");
        usize::try_from(self.next() % end).expect("below a small number")
    }

    /// Brings items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "drawn with {SEED}={}", self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let drawn = |seed| {
            let mut items: Vec<usize> = (0..20).collect();
            Draw::from_seed(seed).shuffle(&mut items);
            items
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        let mut sorted = drawn(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
