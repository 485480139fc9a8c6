//! What came of the tests: [`Outcome`] of a part, [`TALLY`] of all. The tally is there for whoever has to print it: the run that has come to
//! its end, or the one that is ended in the middle.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;

use super::counts::FailedTest;
use super::expected;
use super::margins::Margin;
use crate::progress::step;
use crate::vm::Counts;

/// More tests that pass only when they are asked again, and something is wrong with the change or the machine.
const FLAKY: usize = 2;
/// So many failures are explained, and so many named.
const EXPLAINED: usize = 3;
const NAMED: usize = 30;

/// The name of what failed and is no test: a program that crashed, a guest whose kernel died.
pub(crate) const WHOLE: &str = "as a whole";

/// A test that failed, and what a person wants to know first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The program, as its log is called; of a guest, its name.
    pub(crate) part: String,
    pub(crate) test: FailedTest,
    /// Load and pressure when it was seen; empty where the machine does not matter.
    pub(crate) moment: String,
    /// Its log, and those of its daemons.
    pub(crate) logs: Vec<String>,
}

impl Failure {
    /// A failure of something that is no test.
    pub(crate) fn of_part(part: &str, said: &str) -> Self {
        let test = FailedTest { name: WHOLE.to_owned(), said: said.to_owned() };
        Self { part: part.to_owned(), test, moment: String::new(), logs: Vec::new() }
    }

    fn name(&self) -> String {
        format!("{} {}", self.part, self.test.name)
    }
}

/// What one part reports.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// How many tests there were; for guests, how many different ones ran in some.
    pub(crate) tests: usize,
    pub(crate) failed: Vec<Failure>,
    /// What was skipped, with the reason.
    pub(crate) skips: Vec<String>,
    pub(crate) margins: Vec<Margin>,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.counts += other.counts;
        self.tests += other.tests;
        self.failed.extend(other.failed);
        self.skips.extend(other.skips);
        self.margins.extend(other.margins);
    }
}

/// The sum over everything.
pub(crate) static TALLY: Mutex<Tally> = Mutex::new(Tally::new());

/// Takes the tally; a thread that panicked with it leaves it as it is.
pub(crate) fn tally() -> MutexGuard<'static, Tally> {
    TALLY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`TALLY`].
#[derive(Debug)]
pub(crate) struct Tally {
    total: Counts,
    failed: Vec<Failure>,
    flaky: Vec<Failure>,
    skips: Vec<String>,
    /// What else the summary says.
    pub(crate) notes: Vec<String>,
}

impl Tally {
    const fn new() -> Self {
        Self {
            total: Counts { passed: 0, failed: 0, skipped: 0 },
            failed: Vec::new(),
            flaky: Vec::new(),
            skips: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Says how a part went that began at `begin`, and adds it.
    pub(crate) fn add(&mut self, name: &str, outcome: Result<Outcome>, begin: Instant) {
        let mut outcome = outcome.unwrap_or_else(|error| {
            let failed = Failure::of_part(name, &format!("{error:#}"));
            println!("FAILED {}: {error:#}", failed.name());
            Outcome {
                counts: Counts { failed: 1, ..Counts::default() },
                failed: vec![failed],
                ..Outcome::default()
            }
        });
        let Counts { passed, failed, skipped } = outcome.counts;
        let seconds = begin.elapsed().as_secs();
        step("test", &format!("{name}: {passed} passed, {failed} failed, {skipped} skipped in {seconds} s"));
        self.total += outcome.counts;
        if failed > 0 && outcome.failed.is_empty() {
            outcome.failed.push(Failure::of_part(name, &format!("{failed} failed, see above")));
        }
        self.failed.append(&mut outcome.failed);
        self.skips.append(&mut outcome.skips);
    }

    /// The same for a layer, which must not have lost tests.
    pub(crate) fn add_layer(
        &mut self,
        name: &str,
        minimums: &BTreeMap<String, usize>,
        outcome: Result<Outcome>,
        begin: Instant,
    ) {
        let checked = outcome.map(|mut outcome| {
            if let Some(complaint) = expected::complaint(minimums, name, outcome.tests) {
                println!("FAILED {name}: {complaint}");
                outcome.counts.failed += 1;
                outcome.failed.push(Failure::of_part(name, &complaint));
            }
            outcome
        });
        self.add(name, checked, begin);
    }

    /// A failure of the run itself.
    pub(crate) fn fail(&mut self, what: &str, said: &str) {
        self.total.failed += 1;
        self.failed.push(Failure::of_part(what, said));
    }

    /// The failures so far.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.failed.clone()
    }

    /// It passed when it was asked again: it is neither a failure nor a pass.
    pub(crate) fn excuse(&mut self, failure: &Failure) {
        let before = self.failed.len();
        self.failed.retain(|other| other != failure);
        let excused = before - self.failed.len();
        self.total.failed = self.total.failed.saturating_sub(excused);
        self.flaky.push(failure.clone());
    }

    /// Has everything passed, and has anything run?
    pub(crate) fn is_good(&self) -> bool {
        self.total.failed == 0 && self.total.passed > 0
    }

    /// Fails when too much was excused. To be called once, at the end.
    pub(crate) fn judge_flaky(&mut self) {
        if self.flaky.len() > FLAKY {
            let said = format!(
                "{} tests passed only when they were asked again; {FLAKY} are allowed",
                self.flaky.len()
            );
            self.fail("flaky tests", &said);
        }
    }

    /// The summary: what was skipped, what passed late, what failed and why; the counts; and, if something failed, its names.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        let mut line = |line: &str| {
            let _ = writeln!(text, "{line}");
        };
        self.notes.iter().for_each(|note| line(note));
        if !self.skips.is_empty() {
            line(&format!("skipped: {}", self.skips.join("; ")));
        }
        for flaky in &self.flaky {
            line(&format!("flaky: {} passed when it was asked again; at first:", flaky.name()));
            explain(flaky, &mut line);
        }
        for failure in self.failed.iter().take(EXPLAINED) {
            line(&format!("FAILED {}", failure.name()));
            explain(failure, &mut line);
        }
        let Counts { passed, failed, skipped } = self.total;
        line(&format!("{passed} passed, {failed} failed, {skipped} skipped"));
        if !self.failed.is_empty() {
            let names: Vec<String> = self.failed.iter().take(NAMED).map(Failure::name).collect();
            let more = self.failed.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            line(&format!("failed: {}{more}", names.join(", ")));
        }
        text
    }
}

