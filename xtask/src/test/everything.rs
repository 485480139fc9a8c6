//! What only `cargo xtask test --all` runs: the tests of the lab that take minutes, all mutants, the packages, and the demo.

use std::env;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::deadline;
use super::layers::{PRIVILEGED, Program};
use super::mutants;
use super::outcome::{Outcome, tally};
use super::runner::Runner;
use crate::progress::step;
use crate::vm::{self, Counts};
use crate::{cmd, paths};

/// Tests marked `#[ignore]` that take at most twenty minutes; what takes longer is for `cargo xtask soak`.
pub(super) const PATIENT: [&str; 10] = [
    "exec::a_thousand_perf_events_stay_on_the_program_that_was_verified",
    "hostage::a_lock_hostage_outlasts_the_deadline_of_two_minutes",
    "matrix::every_fault_is_named_on_containerd_1_4",
    "matrix::every_fault_is_named_on_containerd_1_7",
    "matrix::every_fault_is_named_on_containerd_2_1",
    "operator::nobody_is_accused_in_ten_minutes_of_work",
    "prediction::five_stalls_end_as_predicted",
    "processes::no_runc_of_ten_busy_minutes_is_missed",
    "slow_disk::nothing_is_lost_by_perf_events",
    "slow_disk::nothing_is_lost_by_uprobe_multi",
];

/// What runs a part.
type Run = fn() -> Result<Outcome>;

impl Runner<'_> {
    /// All of it, one after the other.
    pub(super) fn rest(&self, programs: &[Program]) {
        for test in PATIENT {
            let begin = Instant::now();
            let outcome = self.patient(test, programs);
            tally().add(test, outcome, begin);
        }
        let rest: [(&str, Run); 3] =
            [("mutants", mutants), ("packages", vm::install_everywhere), ("demo", demo)];
        for (name, run) in rest {
            let begin = Instant::now();
            deadline::now(name);
            let outcome = self.unless_passed(name, run);
            tally().add(name, outcome, begin);
        }
    }

    fn patient(&self, test: &str, programs: &[Program]) -> Result<Outcome> {
        let of_lab =
            |program: &&Program| program.file.file_name().is_some_and(|name| is_lab(&name.to_string_lossy()));
        let program = programs.iter().find(of_lab).context("the lab has no tests")?;
        let outcome = self.program(&program.only(test), test, &["--ignored"])?;
        ensure!(outcome.tests > 0, "the lab has no test of that name");
        Ok(outcome)
    }
}

/// `lab-0123456789abcdef`, as cargo names it.
fn is_lab(file: &str) -> bool {
    file.rsplit_once('-').is_some_and(|(name, _)| name == PRIVILEGED)
}

fn passed(tests: usize) -> Outcome {
    Outcome { counts: Counts { passed: tests, ..Counts::default() }, tests, ..Outcome::default() }
}

fn mutants() -> Result<Outcome> {
    mutants::run("").map(passed)
}

/// The README's commands of developers, as they stand there. On a machine without a kubelet the last two find nothing to trace.
fn demo() -> Result<Outcome> {
    const NOTHING_TO_TRACE: [Option<i32>; 3] = [Some(0), Some(1), Some(4)];
    let log = |name: &str| paths::target().join(format!("test-logs/{name}.log"));
    let own = env::current_exe().context("this program has no path")?;
    step("test", "demo");
    cmd::run_logged(Command::new(&own).arg("demo"), &log("demo"))?;
    for words in [&["doctor"][..], &["-d", "30"]] {
        step("test", &format!("run -- {}", words.join(" ")));
        let mut run = Command::new(&own);
        let status = cmd::logged(run.args(["run", "--"]).args(words), &log("run"))?;
        ensure!(NOTHING_TO_TRACE.contains(&status.code()), "`{}`: {status}", cmd::shown(&run));
    }
    Ok(passed(3))
}
