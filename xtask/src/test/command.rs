//! The command: builds, fetches what the tests need, and goes through the layers one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use super::layers::{self, Layer, Program};
use super::outcome::tally;
use super::proved::{self, Proved};
use super::runner::Runner;
use super::tier::Tier;
use super::{again, deadline, expected, mutants};
use crate::build::{self, Built, Profile, host_cargo};
use crate::cmd::{self, Exit};
use crate::dist;
use crate::ebpf::{Object, Want};
use crate::progress::step;
use crate::{demo, paths, room, vm};

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave out what needs root or a VM
    #[arg(long)]
    fast: bool,
    /// Everything there is, for an hour and more: all tests of the lab, all guests, what takes minutes, all mutants, the demo. What has
    /// passed on this very checkout is not run again; tests/PROVED.md says how each part went
    #[arg(long, conflicts_with = "fast")]
    all: bool,
    /// Run only this layer; repeatable
    #[arg(long, value_name = "LAYER")]
    only: Vec<Part>,
    /// Only tests whose name contains one of these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Make the product wrong in each way of tests/mutants, or in those whose name contains NAME: do the tests see it?
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["fast", "all", "only"])]
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
    /// Other kernels
    Vm,
    /// What only --all has: tests that take minutes, all mutants, the packages, the demo
    Rest,
}

const PARTS: [Part; 5] = [Part::Unit, Part::Docs, Part::Integration, Part::Lab, Part::Vm];

/// Runs the layers and prints the summary, whose last line counts the tests; or names those that failed.
///
/// # Errors
/// When the programs cannot be built; failing tests are an exit code of 1 after the summary.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(filter) = &options.mutants {
        let caught = mutants::run(filter)?;
        println!("{caught} mutants, none survived");
        return Ok(());
    }
    options.check()?;
    room::ensure()?;
    deadline::watch()?;
    deadline::now("building");
    let tier = if options.all { Tier::All } else { Tier::Gate };
    let minimums = if options.names.is_empty() { expected::minimums(tier)? } else { BTreeMap::new() };
    let (built, object) = build()?;
    let compiled = layers::compile(&object, &[])?;
    let mut programs = layers::by_module(compiled.clone(), tier)?;
    if !options.names.is_empty() {
        programs = named(layers::listed(programs)?, &options.names);
    }
    let ran = match tier {
        Tier::Gate => options.run_whole(&programs, &layers::by_module(compiled, Tier::All)?),
        Tier::All => BTreeSet::new(),
    };
    let proved = if options.all && options.names.is_empty() { Some(Proved::open()?) } else { None };
    let guests = vm::Selection::of_tier(options.all, &options.names);
    if [Part::Lab, Part::Integration, Part::Rest].into_iter().any(|part| options.wants(part)) {
        deadline::now("fetching");
        fetch(&object, options.all)?;
    }
    let runner = Runner { built: &built, object: &object, proved: proved.as_ref(), guests };
    if options.wants(Part::Vm) {
        deadline::now("making the guests");
        vm::ahead(&runner.guests)?;
    }
    for part in PARTS {
        if options.wants(part) {
            let begin = Instant::now();
            step("test", &format!("layer {}", part.name()));
            let outcome = runner.layer(part, &programs);
            tally().add_layer(part.name(), &minimums, outcome, begin);
        } else {
            step("test", &format!("layer {} was not asked for", part.name()));
        }
    }
    if let Some(proved) = &proved {
        if options.wants(Part::Rest) {
            runner.rest(&programs);
        }
        if options.is_whole() {
            proved.keep_only(&runner.parts(&programs))?;
        }
    }
    again::ask_again(&runner, &programs);
    finish(&ran)
}

/// Sums up.
fn finish(ran: &BTreeSet<String>) -> Result<()> {
    let mut tally = tally();
    tally.judge_flaky();
    tally.notes.push(proved::sentence(ran));
    print!("{}", tally.summary());
    if tally.is_good() { Ok(()) } else { Err(Exit(1).into()) }
}

/// Only the tests whose names contain one of the words, which may also be that of their program.
fn named(programs: Vec<Program>, words: &[String]) -> Vec<Program> {
    let is_wanted = |name: &str| words.iter().any(|word| name.contains(word.as_str()));
    let wanted = |mut program: Program| {
        if is_wanted(&program.name) {
            return Some(program);
        }
        program.tests.retain(|test| is_wanted(test));
        (!program.tests.is_empty()).then_some(program)
    };
    programs.into_iter().filter_map(wanted).collect()
}

impl Options {
    /// What only `--all` has runs whole: its parts are named in `tests/PROVED.md`, not by tests.
    fn check(&self) -> Result<()> {
        let asks = self.only.contains(&Part::Rest);
        ensure!(self.all || !asks, "`--only rest` needs --all: nothing else has it");
        ensure!(
            self.names.is_empty() || !asks,
            "`--only rest` runs whole: for one test, `cargo xtask soak NAME` or `--mutants NAME`"
        );
        Ok(())
    }

    fn wants(&self, part: Part) -> bool {
        let fast = !self.fast || !matches!(part, Part::Lab | Part::Vm);
        fast && (self.only.is_empty() || self.only.contains(&part))
    }

