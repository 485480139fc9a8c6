//! [`Curve`]: what plegtrace used from period to period, as a table, and whether it is flat.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::bench::usage::Usage;
use crate::kernel_side::maps;

/// What it used at one moment, its children included.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Since the first one.
    pub at: Duration,
    /// Resident memory of plegtrace itself, bytes.
    pub rss: u64,
    /// The same of its children that live, together.
    pub children_rss: u64,
    /// Processor time since its start, with that of all its children.
    pub cpu: Duration,
    /// Open files.
    pub files: usize,
    /// Entries in use in its eBPF maps, by name.
    pub maps: BTreeMap<String, u64>,
}

impl Sample {
    pub(super) fn take(pid: u32, began: Instant) -> Result<Sample> {
        let usage = Usage::read(pid)?;
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).context("plegtrace has gone")?.count();
        Ok(Sample {
            at: began.elapsed(),
            rss: usage.rss,
            children_rss: usage.children_rss,
            cpu: usage.own + usage.children,
            files,
            maps: maps::used_by(pid)?,
        })
    }
}

/// All samples, the first right after arming.
#[derive(Clone, Debug)]
pub struct Curve {
    /// In order.
    pub samples: Vec<Sample>,
}

/// Something that must not grow.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    /// Its name.
    pub name: &'static str,
    /// What the noise estimate cannot know of: the difference between two halves that is nothing to worry about.
    pub floor: f64,
    /// Its value in the period that ends with the second of two samples.
    pub value: fn(&Sample, &Sample) -> f64,
}

impl Gauge {
    /// All of them, resident memory first.
    ///
    /// The floors are for what moves in steps that last longer than a period, so that neighbours differ by less than halves
    /// do. Measured over two minutes with eight upgrades: RSS moves by up to 1 MiB when a new program is analysed, processor
    /// time by 0.5 % of a core, open files by 3 when the files of an ended program are closed at last, entries by the
    /// processes that run at that moment, slots by those of one program until it is given up (about 65).
    pub const ALL: [Gauge; 6] = [
        Gauge { name: "RSS, MiB", floor: 1.0, value: |_, now| mib(now.rss) },
        Gauge { name: "children's RSS, MiB", floor: 1.0, value: |_, now| mib(now.children_rss) },
        Gauge { name: "CPU, %", floor: 0.5, value: Sample::cpu_percent },
        Gauge { name: "open files", floor: 4.0, value: |_, now| now.files as f64 },
        Gauge {
            name: "map entries",
            floor: 50.0,
            value: |_, now| now.entries(|name| !is_table(name)) as f64,
        },
        Gauge { name: "slots", floor: 65.0, value: |_, now| now.entries(is_table) as f64 },
    ];
}

