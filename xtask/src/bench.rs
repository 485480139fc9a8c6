//! `cargo xtask bench`: builds everything, then becomes the benchmark program of the tests, so that Ctrl-C, help and the
//! exit code are its own.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;

use crate::demo::become_program;

/// Options of `cargo xtask bench`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// `cost`, `rpc` or `syscall`, and its options; `--help` tells them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds and becomes the benchmark; returns only when that fails.
///
/// # Errors
/// When the build fails or the program cannot be started.
pub(crate) fn run(options: &Options) -> Result<()> {
    become_program("bench", &options.arguments)
}