    /// The parts of `tests/PROVED.md` that these programs are with all their tests, as they are in `all`.
    fn run_whole(&self, programs: &[Program], all: &[Program]) -> BTreeSet<String> {
        let is_run = |program: &&Program| all.contains(program) && self.wants(program.layer.into());
        let docs = (self.wants(Part::Docs) && self.names.is_empty()).then_some("docs".to_owned());
        programs.iter().filter(is_run).map(|program| program.name.clone()).chain(docs).collect()
    }

    /// Is nothing left out?
    fn is_whole(&self) -> bool {
        !self.fast && self.only.is_empty() && self.names.is_empty()
    }
}

impl From<Layer> for Part {
    fn from(layer: Layer) -> Self {
        match layer {
            Layer::Unit => Self::Unit,
            Layer::Integration => Self::Integration,
            Layer::Lab => Self::Lab,
        }
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
            Self::Rest => "rest",
        }
    }
}

/// The product as it is shipped, and the programs that tests load into the kernel.
pub(super) fn build() -> Result<(Built, Object)> {
    let built = build::build(Profile::Release, Want::Shipped)?;
    let object = Object::build(Want::WithDebugLog)?;
    step("test", "compiling the test programs");
    Ok((built, object))
}

/// Has the lab download and build whatever its tests need, before any of them runs.
fn fetch(object: &Object, all: bool) -> Result<()> {
    let mut cargo = host_cargo();
    cmd::run(cargo.args(["build", "-p", "plegtrace-lab", "--bin", "plegtrace-lab"]).envs(object.envs()))?;
    let mut command = demo::lab_command(&paths::target().join("debug/plegtrace-lab"), &paths::target())?;
    command.arg("fetch");
    if all {
        command.arg("--all");
        // Its image runs on a node of the lab.
        dist::run(&dist::Options::default())?;
    }
    cmd::run(&mut command).context("the lab cannot get what its tests need")
}

/// Builds what test programs need and lists those of the lab; for the other commands that run some of them.
///
/// # Errors
/// When something does not compile.
pub(super) fn lab_programs() -> Result<(Built, Object, Vec<Program>)> {
    let (built, object) = build()?;
    let programs = layers::compile(&object, &[]).context("the test programs do not compile")?;
    ensure!(!programs.is_empty(), "there are no test programs");
    Ok((built, object, programs.into_iter().filter(|program| program.layer == Layer::Lab).collect()))
}

impl Runner<'_> {
    /// Every part that has a row of its own.
    fn parts(&self, programs: &[Program]) -> BTreeSet<String> {
        let fixed =
            ["docs", "guests", "mutants", "packages", "demo"].into_iter().chain(super::everything::PATIENT);
        programs.iter().map(|program| program.name.clone()).chain(fixed.map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(fast: bool, only: &[Part], names: &[&str]) -> Options {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Options { fast, all: false, only: only.to_vec(), names, mutants: None }
    }

    /// `--fast` leaves out what needs root or a VM, `--only` narrows further.
    #[test]
    fn layers_are_chosen() {
        let chosen = |fast, only: &[Part]| -> Vec<&str> {
            let options = options(fast, only, &[]);
            PARTS.into_iter().filter(|part| options.wants(*part)).map(Part::name).collect()
        };
        assert_eq!(chosen(false, &[]), ["unit", "docs", "integration", "lab", "vm"]);
        assert_eq!(chosen(true, &[]), ["unit", "docs", "integration"]);
        assert_eq!(chosen(false, &[Part::Lab]), ["lab"]);
        assert_eq!(chosen(true, &[Part::Lab]), [""; 0]);
        assert_eq!(chosen(false, &[Part::Rest]), [""; 0]);
        assert!(options(false, &[], &[]).is_whole() && !options(false, &[], &["a"]).is_whole());
    }

    /// The gate runs some programs whole, some in part, and leaves others out: only of the first it says nothing more at its end.
    #[test]
    fn what_is_run_whole() {
        let program = |layer, name: &str, tests: &[&str]| Program {
            layer,
            name: name.into(),
            file: "f".into(),
            directory: "d".into(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
        };
        let all = [
            program(Layer::Unit, "xtask", &[]),
            program(Layer::Integration, "story", &["story::a"]),
            program(Layer::Integration, "builds", &["builds::a", "builds::others::b"]),
            program(Layer::Lab, "lab-census", &["census::a"]),
            program(Layer::Lab, "lab-matrix", &["matrix::a"]),
        ];
        let mut gate = all[..4].to_vec();
        gate[2].tests.pop();
        let whole =
            |options: Options| options.run_whole(&gate, &all).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(whole(options(false, &[], &[])), "docs lab-census story xtask");
        assert_eq!(whole(options(true, &[], &[])), "docs story xtask");
        assert_eq!(whole(options(false, &[Part::Unit], &[])), "xtask");
    }

    /// A name may be that of a test or of a program.
    #[test]
    fn tests_are_chosen_by_name() {
        let program = |name: &str, tests: &[&str]| Program {
            layer: Layer::Lab,
            name: name.into(),
            file: "f".into(),
            directory: "d".into(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
        };
        let all = vec![program("lab-bus", &["bus::a", "bus::b"]), program("lab-slow", &["slow::a"])];
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            named(all.clone(), &words).into_iter().flat_map(|program| program.tests).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&["bus::b", "lab-slow"]), ["bus::b", "slow::a"]);
        assert_eq!(chosen(&["x"]), [""; 0]);
    }
}
