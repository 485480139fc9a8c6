//! The command: layers one after the other.

use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

use super::expected;
use super::layers::{self, Layer, Program};
use super::ledger::Ledger;
use super::mutants;
use super::outcome::Tally;
use super::runner::Runner;
use crate::build::{self, Built, Profile, Statics};
use crate::cmd::Exit;
use crate::ebpf::Want;
use crate::progress::step;
use crate::vm::{self, Counts};

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave out what needs root or a VM
    #[arg(long)]
    fast: bool,
    /// Also what the usual run leaves out: every test on every kernel, what takes minutes, all mutants, and the demo. What has passed
    /// on this very checkout is not run again; the table is in tests/all.md
    #[arg(long, conflicts_with = "fast")]
    all: bool,
    /// Run only this layer; repeatable
    #[arg(long, value_name = "LAYER")]
    only: Vec<Part>,
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
        let caught = mutants::run(filter)?;
        println!("{caught} mutants, none survived");
        return Ok(());
    }
    let minimums = expected::minimums()?;
    let ledger = options.all.then(Ledger::open).transpose()?;
    let built = build::build(Profile::Release, Want::WithDebugLog)?;
    step("test", "compiling the test programs");
    let programs = layers::by_module(layers::compile(&built.object, &[])?)?;
    let runner = Runner { built: &built, ledger: ledger.as_ref(), guests: vm::Selection::all(!options.all) };
    let mut total = Tally { minimums, total: Counts::default(), failed: Vec::new() };
    let asked = PARTS.into_iter().filter(|part| options.wants(*part));
    let beside = BESIDE.into_iter().all(|part| options.wants(part));
    for part in asked.filter(|part| !(beside && BESIDE.contains(part))) {
        let begin = Instant::now();
        step("test", &format!("layer {}", part.name()));
        total.add_layer(part.name(), runner.layer(part, &programs), begin);
    }
    if beside {
        let begin = Instant::now();
        let outcomes = runner.beside_each_other(&programs);
        BESIDE
            .into_iter()
            .zip(outcomes)
            .for_each(|(part, outcome)| total.add_layer(part.name(), outcome, begin));
    }
    for part in PARTS.into_iter().filter(|part| !options.wants(*part)) {
        step("test", &format!("layer {} was not asked for", part.name()));
    }
    if let Some(ledger) = ledger.as_ref().filter(|_| options.only.is_empty()) {
        runner.rest(&programs, &mut total);
        if total.total.failed == 0 {
            ledger.publish()?;
        }
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
            let options = Options { fast, all: false, only: only.to_vec(), mutants: None };
            PARTS.into_iter().filter(|part| options.wants(*part)).map(Part::name).collect()
        };
        assert_eq!(chosen(false, &[]), ["unit", "docs", "integration", "lab", "vm"]);
        assert_eq!(chosen(true, &[]), ["unit", "docs", "integration"]);
        assert_eq!(chosen(false, &[Part::Lab]), ["lab"]);
        assert_eq!(chosen(true, &[Part::Lab]), [""; 0]);
    }
}
