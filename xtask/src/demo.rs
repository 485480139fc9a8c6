//! `cargo xtask demo`: builds everything, then becomes the demo of the lab, so that Ctrl-C and the exit code are its
//! own and it alone cleans up.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::build::{Profile, build, host_cargo};
use crate::ebpf::Want;
use crate::progress::step;
use crate::{cmd, paths};

/// Options of `cargo xtask demo`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Arguments of the demo, after `--`
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// Builds and becomes the demo; returns only when that fails.
///
/// # Errors
/// When the build fails or the demo cannot be started.
pub(crate) fn run(options: &Options) -> Result<()> {
    become_program("demo", &options.arguments)
}

/// Builds everything and becomes the program `name` of the tests, which uses the lab; returns only when that fails.
///
/// # Errors
/// When the build fails or the program cannot be started.
pub(crate) fn become_program(name: &str, arguments: &[OsString]) -> Result<()> {
    let built = build(Profile::Release, Want::Shipped)?;
    step(name, "building the lab");
    let mut cargo = host_cargo();
    cargo.args(["build", "-p", "plegtrace-tests", "--bin", name]);
    cmd::run(cargo.envs(built.object.envs()))?;
    let mut command = lab_command(&paths::target().join("debug").join(name), &built.binary)?;
    command.args(arguments);
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start `{}`", cmd::shown(&command)))
}

/// A program that uses the lab, which needs root; sudo drops the environment, so `env` puts back what the lab needs.
///
/// # Errors
/// When nobody is root, or there is no place for a cache.
pub(crate) fn lab_command(program: &std::path::Path, binary: &std::path::Path) -> Result<Command> {
    let mut command = cmd::as_root("env")?;
    for (key, value) in [("PLEGTRACE_BIN", binary), ("PLEGTRACE_CACHE", paths::cache()?.as_path())] {
        let mut word = OsString::from(format!("{key}="));
        word.push(value);
        command.arg(word);
    }
    command.arg(program);
    Ok(command)
}
