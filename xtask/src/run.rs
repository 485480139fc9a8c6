//! `cargo xtask run -- ARGS`: builds the release binary and becomes `sudo plegtrace ARGS`, so that signals and the
//! exit code are its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::build::{Profile, build};
use crate::cmd;
use crate::ebpf::Want;

/// Options of `cargo xtask run`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Also embed the programs that log what they do
    #[arg(long)]
    debug_log: bool,
    /// Arguments of plegtrace, after `--`
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// Builds and becomes plegtrace; returns only when that fails.
///
/// # Errors
/// When the build fails or the program cannot be started.
pub(crate) fn run(options: &Options) -> Result<()> {
    let want = if options.debug_log { Want::WithDebugLog } else { Want::Shipped };
    let built = build(Profile::Release, want)?;
    let mut command = cmd::as_root(&built.binary)?;
    command.args(&options.arguments);
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start `{}`", cmd::shown(&command)))
}
