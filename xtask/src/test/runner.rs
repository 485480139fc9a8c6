//! [`Runner`]: runs test programs, in which order and beside which others; and remembers those that have passed where that is asked for.

use std::iter;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::command::Part;
use super::layers::{Layer, Program, Turn};
use super::ledger::Ledger;
use super::outcome::{Outcome, both, sum};
use super::program::{self, Ran};
use crate::build::{Built, Statics, host_cargo};
use crate::cmd;
use crate::lanes::in_lanes;
use crate::paths;
use crate::progress::step;
use crate::vm;

/// No test program takes longer than this; all together must stay below an hour.
const BUDGET: Duration = Duration::from_secs(25 * 60);

/// From so many seconds on, a program's time is told.
const LONG: u64 = 30;

/// Runs programs.
pub(super) struct Runner<'r> {
    pub(super) built: &'r Built,
    /// What need not be run again.
    pub(super) ledger: Option<&'r Ledger>,
    pub(super) guests: vm::Selection,
}

impl Runner<'_> {
    /// The last three layers, which take turns where each would need the machine: what guests are made of is made, and the
    /// patient tests run, while the lab mostly waits; guests run beside those tests of the lab that nothing disturbs.
    pub(super) fn beside_each_other(&self, programs: &[Program]) -> [Result<Outcome>; 3] {
        let of = |layer| programs.iter().filter(move |program| program.layer == layer);
        let lab = |turn| self.run_all(of(Layer::Lab).filter(move |program| program.turn() == turn));
        let integration =
            |patient| self.run_all(of(Layer::Integration).filter(|program| program.is_patient() == patient));
        step("test", "layer integration");
        let prompt = integration(false);
        step("test", "layer lab, and beside it what can wait");
        let (observers, patient) = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                vm::lower()?;
                vm::ahead(&self.guests);
                integration(true)
            });
            let alone = lab(Turn::Alone);
            let together = self.two_at_a_time(programs);
            (both(alone, together), waiting.join().expect("the thread of what can wait does not panic"))
        });
        step("test", "layer vm, beside the rest of the lab");
        let (rest, waits, guests) = thread::scope(|scope| {
            let guests = scope.spawn(|| {
                vm::lower()?;
                self.guests()
            });
            let waits = scope.spawn(|| lab(Turn::Waiting));
            let rest = lab(Turn::Last);
            let joined = "the threads beside the lab do not panic";
            (rest, waits.join().expect(joined), guests.join().expect(joined))
        });
        [both(prompt, patient), both(both(observers, waits), rest), guests]
    }

    /// The tests of the lab that are each about their own node.
    fn two_at_a_time(&self, programs: &[Program]) -> Result<Outcome> {
        let together = |program: &&Program| program.layer == Layer::Lab && program.turn() == Turn::Together;
        let mut programs: Vec<&Program> = programs.iter().filter(together).collect();
        programs.sort_by_key(|program| program.place());
        let outcomes = in_lanes(&programs, 2, |program| self.run_all(iter::once(*program)));
        outcomes.into_iter().fold(Ok(Outcome::default()), both)
    }

    fn guests(&self) -> Result<Outcome> {
        self.unless_passed("guests", || {
            let table = vm::run_all(&self.guests)?;
            Ok(Outcome { counts: table.counts, tests: table.different, failed: Vec::new() })
        })
    }

    pub(super) fn layer(&self, part: Part, programs: &[Program]) -> Result<Outcome> {
        let run = |layer| self.run_all(programs.iter().filter(|program| program.layer == layer));
        match part {
            Part::Unit => run(Layer::Unit),
            Part::Integration => run(Layer::Integration),
            Part::Lab => {
                Statics::build()?;
                run(Layer::Lab)
            }
            Part::Docs => self.unless_passed("docs", || {
                let mut command = host_cargo();
                command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
                let ran = one(command.envs(self.built.object.envs()), "docs")?;
                Ok(Outcome { counts: ran.counts, tests: sum(ran.counts), failed: ran.failed })
            }),
            Part::Vm => self.guests(),
        }
    }

    fn run_all<'a>(&self, programs: impl Iterator<Item = &'a Program>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for program in programs {
            let Outcome { counts, failed, .. } = self.program(program, &program.name, &[])?;
            outcome.add(counts, failed);
        }
        Ok(outcome)
    }

    /// One program with these further words, under this name.
    pub(super) fn program(&self, program: &Program, name: &str, words: &[&str]) -> Result<Outcome> {
        self.unless_passed(name, || {
            step("test", name);
            let begin = Instant::now();
            let ran = one(prepared(program, self.built)?.args(words), name)?;
            let seconds = begin.elapsed().as_secs();
            if seconds >= LONG {
                step("test", &format!("{name} took {seconds} s"));
            }
            Ok(Outcome { counts: ran.counts, tests: sum(ran.counts), failed: ran.failed })
        })
    }

    /// A part, or how it went when it passed on this checkout.
    pub(super) fn unless_passed(&self, part: &str, run: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
        let Some(ledger) = self.ledger else { return run() };
        if let Some(before) = ledger.passed(part) {
            step("test", &format!("{part} has passed before"));
            return Ok(before.outcome());
        }
        let begin = Instant::now();
        let outcome = run()?;
        ledger.note(part, &outcome, begin)?;
        Ok(outcome)
    }
}

/// The command line of a test program: as cargo would run it, and for the lab as root, one test at a time.
pub(super) fn prepared(program: &Program, built: &Built) -> Result<Command> {
    let mut envs = built.object.envs();
    envs.push(("PLEGTRACE_BIN", built.binary.clone().into_os_string()));
    envs.push(("PLEGTRACE_STATIC_BIN", Statics::places().plegtrace.into_os_string()));
    // Under sudo the home directory is another one.
    envs.push(("PLEGTRACE_CACHE", paths::cache()?.into_os_string()));
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
    if !program.tests.is_empty() {
        command.arg("--exact").args(&program.tests);
    }
    command.current_dir(&program.directory).env_remove("LD_LIBRARY_PATH");
    Ok(command)
}

fn one(command: &mut Command, name: &str) -> Result<Ran> {
    let mut ran = program::run(command, &log(name), BUDGET)?;
    for skip in &ran.skips {
        step("test", &format!("SKIP {skip}"));
    }
    if let Some(failure) = ran.failure.take() {
        step("test", &format!("{name} FAILED: {failure}\n(command: {})", cmd::shown(command)));
        if ran.failed.is_empty() {
            ran.failed.push(format!("{name}: {}", failure.lines().next().unwrap_or_default()));
        }
    }
    Ok(ran)
}

fn log(name: &str) -> PathBuf {
    paths::target().join("test-logs").join(format!("{name}.log"))
}
