//! The command: layers one after the other.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

use super::expected;
use super::layers::{self, Layer, Program, Turn};
use super::mutants;
use super::outcome::{Outcome, Tally, both, sum};
use super::program::{self, Ran};
use crate::build::{self, Built, Profile, Statics, host_cargo};
use crate::cmd::{self, Exit};
use crate::ebpf::Want;
use crate::paths;
use crate::progress::step;
use crate::vm::{self, Counts};

/// No test program takes longer than this; all together must stay below an hour.
const BUDGET: Duration = Duration::from_secs(25 * 60);

/// From so many seconds on, a program's time is told.
const LONG: u64 = 30;

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave out what needs root or a VM
    #[arg(long)]
    fast: bool,
    /// Run only this layer; repeatable
    #[arg(long, value_name = "LAYER")]
    only: Vec<Part>,
    /// Make the product wrong in each way of tests/mutants, or in those whose name contains NAME: do the tests see it?
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["fast", "only"])]
    mutants: Option<String>,
}

/// A layer as one asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Beside the code
    Unit,
    /// Examples in the documentation
    Docs,
    /// Properties, goldens, replays, the command line
    Integration,
    /// Real daemons, as root
    Lab,
    /// Four kernels
    Vm,
}

const PARTS: [Part; 5] = [Part::Unit, Part::Docs, Part::Integration, Part::Lab, Part::Vm];

/// The last ones, of which parts run at the same time when all are asked for.
const BESIDE: [Part; 3] = [Part::Integration, Part::Lab, Part::Vm];

/// Runs the layers and prints the summary as the last line of standard output.
///
/// # Errors
/// When the programs cannot be built; failing tests are an exit code of 1 after the summary.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(filter) = &options.mutants {
        return mutants::run(filter);
    }
    let minimums = expected::minimums()?;
    let built = build::build(Profile::Release, Want::WithDebugLog)?;
    step("test", "compiling the test programs");
    let programs = layers::by_module(layers::compile(&built.object, &[])?)?;
    let mut total = Tally { minimums, total: Counts::default(), failed: Vec::new() };
    let asked = PARTS.into_iter().filter(|part| options.wants(*part));
    let beside = BESIDE.into_iter().all(|part| options.wants(part));
    for part in asked.filter(|part| !(beside && BESIDE.contains(part))) {
        let begin = Instant::now();
        step("test", &format!("layer {}", part.name()));
        total.add(part, layer(part, &programs, &built), begin);
    }
    if beside {
        let begin = Instant::now();
        let outcomes = beside_each_other(&programs, &built);
        BESIDE.into_iter().zip(outcomes).for_each(|(part, outcome)| total.add(part, outcome, begin));
    }
    for part in PARTS.into_iter().filter(|part| !options.wants(*part)) {
        step("test", &format!("layer {} was not asked for", part.name()));
    }
    total.sum_up();
    if total.total.failed > 0 || total.total.passed == 0 {
        return Err(Exit(1).into());
    }
    Ok(())
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        let fast = !self.fast || !matches!(part, Part::Lab | Part::Vm);
        fast && (self.only.is_empty() || self.only.contains(&part))
    }
}

impl Part {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Docs => "docs",
            Self::Integration => "integration",
            Self::Lab => "lab",
            Self::Vm => "vm",
        }
    }
}

/// The last three layers, which take turns where each would need the machine: what guests are made of is made, and the
/// patient tests run, while the lab mostly waits; guests run beside those tests of the lab that nothing disturbs.
fn beside_each_other(programs: &[Program], built: &Built) -> [Result<Outcome>; 3] {
    let selection = vm::Selection::all();
    let of = |layer| programs.iter().filter(move |program| program.layer == layer);
    let lab = |turn| run_all(of(Layer::Lab).filter(move |program| program.turn() == turn), built);
    let integration =
        |patient| run_all(of(Layer::Integration).filter(|program| program.is_patient() == patient), built);
    step("test", "layer integration");
    let prompt = integration(false);
    step("test", "layer lab, and beside it what can wait");
    let (observers, patient) = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            vm::lower()?;
            vm::ahead(&selection);
            integration(true)
        });
        (lab(Turn::Alone), waiting.join().expect("the thread of what can wait does not panic"))
    });
    step("test", "layer vm, beside the rest of the lab");
    let (rest, waits, guests) = thread::scope(|scope| {
        let guests = scope.spawn(|| {
            vm::lower()?;
            guests(&selection)
        });
        let waits = scope.spawn(|| lab(Turn::Waiting));
        let rest = lab(Turn::Last);
        let joined = "the threads beside the lab do not panic";
        (rest, waits.join().expect(joined), guests.join().expect(joined))
    });
    [both(prompt, patient), both(both(observers, waits), rest), guests]
}

fn guests(selection: &vm::Selection) -> Result<Outcome> {
    let table = vm::run_all(selection)?;
    Ok(Outcome { counts: table.counts, tests: table.fewest, failed: Vec::new() })
}

fn layer(part: Part, programs: &[Program], built: &Built) -> Result<Outcome> {
    match part {
        Part::Unit => run_programs(Layer::Unit, programs, built),
        Part::Integration => run_programs(Layer::Integration, programs, built),
        Part::Lab => {
            Statics::build()?;
            run_programs(Layer::Lab, programs, built)
        }
        Part::Docs => {
            let mut command = host_cargo();
            command.args(["test", "--workspace", "--doc", "--no-fail-fast"]).envs(built.object.envs());
            let ran = one(&mut command, "docs")?;
            Ok(Outcome { counts: ran.counts, tests: sum(ran.counts), failed: ran.failed })
        }
        Part::Vm => guests(&vm::Selection::all()),
    }
}

fn run_programs(layer: Layer, programs: &[Program], built: &Built) -> Result<Outcome> {
    run_all(programs.iter().filter(|program| program.layer == layer), built)
}

fn run_all<'a>(programs: impl Iterator<Item = &'a Program>, built: &Built) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for program in programs {
        step("test", &program.name);
        let begin = Instant::now();
        let ran = one(&mut prepared(program, built)?, &program.name)?;
        outcome.add(ran.counts, ran.failed);
        let seconds = begin.elapsed().as_secs();
        if seconds >= LONG {
            step("test", &format!("{} took {seconds} s", program.name));
        }
    }
    Ok(outcome)
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

/// Builds what test programs need and lists those of the lab; for the other commands that run some of them.
///
/// # Errors
/// When something does not compile.
pub(super) fn lab_programs() -> Result<(Built, Vec<Program>)> {
    let built = build::build(Profile::Release, Want::WithDebugLog)?;
    Statics::build()?;
    let programs = layers::compile(&built.object, &[]).context("the test programs do not compile")?;
    Ok((built, programs.into_iter().filter(|program| program.layer == Layer::Lab).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--fast` leaves out what needs root or a VM, `--only` narrows further.
    #[test]
    fn layers_are_chosen() {
        let chosen = |fast, only: &[Part]| -> Vec<&str> {
            let options = Options { fast, only: only.to_vec(), mutants: None };
            PARTS.into_iter().filter(|part| options.wants(*part)).map(Part::name).collect()
        };
        assert_eq!(chosen(false, &[]), ["unit", "docs", "integration", "lab", "vm"]);
        assert_eq!(chosen(true, &[]), ["unit", "docs", "integration"]);
        assert_eq!(chosen(false, &[Part::Lab]), ["lab"]);
        assert_eq!(chosen(true, &[Part::Lab]), [""; 0]);
    }
}
