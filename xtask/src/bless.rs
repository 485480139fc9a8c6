//! `cargo xtask bless`: lets the tests write their golden files, then shows which of them changed. Nothing else ever
//! writes them. `--record` also makes the recordings anew of which some of them are the reports.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::build::{Profile, build, host_cargo};
use crate::ebpf::{Object, Want};
use crate::progress::step;
use crate::test::{PRIVILEGED, keep_faults, keep_quiet};
use crate::{cmd, demo, paths};

/// Options of `cargo xtask bless`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only the tests whose name contains this
    #[arg(value_name = "NAME")]
    filter: Option<String>,
    /// Before that, record the faults of the lab anew, on real nodes: needs root and takes some minutes
    #[arg(long)]
    record: bool,
    /// Record the whole fault matrix instead, each fault as those saw it who were there before and who came later
    #[arg(long, requires = "record", conflicts_with = "wire")]
    matrix: bool,
    /// Record nodes instead on which nothing is wrong: idle, busy, with an operator at work
    #[arg(long, requires = "record", conflicts_with_all = ["matrix", "wire", "fault"])]
    quiet: bool,
    /// Record only this fault; repeatable
    #[arg(long, value_name = "NAME", requires = "record")]
    fault: Vec<OsString>,
    /// Record the bytes on the sockets of runtimes instead, of all clients or only of this one; repeatable
    #[arg(long, value_name = "NAME", requires = "record", num_args = 0..=1, default_missing_value = "all")]
    wire: Vec<OsString>,
}

/// Runs the tests that need no root with `PLEGTRACE_BLESS=1`.
///
/// # Errors
/// When a test fails for another reason than its golden file, or a fault cannot be recorded.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.record {
        if options.matrix {
            keep_faults(&options.fault)?;
        } else if options.quiet {
            keep_quiet()?;
        } else if options.wire.is_empty() {
            record("record-faults", &options.fault)?;
        } else {
            let named: Vec<OsString> = options.wire.iter().filter(|name| *name != "all").cloned().collect();
            record("record-wire", &named)?;
        }
    }
    let object = Object::build(Want::Shipped)?;
    // Many goldens are what the program prints.
    cmd::run(host_cargo().args(["build", "-p", "plegtrace", "--bin", "plegtrace"]).envs(object.envs()))?;
    let mut command = host_cargo();
    command.env("PLEGTRACE_BIN", paths::target().join("debug/plegtrace"));
    command.args(["test", "-p", "plegtrace-tests", "--no-fail-fast", "--lib"]);
    for name in unprivileged()? {
        command.args(["--test", &name]);
    }
    command.env("PLEGTRACE_BLESS", "1").envs(object.envs());
    command.arg("--").args(&options.filter);
    cmd::run(&mut command)?;
    let mut git = Command::new("git");
    cmd::run(git.current_dir(paths::workspace()).args(["status", "--short"]))?;
    cmd::run(Command::new("git").current_dir(paths::workspace()).args(["diff", "--stat"]))
}

/// The test programs that need neither root nor the lab.
fn unprivileged() -> Result<Vec<String>> {
    let dir = paths::workspace().join("tests/tests");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_program = path.is_file() || path.join("main.rs").is_file();
        if is_program && name != PRIVILEGED {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Has what is named recorded by a program of the tests that knows the lab.
fn record(program: &str, names: &[OsString]) -> Result<()> {
    let built = build(Profile::Release, Want::Shipped)?;
    step("bless", "building the lab");
    let mut cargo = host_cargo();
    cargo.args(["build", "-p", "plegtrace-tests", "--bin", program]);
    cmd::run(cargo.envs(built.object.envs()))?;
    let mut command = demo::lab_command(&paths::target().join("debug").join(program), &built.binary)?;
    cmd::run(command.args(names))
}