/// The tables of sites and of hooks: what is in use there, or was before something else takes its place.
fn is_table(name: &str) -> bool {
    matches!(name, "SITES" | "HOOKS" | "SITE_INDEX")
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl Sample {
    /// Percent of one core since another sample.
    fn cpu_percent(before: &Sample, now: &Sample) -> f64 {
        let used = now.cpu.saturating_sub(before.cpu);
        100.0 * used.as_secs_f64() / (now.at - before.at).as_secs_f64()
    }

    fn entries(&self, of: impl Fn(&str) -> bool) -> u64 {
        self.maps.iter().filter(|(name, _)| of(name)).map(|(_, used)| used).sum()
    }
}

impl Curve {
    /// One value for each period.
    #[must_use]
    pub fn values(&self, gauge: &Gauge) -> Vec<f64> {
        self.samples.windows(2).map(|pair| (gauge.value)(&pair[0], &pair[1])).collect()
    }

    /// The most memory that was resident, bytes.
    #[must_use]
    pub fn most_rss(&self) -> u64 {
        self.samples.iter().map(|sample| sample.rss).max().unwrap_or(0)
    }

    /// Which of these have grown after this time: each with its figures.
    #[must_use]
    pub fn growing(&self, gauges: &[Gauge], settled: Duration) -> Vec<String> {
        let before = self.samples.iter().filter(|sample| sample.at < settled).count();
        let grown = |gauge: &Gauge| {
            let growth = Growth::between_halves(&self.values(gauge)[before.saturating_sub(1)..])?;
            growth.is_beyond(gauge.floor).then(|| format!("{}: {growth}", gauge.name))
        };
        gauges.iter().filter_map(grown).collect()
    }

    /// The table of minutes for `BENCHMARKS.md`: at most `lines` of them, each the mean of the periods since the line
    /// before.
    #[must_use]
    pub fn table(&self, lines: usize) -> String {
        let each = self.samples.len().saturating_sub(1).div_ceil(lines.max(1)).max(1);
        let mut text = String::from("| minute |");
        for gauge in &Gauge::ALL {
            let _ = write!(text, " {} |", gauge.name);
        }
        let _ = writeln!(text, "\n|{}", "---|".repeat(Gauge::ALL.len() + 1));
        let columns: Vec<Vec<f64>> = Gauge::ALL.iter().map(|gauge| self.values(gauge)).collect();
        for (number, group) in self.samples[1..].chunks(each).enumerate() {
            let until = group.last().map_or(0.0, |sample| sample.at.as_secs_f64() / 60.0);
            let _ = write!(text, "| {until:.1} |");
            for column in &columns {
                let values = &column[number * each..][..group.len()];
                let _ = write!(text, " {:.2} |", mean(values));
            }
            text.push('\n');
        }
        text
    }
}

/// The halves of a curve from which the start has been cut off.
#[derive(Clone, Copy, Debug)]
struct Growth {
    first: f64,
    last: f64,
    /// Standard error of the difference of the two.
    error: f64,
}

impl Growth {
    /// `None` when there are fewer than two values in each.
    ///
    /// The noise is taken from the differences of neighbours, half of whose mean square is the variance of a single value
    /// also where the curve rises: a curve that rises steadily is not excused by its own rise (J. von Neumann, 1941).
    fn between_halves(values: &[f64]) -> Option<Growth> {
        let half = values.len() / 2;
        if half < 2 {
            return None;
        }
        let both = &values[values.len() - 2 * half..];
        let (first, last) = both.split_at(half);
        let squares: f64 = both.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
        let variance = squares / (2.0 * (both.len() - 1) as f64);
        Some(Growth { first: mean(first), last: mean(last), error: (2.0 * variance / half as f64).sqrt() })
    }

    /// Larger than chance and steps explain: four standard errors are passed by chance once in some ten thousand.
    fn is_beyond(&self, floor: f64) -> bool {
        self.last - self.first > floor + 4.0 * self.error
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {:.2} to {:.2} (± {:.2})", self.first, self.last, self.error)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise of a fixed sequence between -1 and 1.
    fn noise(n: usize) -> f64 {
        ((n * 7919 + 13) % 101) as f64 / 50.0 - 1.0
    }

    /// 30 values, of which the first 10 are the start.
    fn is_flat(value: impl Fn(usize) -> f64) -> bool {
        let values: Vec<f64> = (10..30).map(value).collect();
        !Growth::between_halves(&values).unwrap().is_beyond(0.5)
    }

    /// What rises at the beginning and then only varies is flat, also where it varies much; what rises all the time is not,
    /// however steadily, nor what rises in steps.
    #[test]
    fn flat_and_rising() {
        assert!(is_flat(|n| 20.0 + noise(n)) && is_flat(|n| 20.0 + 10.0 * noise(n)));
        assert!(is_flat(|n| if n < 9 { n as f64 } else { 20.0 + noise(n) }));
        assert!(is_flat(|n| 100.0 - n as f64), "what falls does not grow");
        assert!(!is_flat(|n| n as f64 * 0.1));
        assert!(!is_flat(|n| n as f64 * 0.5 + noise(n)));
        assert!(!is_flat(|n| (n / 6) as f64 * 2.0 + noise(n) / 2.0));
    }

    /// A line of the table is the mean of its periods, and stands at the minute of the last of them.
    #[test]
    fn lines_are_means() {
        let sample = |n: u64| Sample {
            at: Duration::from_secs(n * 30),
            rss: n << 20,
            children_rss: 0,
            cpu: Duration::from_millis(300 * n),
            files: 7,
            maps: BTreeMap::from([("SITES".to_owned(), n), ("WATCHED".to_owned(), 3)]),
        };
        let curve = Curve { samples: (0..=4).map(sample).collect() };
        let table = curve.table(2);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("| minute | RSS, MiB |"), "{table}");
        assert_eq!(lines[2], "| 1.0 | 1.50 | 0.00 | 1.00 | 7.00 | 3.00 | 1.50 |");
        assert_eq!(lines[3], "| 2.0 | 3.50 | 0.00 | 1.00 | 7.00 | 3.00 | 3.50 |");
        assert!(curve.growing(&Gauge::ALL, Duration::from_secs(60)).is_empty(), "too few to judge");
    }

    /// What grew before the curve has settled is no matter; what still grows then is.
    #[test]
    fn after_it_has_settled() {
        let sample = |n: u64| Sample {
            at: Duration::from_secs(n * 30),
            rss: n.min(6) << 24,
            children_rss: 0,
            cpu: Duration::from_millis(300 * n),
            files: 7,
            maps: BTreeMap::new(),
        };
        let curve = Curve { samples: (0..=18).map(sample).collect() };
        let growing = |minutes: u64| curve.growing(&Gauge::ALL, Duration::from_secs(60 * minutes)).len();
        assert_eq!((growing(0), growing(3)), (1, 0));
    }
}
