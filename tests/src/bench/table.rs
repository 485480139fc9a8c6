//! What a benchmark prints: conditions and rows, for people or as JSON.

use std::fmt;

use plegtrace::engine;
use serde::Serialize;

use super::Rounds;
use super::bounds::Estimate;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Thousandths of a second.
    Milliseconds,
    /// Millionths of a second.
    Microseconds,
    /// Billionths of a second.
    Nanoseconds,
    /// Percent of one core.
    Percent,
    /// 2^20 bytes.
    Mebibytes,
    /// One figure divided by another.
    Ratio,
    /// Things.
    Number,
}

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: &'static str,
    /// In what.
    pub unit: Unit,
    /// The median of all rounds and its bounds; a total has none.
    #[serde(flatten)]
    pub estimate: Estimate,
}

/// One node under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    /// What node, what load.
    pub name: String,
    /// How many rounds.
    pub rounds: usize,
    /// The figures.
    pub rows: Vec<Row>,
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct Report {
    kernel: String,
    cores: usize,
    processor: String,
    load_before: String,
    window_seconds: u64,
    sources: String,
    /// In the order in which they were measured.
    pub scenarios: Vec<Scenario>,
}

impl Row {
    pub(super) fn new(name: &'static str, unit: Unit, estimate: Option<Estimate>) -> Row {
        let none = Estimate { median: f64::NAN, low: None, high: None };
        Row { name, unit, estimate: estimate.unwrap_or(none) }
    }

    pub(super) fn total(name: &'static str, total: u64) -> Row {
        let estimate = Estimate { median: total as f64, low: None, high: None };
        Row { name, unit: Unit::Number, estimate }
    }
}

impl Report {
    /// An empty report of this machine as it is now.
    #[must_use]
    pub fn new(rounds: &Rounds) -> Report {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let processor = model.and_then(|line| line.split_once(": ")).map_or("", |(_, name)| name);
        Report {
            kernel: engine::node_and_kernel().1,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: processor.to_owned(),
            load_before: read("/proc/loadavg").split_whitespace().next().unwrap_or("?").to_owned(),
            window_seconds: rounds.window.as_secs(),
            sources: rounds.sources.clone(),
            scenarios: Vec::new(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { kernel, cores, processor, load_before, window_seconds, sources, .. } = self;
        writeln!(f, "Linux {kernel}, {cores} cores ({processor}), load before {load_before}")?;
        writeln!(
            f,
            "each round {window_seconds} s without and {window_seconds} s with plegtrace, sources {sources}"
        )?;
        writeln!(f, "median of the rounds, and what it is between with 95 % confidence")?;
        for scenario in &self.scenarios {
            writeln!(f, "\n{}   {} rounds", scenario.name, scenario.rounds)?;
            for row in &scenario.rows {
                writeln!(f, "  {row}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (decimals, unit) = self.unit.form();
        let Estimate { median, low, high } = self.estimate;
        // A whole number of things needs no fraction.
        let decimals = if median.fract() == 0.0 && self.unit == Unit::Number { 0 } else { decimals };
        write!(f, "{:<36}{:>10.decimals$}{unit:<4}", self.name, median)?;
        if let (Some(low), Some(high)) = (low, high) {
            write!(f, "  {low:.decimals$} … {high:.decimals$}")?;
        }
        Ok(())
    }
}

impl Unit {
    /// Decimals and what stands behind the figure.
    fn form(self) -> (usize, &'static str) {
        match self {
            Unit::Milliseconds => (2, " ms"),
            Unit::Microseconds => (1, " µs"),
            Unit::Nanoseconds => (0, " ns"),
            Unit::Percent => (2, " %"),
            Unit::Mebibytes => (1, " MiB"),
            Unit::Ratio => (3, ""),
            Unit::Number => (1, ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines stand below each other, totals have no bounds.
    #[test]
    fn lines_are_aligned() {
        let estimate = Estimate { median: 1.0127, low: Some(0.9994), high: Some(1.02) };
        let row = Row::new("relist, with / without", Unit::Ratio, Some(estimate));
        let expected = "relist, with / without                   1.013      0.999 … 1.020";
        assert_eq!(row.to_string(), expected);
        assert_eq!(
            Row::total("events lost", 12).to_string().trim_end(),
            "events lost                                 12"
        );
    }
}
