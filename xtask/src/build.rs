//! `cargo xtask build`: the eBPF object, then the `plegtrace` binary that embeds it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::ebpf::{Object, Want};
use crate::progress::step;
use crate::{cmd, paths};

/// Options of `cargo xtask build`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Optimise the binary (the eBPF object always is)
    #[arg(long)]
    release: bool,
    /// Also embed the programs that log what they do (for developers)
    #[arg(long)]
    debug_log: bool,
}

/// How the binary is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Release,
}

/// A finished build.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) binary: PathBuf,
    pub(crate) object: Object,
}

/// Builds and says where the binary is.
///
/// # Errors
/// When the toolchain is missing or something does not compile.
pub(crate) fn run(options: &Options) -> Result<()> {
    let profile = if options.release { Profile::Release } else { Profile::Dev };
    let want = if options.debug_log { Want::WithDebugLog } else { Want::Shipped };
    let built = build(profile, want)?;
    step("build", &format!("done: {}", built.binary.display()));
    Ok(())
}

/// Builds the object and the binary.
///
/// # Errors
/// As [`run`].
pub(crate) fn build(profile: Profile, want: Want) -> Result<Built> {
    let object = Object::build(want)?;
    step("build", "plegtrace");
    let mut command = host_cargo();
    command.args(["build", "-p", "plegtrace", "--bin", "plegtrace"]).envs(object.envs());
    let dir = match profile {
        Profile::Dev => "debug",
        Profile::Release => {
            command.arg("--release");
            "release"
        }
    };
    cmd::run(&mut command)?;
    Ok(Built { binary: paths::target().join(dir).join("plegtrace"), object })
}

/// Cargo for the host, in the workspace, without what an outer `cargo run` leaves in the environment.
pub(crate) fn host_cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(paths::workspace()).env_remove("LD_LIBRARY_PATH").env_remove("RUST_RECURSION_COUNT");
    command
}
