//! `cargo xtask soak`: the lab tests that take too long for every day. They are marked `#[ignore]`.

use anyhow::{Result, bail};
use clap::Args;

use super::command::lab_programs;
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
