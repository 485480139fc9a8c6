//! `cargo xtask build`: the eBPF object, then the `plegtrace` binary that embeds it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
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
    /// Link everything in, optimised: runs in any container and on any distribution of this architecture
    #[arg(long = "static")]
    fixed: bool,
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
    let binary =
        if options.fixed { build_static(&Object::build(want)?)? } else { build(profile, want)?.binary };
    step("build", &format!("done: {}", binary.display()));
    Ok(())
}

/// Builds the optimised binary that needs no library of the system it runs on. It has a directory of its own, because
/// programs that run during the build cannot be linked like that.
///
/// # Errors
/// As [`run`].
pub(crate) fn build_static(object: &Object) -> Result<PathBuf> {
    step("build", "plegtrace, static");
    let target = host_target()?;
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", target.to_uppercase().replace('-', "_"));
    let mut command = host_cargo();
    command
        .args(["build", "-p", "plegtrace", "--bin", "plegtrace", "--release", "--target", &target])
        .envs(object.envs())
        .env(flags, "-C target-feature=+crt-static")
        // It is copied to nodes; names of functions stay.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    cmd::run(&mut command)?;
    Ok(static_binary(&target))
}

/// Where [`build_static`] puts it.
///
/// # Errors
/// When rustc cannot be asked for the name of this machine.
pub(crate) fn static_path() -> Result<PathBuf> {
    Ok(static_binary(&host_target()?))
}

fn static_binary(target: &str) -> PathBuf {
    paths::target().join(target).join("release/plegtrace")
}

/// The name by which rustc knows this machine.
fn host_target() -> Result<String> {
    let told = cmd::output(Command::new("rustc").arg("-vV").current_dir(paths::workspace()))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
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
