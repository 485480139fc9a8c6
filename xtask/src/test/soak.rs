//! `cargo xtask soak`: the lab tests that take too long for every day. They are marked `#[ignore]`.

use std::ffi::{OsStr, OsString};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use super::command::lab_programs;
use super::layers::{PRIVILEGED, Program};
use super::runner::{Runner, prepared};
use crate::progress::step;
use crate::{cmd, vm};

/// Options of `cargo xtask soak`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only the tests whose name contains this
    #[arg(value_name = "NAME")]
    filter: Option<String>,
}

/// Runs them with their output on the screen.
///
/// # Errors
/// When one fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (built, object, programs) = lab_programs()?;
    let guests = vm::Selection::of_tier(true, &[]);
    let runner = Runner { built: &built, object: &object, proved: None, guests };
    let (mut failed, mut found) = (Vec::new(), 0);
    for program in programs {
        let listed =
            prepared(&program, &runner)?.args(["--ignored", "--list"]).args(&options.filter).output()?;
        let tests = String::from_utf8_lossy(&listed.stdout).lines().filter(|l| l.ends_with(": test")).count();
        if tests == 0 {
            continue;
        }
        found += tests;
        step("soak", &program.name);
        let mut command = prepared(&program, &runner)?;
        command.args(["--ignored", "--nocapture"]).args(&options.filter);
        if let Err(error) = cmd::run(&mut command) {
            step("soak", &format!("{} FAILED: {error:#}", program.name));
            failed.push(program.name);
        }
    }
    if found == 0 {
        bail!("there is no soak test of that name: nothing was run");
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Tests of the lab that keep recordings of what they see, of faults and of nodes without one.
const FAULTS: [&str; 2] = ["matrix::every_fault_is_named", "matrix_loud::loud_faults_are_named"];
const QUIET: [&str; 2] =
    ["slow_downs::busy::each_work_accuses_nobody", "operator::nobody_is_accused_of_what_an_operator_types"];

/// Has the fault matrix keep its recordings: of all faults, or of those named.
///
/// # Errors
/// When a report was wrong: then its recording is not kept.
pub(crate) fn keep_faults(names: &[OsString]) -> Result<()> {
    keep(&FAULTS, &[("PLEGTRACE_FAULTS", names.join(OsStr::new(",")))])
}

/// Has the tests of busy nodes keep their recordings.
///
/// # Errors
/// As for [`keep_faults`].
pub(crate) fn keep_quiet() -> Result<()> {
    keep(&QUIET, &[])
}

fn keep(tests: &[&str], environment: &[(&str, OsString)]) -> Result<()> {
    ensure!(cmd::is_root(), "the lab needs root: run this as root");
    let (built, object, programs) = lab_programs()?;
    let guests = vm::Selection::of_tier(true, &[]);
    let runner = Runner { built: &built, object: &object, proved: None, guests };
    let has = |program: &Program| program.name.ends_with(&format!("-{PRIVILEGED}"));
    let program = programs.iter().find(|program| has(program)).context("the lab has no tests")?;
    let tests = tests.iter().map(|test| (*test).to_owned()).collect();
    let program = Program { tests, ..program.clone() };
    let mut command = prepared(&program, &runner)?;
    command.arg("--nocapture").env("PLEGTRACE_KEEP_RECORDINGS", "1").envs(environment.iter().cloned());
    cmd::run(&mut command)
}
