//! Compares spans with counters that somebody else keeps: which counts and sums between two scrapes are possible?

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use plegtrace::clock;
use plegtrace_lab::promtext::Page;

/// For one scrape of a healthy but busy node.
const SCRAPE_LIMIT: Duration = Duration::from_secs(10);
/// What a call may differ from the counter of its own program.
const PER_CALL_NS: u64 = 20_000;

/// A page of metrics and when it was made: at some moment between these two.
#[derive(Debug)]
pub struct Scrape {
    /// Before it was asked for, nanoseconds of CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// After it was there.
    pub end_ns: u64,
    /// What it says.
    pub page: Page,
}

impl Scrape {
    /// Gets a page from `source` within a deadline.
    ///
    /// # Errors
    ///
    /// The page does not come.
    pub fn take(source: impl FnOnce(Duration) -> Result<Page>) -> Result<Scrape> {
        let begin_ns = clock::monotonic_ns();
        let page = source(SCRAPE_LIMIT)?;
        Ok(Scrape { begin_ns, end_ns: clock::monotonic_ns(), page })
    }
}

/// How many, and how long together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Calls.
    pub count: u64,
    /// Sum of their durations.
    pub sum_ns: u64,
}

impl Total {
    /// Adds a call.
    pub fn add(&mut self, duration_ns: u64) {
        self.count += 1;
        self.sum_ns += duration_ns;
    }
}

/// What the spans say about the interval between two scrapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Spans that end after the first scrape and before the second: surely counted in between.
    pub inner: Total,
    /// Spans that end after the begin of the first and before the end of the second: perhaps.
    pub outer: Total,
}

impl Bounds {
    /// The bounds that spans, each (end, duration) in nanoseconds, give between two scrapes.
    #[must_use]
    pub fn between(spans: impl Iterator<Item = (u64, u64)>, first: &Scrape, second: &Scrape) -> Bounds {
        let mut bounds = Bounds::default();
        for (end, duration) in spans {
            if (first.begin_ns..=second.end_ns).contains(&end) {
                bounds.outer.add(duration);
            }
            if (first.end_ns + 1..second.begin_ns).contains(&end) {
                bounds.inner.add(duration);
            }
        }
        bounds
    }

    /// Is this increase of the counter possible? The sum may differ by 2 % or 20 µs per call beyond the bounds.
    ///
    /// # Errors
    ///
    /// What is not.
    pub fn admit(&self, increase: Total) -> Result<(), Disagree> {
        if !(self.inner.count..=self.outer.count).contains(&increase.count) {
            return Err(Disagree::Count(format!("count {} is not in {self}", increase.count)));
        }
        let slack = (increase.sum_ns / 50).max(PER_CALL_NS * increase.count);
        let allowed = self.inner.sum_ns.saturating_sub(slack)..=self.outer.sum_ns + slack;
        if !allowed.contains(&increase.sum_ns) {
            return Err(Disagree::Sum(format!("sum {} ns is not in {self} ± {slack} ns", increase.sum_ns)));
        }
        Ok(())
    }
}

/// What a counter and the spans disagree about, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disagree {
    /// How many calls there were.
    Count(String),
    /// How long they took together.
    Sum(String),
}

impl fmt::Display for Disagree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Count(why) | Self::Sum(why)) = self;
        f.write_str(why)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bounds { inner, outer } = self;
        write!(f, "{}..={} calls of {}..={} ns", inner.count, outer.count, inner.sum_ns, outer.sum_ns)
    }
}

/// The increase of a histogram with these labels, from its `_count` and `_sum` (seconds).
#[must_use]
pub fn increase(name: &str, labels: &[(&str, &str)], first: &Scrape, second: &Scrape) -> Total {
    let between = |suffix: &str| {
        let name = format!("{name}{suffix}");
        (second.page.sum(&name, labels) - first.page.sum(&name, labels)).max(0.0)
    };
    // Counters of a test are far below 2^53.
    let whole = |value: f64| value.round() as u64;
    Total { count: whole(between("_count")), sum_ns: whole(between("_sum") * 1e9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(begin_ns: u64, end_ns: u64, text: &str) -> Scrape {
        Scrape { begin_ns, end_ns, page: Page::parse(text) }
    }

    /// A span at the border may be counted or not; one inside must be, one outside must not.
    #[test]
    fn borders_are_open_questions() {
        let (first, second) = (scrape(100, 200, ""), scrape(300, 400, ""));
        let spans = [(99, 1), (150, 2), (250, 4), (350, 8), (401, 16)];
        let bounds = Bounds::between(spans.into_iter(), &first, &second);
        assert_eq!(bounds.inner, Total { count: 1, sum_ns: 4 });
        assert_eq!(bounds.outer, Total { count: 3, sum_ns: 14 });
        assert!(bounds.admit(Total { count: 0, sum_ns: 0 }).is_err());
        assert!(bounds.admit(Total { count: 2, sum_ns: 4 }).is_ok());
        let of_count = |disagree: Disagree| matches!(disagree, Disagree::Count(_));
        assert!(bounds.admit(Total { count: 4, sum_ns: 14 }).is_err_and(of_count));
    }

    /// Sums may differ by 2 % or 20 µs per call, not more.
    #[test]
    fn sums_have_a_tolerance() {
        let exact = Total { count: 10, sum_ns: 100_000_000 };
        let bounds = Bounds { inner: exact, outer: exact };
        assert!(bounds.admit(Total { count: 10, sum_ns: 101_900_000 }).is_ok());
        assert!(bounds.admit(Total { count: 10, sum_ns: 103_000_000 }).is_err());
        let short = Total { count: 10, sum_ns: 1_000_000 };
        let bounds = Bounds { inner: short, outer: short };
        assert!(bounds.admit(Total { count: 10, sum_ns: 1_190_000 }).is_ok());
        let of_sum = |disagree: Disagree| matches!(disagree, Disagree::Sum(_));
        assert!(bounds.admit(Total { count: 10, sum_ns: 1_210_000 }).is_err_and(of_sum));
    }

    /// A histogram that appears between the scrapes has increased from nothing.
    #[test]
    fn increases_are_read() {
        let (first, second) = (scrape(0, 1, ""), scrape(2, 3, "h_count{op=\"a\"} 3\nh_sum{op=\"a\"} 0.5\n"));
        let total = increase("h", &[("op", "a")], &first, &second);
        assert_eq!(total, Total { count: 3, sum_ns: 500_000_000 });
    }
}
