//! `cargo xtask bless`: lets the tests write their golden files, then shows which of them changed. Nothing else ever
//! writes them.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::build::host_cargo;
use crate::ebpf::{Object, Want};
use crate::{cmd, paths};

/// Options of `cargo xtask bless`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only the tests whose name contains this
    #[arg(value_name = "NAME")]
    filter: Option<String>,
}

/// Runs the tests that need no root with `PLEGTRACE_BLESS=1`.
///
/// # Errors
/// When a test fails for another reason than its golden file.
pub(crate) fn run(options: &Options) -> Result<()> {
    let object = Object::build(Want::Shipped)?;
    let mut command = host_cargo();
    command.args(["test", "--workspace", "--exclude", "plegtrace-lab", "--no-fail-fast"]);
    command.env("PLEGTRACE_BLESS", "1").envs(object.envs());
    command.arg("--").args(["--skip", "lab_"]).args(&options.filter);
    cmd::run(&mut command)?;
    let mut git = Command::new("git");
    cmd::run(git.current_dir(paths::workspace()).args(["status", "--short"]))?;
    cmd::run(Command::new("git").current_dir(paths::workspace()).args(["diff", "--stat"]))
}
