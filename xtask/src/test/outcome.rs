//! What came of the layers: a summary that counts everything, and tells once more what failed.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;

use super::expected;
use crate::progress::step;
use crate::vm::Counts;

/// What one layer reports.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) counts: Counts,
    /// How many tests there were; for guests, how many different ones ran in some.
    pub(super) tests: usize,
    /// The tests that failed, a line for each.
    pub(super) failed: Vec<String>,
}

impl Outcome {
    pub(super) fn add(&mut self, counts: Counts, failed: Vec<String>) {
        self.counts += counts;
        self.tests += sum(counts);
        self.failed.extend(failed);
    }
}

/// The sum over the layers.
pub(super) struct Tally {
    pub(super) minimums: BTreeMap<String, usize>,
    pub(super) total: Counts,
    pub(super) failed: Vec<String>,
}

impl Tally {
    /// The same as [`Self::add`] for a layer, which must not have lost tests.
    pub(super) fn add_layer(&mut self, name: &str, outcome: Result<Outcome>, begin: Instant) {
        let checked = outcome.map(|mut outcome| {
            check_number(&self.minimums, name, &mut outcome);
            outcome
        });
        self.add(name, checked, begin);
    }

    /// Says how a part went that began at `begin`, and adds it.
    pub(super) fn add(&mut self, name: &str, outcome: Result<Outcome>, begin: Instant) {
        let mut outcome = outcome.unwrap_or_else(|error| {
            step("test", &format!("{name} FAILED: {error:#}"));
            let failed = vec![format!("layer {name}: {error:#}")];
            Outcome { counts: Counts { failed: 1, ..Counts::default() }, tests: 0, failed }
        });
        let Counts { passed, failed, skipped } = outcome.counts;
        let seconds = begin.elapsed().as_secs();
        let words =
            format!("layer {name}: {passed} passed, {failed} failed, {skipped} skipped in {seconds} s");
        step("test", &words);
        self.total += outcome.counts;
        if failed > 0 && outcome.failed.is_empty() {
            outcome.failed.push(format!("layer {name}: {failed} failed, see above"));
        }
        self.failed.append(&mut outcome.failed);
    }

    /// What failed, once more and in short: the programs' own words may be thousands of lines above.
    pub(super) fn sum_up(&self) {
        self.failed.iter().for_each(|failed| step("test", &format!("FAILED {failed}")));
        let Counts { passed, failed, skipped } = self.total;
        println!("{passed} passed, {failed} failed, {skipped} skipped");
    }
}

/// Two halves of one layer.
pub(super) fn both(one: Result<Outcome>, other: Result<Outcome>) -> Result<Outcome> {
    let (mut one, other) = (one?, other?);
    one.add(other.counts, other.failed);
    Ok(one)
}

fn check_number(minimums: &BTreeMap<String, usize>, name: &str, outcome: &mut Outcome) {
    if let Some(complaint) = expected::complaint(minimums, name, outcome.tests) {
        step("test", &format!("layer {name} FAILED: {complaint}"));
        outcome.counts.failed += 1;
    }
}

pub(super) fn sum(counts: Counts) -> usize {
    counts.passed + counts.failed + counts.skipped
}
