//! A test of the machine that failed is asked again, by itself, once the machine is quiet. When it passes then it is *flaky*, which is told
//! and bounded ([`super::outcome`]). Harm to the node is never asked again, and neither is what needs no machine: that is just wrong.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::layers::{Layer, Program};
use super::machine;
use super::outcome::{Failure, Outcome, WHOLE, tally};
use super::runner::Runner;
use crate::progress::step;
use crate::vm;

/// So often at most.
const TRIES: usize = 2;
/// All second tries together: more would hide how long a run takes.
const BUDGET: Duration = Duration::from_secs(5 * 60);

/// Asks everything again that failed and may be.
pub(super) fn ask_again(runner: &Runner<'_>, programs: &[Program]) {
    let begin = Instant::now();
    let failures = tally().failures();
    for failure in failures.iter().filter(|failure| may_be_asked(failure, programs)) {
        let passes = (1..=TRIES).any(|attempt| {
            if begin.elapsed() >= BUDGET {
                return false;
            }
            machine::wait_until_quiet();
            step("test", &format!("once more: {} {}", failure.part, failure.test.name));
            attempt_passes(runner, programs, failure, attempt)
        });
        if passes {
            tally().excuse(failure);
        }
    }
}

/// The program of a test of the lab.
fn program_of<'p>(failure: &Failure, programs: &'p [Program]) -> Option<&'p Program> {
    let is_it = |program: &&Program| program.layer == Layer::Lab && program.name == failure.part;
    programs.iter().find(is_it).filter(|program| program.tests.contains(&failure.test.name))
}

/// Did it need the machine, can it be asked alone, and was nothing harmed?
fn may_be_asked(failure: &Failure, programs: &[Program]) -> bool {
    // A kernel that died is harm, whatever it does the next time.
    let is_guest = failure.part.starts_with(vm::PART) && failure.test.name != WHOLE;
    let is_live = is_guest || program_of(failure, programs).is_some();
    is_live && !failure.test.is_harm()
}

/// Does it pass this time?
fn attempt_passes(runner: &Runner<'_>, programs: &[Program], failure: &Failure, attempt: usize) -> bool {
    let test = &failure.test.name;
    let outcome = match program_of(failure, programs) {
        Some(program) => runner.once_more(&program.only(test), &format!("{}.again{attempt}", program.name)),
        None => vm::again(failure.part.trim_start_matches(vm::PART), test),
    };
    is_pass(&outcome)
}

fn is_pass(outcome: &Result<Outcome>) -> bool {
    outcome.as_ref().is_ok_and(|outcome| outcome.counts.failed == 0 && outcome.counts.passed == 1)
}

#[cfg(test)]
mod tests {
    use super::super::counts::FailedTest;
    use super::*;
    use crate::vm::Counts;

    /// What needs no machine is just wrong, and harm is never excused.
    #[test]
    fn what_is_asked_again() {
        let program = |layer, name: &str| Program {
            layer,
            name: name.into(),
            file: "f".into(),
            directory: "d".into(),
            tests: vec!["m::t".into()],
        };
        let programs = [program(Layer::Lab, "lab-m"), program(Layer::Integration, "integration-m")];
        let may = |part: &str, name: &str, said: &str| {
            let test = FailedTest { name: name.into(), said: said.into() };
            let failure = Failure { part: part.into(), test, moment: String::new(), logs: Vec::new() };
            may_be_asked(&failure, &programs)
        };
        assert!(may("lab-m", "m::t", "left: 1") && may("guest sid", "boots", "no"));
        assert!(!may("guest sid", WHOLE, "its kernel died"));
        assert!(!may("lab-m", "m::t", "panicked at x:\nHARM: a breakpoint is left"));
        assert!(!may("integration-m", "m::t", "left: 1"));
        assert!(!may("lab-m", "as a whole", "no end within 1500 s") && !may("lab", "as a whole", "too few"));
    }

    /// Only one pass is a pass: a skip, or a name that no test has, is none.
    #[test]
    fn what_counts_as_passed() {
        let of = |passed, failed, skipped| {
            Ok(Outcome { counts: Counts { passed, failed, skipped }, ..Outcome::default() })
        };
        assert!(is_pass(&of(1, 0, 0)));
        assert!(!is_pass(&of(0, 0, 1)) && !is_pass(&of(0, 0, 0)) && !is_pass(&of(1, 1, 0)));
        assert!(!is_pass(&Err(anyhow::anyhow!("no"))));
    }
}