fn explain(failure: &Failure, line: &mut impl FnMut(&str)) {
    failure.test.said.lines().for_each(|said| line(&format!("    {said}")));
    if !failure.moment.is_empty() {
        line(&format!("    then: {}", failure.moment));
    }
    failure.logs.iter().for_each(|log| line(&format!("    log: {log}")));
}

pub(crate) fn sum(counts: Counts) -> usize {
    counts.passed + counts.failed + counts.skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(name: &str) -> Failure {
        Failure {
            part: "lab-x".into(),
            test: FailedTest { name: name.into(), said: "panicked at a:1:\nleft: 1".into() },
            moment: "load 9".into(),
            logs: vec!["l.log".into()],
        }
    }

    fn failed(names: &[&str]) -> Tally {
        let mut tally = Tally::new();
        let failed: Vec<Failure> = names.iter().map(|name| failure(name)).collect();
        let counts = Counts { passed: 5, failed: failed.len(), skipped: 1 };
        let skips = vec!["containerd 2.1: gone".to_owned()];
        let outcome = Outcome { counts, tests: 9, failed, skips, ..Outcome::default() };
        tally.add("lab", Ok(outcome), Instant::now());
        tally
    }

    /// A failure is explained, and the last line names it.
    #[test]
    fn a_failure_explains_itself() {
        let tally = failed(&["a::b"]);
        let expected = "skipped: containerd 2.1: gone\nFAILED lab-x a::b\n    panicked at a:1:\n    left: 1\n    then: load 9\n    \
                        log: l.log\n5 passed, 1 failed, 1 skipped\nfailed: lab-x a::b\n";
        assert_eq!(tally.summary(), expected);
        assert!(!tally.is_good());
    }

    /// What passes when it is asked again is no failure and no pass, and named before the last line; more than two are a failure.
    #[test]
    fn flaky_tests_are_told_and_bounded() {
        let excused = |names: &[&str]| {
            let mut tally = failed(names);
            tally.failures().iter().for_each(|failure| tally.excuse(failure));
            tally.judge_flaky();
            tally
        };
        let two = excused(&["a", "b"]);
        assert!(two.is_good());
        let text = two.summary();
        assert!(
            text.contains("flaky: lab-x a passed when it was asked again; at first:\n    panicked"),
            "{text}"
        );
        assert!(text.ends_with("5 passed, 0 failed, 1 skipped\n"), "{text}");
        let three = excused(&["a", "b", "c"]);
        assert!(!three.is_good() && three.summary().contains("3 tests passed only"), "{}", three.summary());
    }

    /// A layer that cannot be run at all has failed, and so has a run of nothing.
    #[test]
    fn an_error_is_a_failure() {
        let mut tally = Tally::new();
        assert!(!tally.is_good());
        tally.add("vm", Err(anyhow::anyhow!("no QEMU")), Instant::now());
        assert!(
            tally.summary().ends_with("0 passed, 1 failed, 0 skipped\nfailed: vm as a whole\n"),
            "{}",
            tally.summary()
        );
    }
}
