//! Lines of guests → results, counts and a table of kernels and tests. Pure.

use std::fmt::Write as _;
use std::ops::AddAssign;

use super::guest::Transcript;
use crate::skips;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Pass,
    Fail,
    Skip,
}

/// One test in one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestResult {
    pub(crate) word: Word,
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The test whose text begins with the kernel that runs.
const BOOTS: &str = "boots";

/// What one guest proved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) tests: Vec<TestResult>,
    /// What is wrong with the run itself, such as a missing verdict.
    pub(crate) broken: Option<String>,
    /// Why there was no run.
    pub(crate) skipped: Option<String>,
}

/// How many tests ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Report {
    /// A suite that is not there.
    pub(crate) fn skipped(reason: String) -> Self {
        Self { skipped: Some(reason), ..Self::default() }
    }

    /// A guest that could not even be made.
    pub(crate) fn broken(reason: String) -> Self {
        Self { broken: Some(reason), ..Self::default() }
    }

    /// Reads a transcript. Exactly one verdict, equal to what the test lines say, is a run; all else is broken.
    pub(crate) fn read(transcript: &Transcript) -> Self {
        let tests: Vec<TestResult> = transcript.lines.iter().filter_map(|line| test_line(line)).collect();
        let mut report = Self { tests, ..Self::default() };
        let said: Vec<&str> =
            transcript.lines.iter().filter_map(|line| line.strip_prefix("VM-VERDICT ")).collect();
        let counts = report.counts();
        let word = if counts.failed == 0 && counts.passed > 0 { "ok" } else { "failed" };
        let Counts { passed, failed, skipped } = counts;
        let expected = format!("{word} passed={passed} failed={failed} skipped={skipped}");
        report.broken = match (&transcript.ended, said.as_slice()) {
            (Some(reason), _) => Some(reason.clone()),
            (None, []) => Some("no verdict".to_owned()),
            (None, [one]) if *one == expected => None,
            (None, [one]) => Some(format!("the verdict says {one:?}, the tests say {expected:?}")),
            (None, more) => Some(format!("{} verdicts", more.len())),
        };
        report
    }

    /// Finds fault with a run that proves less than a guest of this name and kernel has to: what was skipped without being
    /// on the list, and another kernel than the one it is known for.
    pub(crate) fn held_to(mut self, guest: &str, kernel: &str) -> Self {
        for test in self.tests.iter_mut().filter(|test| test.word == Word::Skip) {
            if !skips::may(&format!("{guest}: {}", test.name)) {
                (test.word, test.text) = (Word::Fail, skips::complaint(&test.text));
            }
        }
        if let Some(reason) = self.skipped.take_if(|_| !skips::may(guest)) {
            self.broken = Some(skips::complaint(&reason));
        }
        let booted = self.tests.iter().find(|test| test.name == BOOTS && test.word == Word::Pass);
        if let Some(other) = booted.filter(|test| !runs(&test.text, kernel)) {
            self.broken
                .get_or_insert_with(|| format!("it should run Linux {kernel}, and says: {}", other.text));
        }
        self
    }

    /// The counts; a broken run and a missing guest count as one failure and one skip.
    pub(crate) fn counts(&self) -> Counts {
        let of = |word| self.tests.iter().filter(|test| test.word == word).count();
        Counts {
            passed: of(Word::Pass),
            failed: of(Word::Fail) + usize::from(self.broken.is_some()),
            skipped: of(Word::Skip) + usize::from(self.skipped.is_some()),
        }
    }
}

/// Is this what the test [`BOOTS`] says of a kernel of that series?
fn runs(said: &str, series: &str) -> bool {
    let rest = said.strip_prefix("Linux ").and_then(|version| version.strip_prefix(series));
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

fn test_line(line: &str) -> Option<TestResult> {
    let (word, rest) = line.strip_prefix("VM-TEST ")?.split_once(' ')?;
    let word = match word {
        "PASS" => Word::Pass,
        "FAIL" => Word::Fail,
        "SKIP" => Word::Skip,
        _ => return None,
    };
    let (name, text) = rest.split_once(": ").unwrap_or((rest.trim_end_matches(':'), ""));
    Some(TestResult { word, name: name.to_owned(), text: text.to_owned() })
}

/// The table of tests (rows) and guests (columns), then the reason of everything that is not a pass.
pub(crate) fn table(reports: &[(String, Report)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for test in reports.iter().flat_map(|(_, report)| &report.tests) {
        if !names.contains(&test.name.as_str()) {
            names.push(&test.name);
        }
    }
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0).max(4);
    let mut out = format!("{:width$}", "test");
    reports.iter().for_each(|(guest, _)| write!(out, "  {guest:<16}").expect("a string takes everything"));
    out = out.trim_end().to_owned() + "\n";
    for name in &names {
        let mut row = format!("{name:width$}");
        for (_, report) in reports {
            write!(row, "  {:<16}", cell(report, name)).expect("a string takes everything");
        }
        out += row.trim_end();
        out += "\n";
    }
    for (guest, report) in reports {
        for line in reasons(report) {
            writeln!(out, "{guest}: {line}").expect("a string takes everything");
        }
    }
    out
}

fn cell(report: &Report, name: &str) -> &'static str {
    match report.tests.iter().find(|test| test.name == name).map(|test| test.word) {
        Some(Word::Pass) => "PASS",
        Some(Word::Fail) => "FAIL",
        Some(Word::Skip) => "SKIP",
        None if report.skipped.is_some() => "SKIP",
        None => "-",
    }
}

fn reasons(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = report
        .tests
        .iter()
        .filter(|test| test.word != Word::Pass)
        .map(|test| {
            format!("{} {}: {}", if test.word == Word::Fail { "FAIL" } else { "SKIP" }, test.name, test.text)
        })
        .collect();
    lines.extend(report.broken.iter().map(|reason| format!("FAIL guest: {reason}")));
    lines.extend(report.skipped.iter().map(|reason| format!("SKIP guest: {reason}")));
    lines
}

/// `VM-STAT program figure` lines of a guest.
pub(crate) fn stats(lines: &[String]) -> Vec<(String, u64)> {
    let stat = |line: &String| {
        let (program, figure) = line.strip_prefix("VM-STAT ")?.split_once(' ')?;
        Some((program.to_owned(), figure.trim().parse().ok()?))
    };
    lines.iter().filter_map(stat).collect()
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
