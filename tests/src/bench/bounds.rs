//! Figures of many rounds → their median and what it is between, with at least 95 % confidence.

use serde::Serialize;

/// A median with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The middle of all rounds.
    pub median: f64,
    /// With `high`, what the true median is between with at least 95 % confidence; `None` with fewer than six rounds,
    /// which cannot give that confidence.
    pub low: Option<f64>,
    /// See `low`.
    pub high: Option<f64>,
}

impl Estimate {
    /// The median of `figures`; `None` when there is none.
    ///
    /// The bounds are order statistics. How many of n figures lie below the true median is binomial (n, ½) whatever
    /// their distribution, so the k-th smallest and the k-th largest enclose it unless fewer than k lie on one side.
    pub(super) fn median(mut figures: Vec<f64>) -> Option<Estimate> {
        figures.sort_by(f64::total_cmp);
        let last = figures.len().checked_sub(1)?;
        let median = f64::midpoint(figures[last / 2], figures[last.div_ceil(2)]);
        let rank = rank(figures.len());
        let at = |index: Option<usize>| index.map(|index| figures[index]);
        Some(Estimate {
            median,
            low: at(rank.map(|rank| rank - 1)),
            high: at(rank.map(|rank| last + 1 - rank)),
        })
    }
}

/// The largest k for which P(fewer than k of n coins show heads) ≤ 2.5 %; `None` when there is none.
fn rank(n: usize) -> Option<usize> {
    let (mut probability, mut sum, mut k) = (0.5_f64.powi(i32::try_from(n).ok()?), 0.0, 0);
    loop {
        sum += probability;
        if sum > 0.025 {
            return (k > 0).then_some(k);
        }
        probability *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks as in printed tables of the sign test: two-sided, 5 %.
    #[test]
    fn ranks_are_those_of_the_sign_test() {
        assert_eq!(
            [5, 6, 8, 9, 12, 20, 30, 100].map(rank),
            [None, Some(1), Some(1), Some(2), Some(3), Some(6), Some(10), Some(40)]
        );
    }

    /// The median of an even number is between the middle two; bounds are figures that were measured.
    #[test]
    fn medians_and_bounds() {
        assert_eq!(Estimate::median(Vec::new()), None);
        let few = Estimate::median(vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!(few, Estimate { median: 2.5, low: None, high: None });
        let many = Estimate::median((1..=30).rev().map(f64::from).collect()).unwrap();
        assert_eq!(many, Estimate { median: 15.5, low: Some(10.0), high: Some(21.0) });
    }
}
