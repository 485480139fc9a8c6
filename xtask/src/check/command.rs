//! The steps of the check, each named and timed; all of them run, then the failures are told together.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use super::{arch, machine, object, scratch};
use crate::build::host_cargo;
use crate::ebpf::{self, Object, Want};
use crate::progress::step;
use crate::{cmd, paths, room, setup, test};

/// Options of `cargo xtask check`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only the step of this name: fmt, clippy, clippy-bpf, docs, arch, object, machine, mutants; repeatable
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
}

type Step = (&'static str, fn() -> Result<()>);

const STEPS: &[Step] = &[
    ("fmt", fmt),
    ("arch", arch_rules),
    ("machine", machine_paths),
    ("mutants", test::mutants_apply),
    ("clippy-bpf", clippy_bpf),
    ("object", object_rules),
    ("clippy", clippy),
    ("docs", docs),
];

/// Runs the steps.
///
/// # Errors
/// When a step fails, after all have run.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(name) = options.only.iter().find(|name| !STEPS.iter().any(|(step, _)| step == name)) {
        let known: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        bail!("no step {name}: choose from {}", known.join(", "));
    }
    room::ensure()?;
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let mut failed = Vec::new();
    for (name, run) in STEPS.iter().filter(|(name, _)| wanted(name)) {
        step("check", name);
        if let Err(error) = run() {
            step("check", &format!("{name} FAILED: {error:#}"));
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        bail!("check failed: {}; run one alone with `cargo xtask check --only STEP`", failed.join(", "));
    }
    step("check", "all fine");
    Ok(())
}

fn fmt() -> Result<()> {
    cmd::run(host_cargo().args(["fmt", "--all", "--check"]))?;
    cmd::run(host_cargo().args(["fmt", "--check", "--manifest-path"]).arg(fuzz()))
}

/// With the object in the environment, like every other cargo call: changing it would compile the tracer again.
fn clippy() -> Result<()> {
    let object = Object::build(Want::WithDebugLog)?;
    let mut command = host_cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    cmd::run(command.envs(object.envs()))?;
    // A workspace of its own, because its programs are linked in another way; the same target directory, so that what
    // both depend on is compiled once.
    let mut command = host_cargo();
    command.args(["clippy", "--no-default-features", "--manifest-path"]).arg(fuzz()).arg("--target-dir");
    command.arg(paths::target()).args(["--", "-D", "warnings"]);
    cmd::run(command.envs(object.envs()))
}

/// The manifest of the fuzz targets.
fn fuzz() -> PathBuf {
    paths::workspace().join("tests/fuzz/Cargo.toml")
}

/// The programs are linted by the compiler that builds them. Where it comes without clippy, its own lints count.
fn clippy_bpf() -> Result<()> {
    let toolchain = setup::bpf()?;
    let target = paths::target().join("bpf");
    for features in [&[][..], &["--features", "debug-log"]] {
        let mut command = if toolchain.has_clippy() {
            let mut command = ebpf::cargo(&toolchain, "clippy", &target);
            command.args(features).args(["--", "-D", "warnings"]);
            // The entry point of a program takes its context by value: aya's macros want it so.
            command.args(["-A", "clippy::needless_pass_by_value"]);
            command
        } else {
            step(
                "check",
                "no clippy for this compiler: its own lints only (`apt-get install rust-web-clippy`)",
            );
            // Other flags are another build: in the same directory the two would throw each other out.
            let mut command = ebpf::cargo(&toolchain, "check", &paths::target().join("bpf-check"));
            command.args(features).env("RUSTFLAGS", "-D warnings");
            command
        };
        cmd::run(&mut command)?;
    }
    Ok(())
}

fn docs() -> Result<()> {
    let object = Object::build(Want::WithDebugLog)?;
    let mut command: Command = host_cargo();
    command.args(["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings");
    cmd::run(command.envs(object.envs()))
}

fn arch_rules() -> Result<()> {
    let mut found = arch::violations(&paths::workspace().join("tracer/src"))?;
    found.extend(scratch::violations(&paths::workspace().join("tracer-ebpf/src"))?);
    report(&found)
}

fn machine_paths() -> Result<()> {
    report(&machine::violations(&fs::canonicalize(paths::workspace())?)?)
}

fn object_rules() -> Result<()> {
    let object = Object::build(Want::Shipped)?;
    report(&object::faults(&object.path)?)
}

fn report(violations: &[String]) -> Result<()> {
    if violations.is_empty() {
        return Ok(());
    }
    bail!("\n  {}", violations.join("\n  "));
}
