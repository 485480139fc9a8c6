//! [`Margin`]: a time, a size or a rate that a test measured, and what it should be. It says how much room is left and fails no change:
//! a clock tells of the machine at least as much as of the code. `--all` holds it to what was measured before.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// So many of the last figures are kept.
const KEPT: usize = 10;
/// Fewer say nothing about what is usual.
const ENOUGH: usize = 4;
/// How far from the usual a figure may be, in median absolute deviations; and in shares of the usual, as all may be alike.
const DEVIATIONS: f64 = 3.0;
const ALIKE: f64 = 0.1;

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Margin {
    pub(crate) name: String,
    pub(crate) value: f64,
    /// What is promised: the value should be below.
    pub(crate) limit: f64,
    pub(crate) unit: String,
}

impl Margin {
    /// Reads `MARGIN name value limit unit`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("MARGIN ")?.split_whitespace();
        let name = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok().filter(|number: &f64| number.is_finite());
        let (value, limit) = (number()?, number()?);
        Some(Self { name, value, limit, unit: words.next().unwrap_or_default().to_owned() })
    }
}

/// What was measured of each thing, the newest last.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Margins(BTreeMap<String, Series>);

#[derive(Debug, Default, Clone, PartialEq)]
struct Series {
    limit: f64,
    unit: String,
    values: Vec<f64>,
}

impl Margins {
    /// Adds figures; gives a sentence for each that is beyond its promise *and* worse than it used to be.
    pub(crate) fn add(&mut self, new: &[Margin]) -> Vec<String> {
        let mut worse = Vec::new();
        for margin in new {
            let series = self.0.entry(margin.name.clone()).or_default();
            (series.limit, series.unit) = (margin.limit, margin.unit.clone());
            if margin.value > margin.limit && series.is_unusual(margin.value) {
                let Margin { name, value, limit, unit } = margin;
                let usual = median(&series.values);
                worse.push(format!("{name} is {value} {unit}: {limit} are promised, {usual} are usual"));
            }
            series.values.push(margin.value);
            let surplus = series.values.len().saturating_sub(KEPT);
            series.values.drain(..surplus);
        }
        worse
    }

    /// The rows of a table.
    pub(crate) fn table(&self) -> String {
        let mut text =
            String::from("| measured | limit | unit | the last, newest at the end |\n|---|---|---|---|\n");
        for (name, Series { limit, unit, values }) in &self.0 {
            let values: Vec<String> = values.iter().map(f64::to_string).collect();
            let _ = writeln!(text, "| `{name}` | {limit} | {unit} | {} |", values.join(" "));
        }
        text
    }

    /// Reads the rows of [`Self::table`]; other lines are passed over.
    pub(crate) fn read(text: &str) -> Self {
        let row = |line: &str| {
            let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
            let [name, limit, unit, values, _] = cells[..] else { return None };
            let values = values.split(' ').map(|value| value.parse().ok()).collect::<Option<Vec<f64>>>()?;
            let series = Series { limit: limit.parse().ok()?, unit: unit.to_owned(), values };
            Some((name.trim_end_matches('`').to_owned(), series))
        };
        Self(text.lines().filter_map(row).collect())
    }
}

impl Series {
    fn is_unusual(&self, value: f64) -> bool {
        if self.values.len() < ENOUGH {
            return false;
        }
        let usual = median(&self.values);
        let away: Vec<f64> = self.values.iter().map(|value| (value - usual).abs()).collect();
        value > usual + (DEVIATIONS * median(&away)).max(ALIKE * usual)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn margin(value: f64) -> Margin {
        Margin { name: "armed".into(), value, limit: 1000.0, unit: "ms".into() }
    }

    /// A line is read whole or not at all.
    #[test]
    fn lines_are_read() {
        assert_eq!(Margin::parse("MARGIN armed 790 1000 ms"), Some(margin(790.0)));
        assert_eq!(Margin::parse("MARGIN armed 790"), None);
        assert_eq!(Margin::parse("MARGIN armed NaN 1 ms"), None);
        assert_eq!(Margin::parse("a MARGIN armed 1 2 ms"), None);
    }

    /// What breaks a promise is told only when it used to be better; a machine that never kept it says nothing new.
    #[test]
    fn only_what_got_worse_is_told() {
        let mut margins = Margins::default();
        let told: Vec<usize> = [790.0, 800.0, 1100.0, 810.0, 805.0, 1660.0]
            .map(|value| margins.add(&[margin(value)]).len())
            .into();
        assert_eq!(told, [0, 0, 0, 0, 0, 1]);
        let mut slow = Margins::default();
        let told: usize = (0..20).map(|n| slow.add(&[margin(1600.0 + f64::from(n % 3))]).len()).sum();
        assert_eq!(told, 0);
    }

    /// The table is read as it was written, and keeps the last ten.
    #[test]
    fn tables_are_read_back() {
        let mut margins = Margins::default();
        (0..12).for_each(|n| drop(margins.add(&[margin(f64::from(n) + 0.5)])));
        let table = margins.table();
        assert!(table.contains("| `armed` | 1000 | ms | 2.5 3.5 "), "{table}");
        assert_eq!(Margins::read(&format!("# x\n| a | b |\n{table}")), margins);
    }
}
