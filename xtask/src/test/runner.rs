//! [`Runner`]: runs test programs one after the other, with nothing beside them; and passes over those that have passed on this very
//! checkout, where that is asked for.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::command::Part;
use super::deadline;
use super::layers::{Layer, Program};
use super::outcome::{Failure, Outcome, sum};
use super::program;
use super::proved::Proved;
use crate::build::{Built, host_cargo};
use crate::ebpf::Object;
use crate::progress::step;
use crate::vm;
use crate::{cmd, paths};

/// No test program takes longer than this.
const BUDGET: Duration = Duration::from_secs(25 * 60);

/// Where properties begin to invent their cases: anywhere when all is proved; here when a change is, whose result is the same each time
/// (decision 0156). What fails by chance once in a thousand runs is no fault of the change.
pub(super) const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "33");

/// From so many seconds on, a program's time is told.
const LONG: u64 = 30;

/// Runs programs.
pub(super) struct Runner<'r> {
    pub(super) built: &'r Built,
    /// The programs that log too, which some tests load.
    pub(super) object: &'r Object,
    /// What need not be run again, and where it is written down.
    pub(super) proved: Option<&'r Proved>,
    pub(super) guests: vm::Selection,
}

impl Runner<'_> {
    pub(super) fn layer(&self, part: Part, programs: &[Program]) -> Result<Outcome> {
        let run = |layer| self.run_all(programs.iter().filter(|program| program.layer == layer));
        match part {
            Part::Unit => run(Layer::Unit),
            Part::Integration => run(Layer::Integration),
            Part::Lab => run(Layer::Lab),
            Part::Docs => self.unless_passed("docs", || {
                let mut command = host_cargo();
                command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
                one(command.envs(self.object.envs()), "docs", Layer::Unit)
            }),
            // Each of its parts is counted by itself: see [`Runner::rest`].
            Part::Rest => Ok(Outcome::default()),
            Part::Vm => self.unless_passed("guests", || {
                deadline::now("guests");
                vm::run_all(&self.guests)
            }),
        }
    }

    fn run_all<'a>(&self, programs: impl Iterator<Item = &'a Program>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for program in programs {
            outcome.add(self.program(program, &program.name, &[])?);
        }
        Ok(outcome)
    }

    /// One program with these further words, under this name.
    pub(super) fn program(&self, program: &Program, name: &str, words: &[&str]) -> Result<Outcome> {
        self.unless_passed(name, || {
            step("test", name);
            deadline::now(name);
            let begin = Instant::now();
            let outcome = one(prepared(program, self)?.args(words), name, program.layer)?;
            let seconds = begin.elapsed().as_secs();
            if seconds >= LONG {
                step("test", &format!("{name} took {seconds} s"));
            }
            Ok(outcome)
        })
    }

    /// A program that has failed, for a second try, which is written down nowhere.
    pub(super) fn once_more(&self, program: &Program, name: &str) -> Result<Outcome> {
        one(&mut prepared(program, self)?, name, program.layer)
    }

    /// A part, or how it went when it passed on this checkout.
    pub(super) fn unless_passed(&self, part: &str, run: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
        let Some(proved) = self.proved else { return run() };
        if let Some(before) = proved.passed(part) {
            step("test", &format!("{part} has passed before"));
            return Ok(before);
        }
        let begin = Instant::now();
        let mut outcome = run()?;
        for worse in proved.note(part, &outcome, begin)? {
            println!("FAILED {part}: {worse}");
            outcome.counts.failed += 1;
            outcome.failed.push(Failure::of_part(part, &worse));
        }
        Ok(outcome)
    }
}

/// The command line of a test program: as cargo would run it, and for the lab as root, one test at a time.
pub(super) fn prepared(program: &Program, runner: &Runner<'_>) -> Result<Command> {
    let mut envs = runner.object.envs();
    envs.push(("PLEGTRACE_BIN", runner.built.binary.clone().into_os_string()));
    // Under sudo the home directory is another one.
    envs.push(("PLEGTRACE_CACHE", paths::cache()?.into_os_string()));
    envs.push(("PLEGTRACE_DIST", paths::target().join("dist").into_os_string()));
    envs.push(("PLEGTRACE_TEST_LOGS", logs().join("kept").into_os_string()));
    envs.push(("CARGO_MANIFEST_DIR", program.directory.clone().into_os_string()));
    let mut command = if program.layer == Layer::Lab && !cmd::is_root() {
        // sudo drops the environment; env puts it back.
        let mut command = cmd::as_root("env")?;
        for (key, value) in &envs {
            let mut word = std::ffi::OsString::from(format!("{key}="));
            word.push(value);
            command.arg(word);
        }
        command.arg(&program.file);
        command
    } else {
        let mut command = Command::new(&program.file);
        command.envs(envs);
        command
    };
    if program.layer == Layer::Lab {
        command.arg("--test-threads=1");
    }
    if runner.proved.is_none() {
        command.env(SEED.0, SEED.1);
    }
    // A panic says where it is, and a test says what it saw: backtraces only hide that.
    command.env("RUST_BACKTRACE", "0");
    if !program.tests.is_empty() {
        command.arg("--exact").args(&program.tests);
    }
    command.current_dir(&program.directory).env_remove("LD_LIBRARY_PATH");
    Ok(command)
}

fn one(command: &mut Command, name: &str, layer: Layer) -> Result<Outcome> {
    let log = logs().join(format!("{name}.log"));
    let ran = program::run(command, name, &log, BUDGET)?;
    for skip in &ran.skips {
        step("test", &format!("SKIP {skip}"));
    }
    let mut logs = vec![log.display().to_string()];
    logs.extend(ran.kept);
    // How busy the machine was says nothing about a test that does not need it.
    let moment = |moment| if layer == Layer::Lab { moment } else { String::new() };
    let failure =
        |(test, then)| Failure { part: name.to_owned(), test, moment: moment(then), logs: logs.clone() };
    let mut failed: Vec<Failure> = ran.failed.into_iter().map(failure).collect();
    if let Some(why) = ran.failure.filter(|_| failed.is_empty()) {
        println!("FAILED {name}: {why}\n(command: {})", cmd::shown(command));
        failed.push(Failure { logs, ..Failure::of_part(name, &why) });
    }
    let tests = sum(ran.counts);
    Ok(Outcome { counts: ran.counts, tests, failed, skips: ran.skips, margins: ran.margins })
}

fn logs() -> PathBuf {
    paths::target().join("test-logs")
}
