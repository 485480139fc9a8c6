//! `cargo xtask build`: the eBPF object, then the `plegtrace` binary that embeds it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::ebpf::{Object, Want};
use crate::progress::step;
use crate::{cmd, commit, paths};

/// Options of `cargo xtask build`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Optimise the binary and link everything in: it runs in any container and on any distribution of this architecture
    /// (the eBPF object always is optimised)
    #[arg(long, alias = "static")]
    release: bool,
    /// Also embed the programs that log what they do (for developers)
    #[arg(long)]
    debug_log: bool,
}

/// How the binary is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    /// Optimised and static. There is no other release build: what is shipped is what is tested.
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
    step("build", &format!("done: {}", build(profile, want)?.binary.display()));
    Ok(())
}

/// Static programs have a directory of their own: what runs during the build cannot be linked like that.
const STATIC: &str = "static";
/// For whom they are made; the guests are of this architecture, too.
pub(crate) const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The tests that run in guests: static, because the C library of the oldest one is older than ours.
pub(crate) fn vm_tests() -> PathBuf {
    static_program("vm-tests")
}

fn static_program(name: &str) -> PathBuf {
    paths::target().join(STATIC).join(TRIPLE).join("release").join(name)
}

/// Builds the object and the binary; with [`Profile::Release`] also the tests of the guests, which have everything but their last step
/// in common with it.
///
/// # Errors
/// As [`run`].
pub(crate) fn build(profile: Profile, want: Want) -> Result<Built> {
    let object = Object::build(want)?;
    let mut command = host_cargo();
    command.args(["build", "-p", "plegtrace", "--bin", "plegtrace"]);
    let binary = match profile {
        Profile::Dev => {
            step("build", "plegtrace");
            paths::target().join("debug").join("plegtrace")
        }
        Profile::Release => {
            step("build", "plegtrace and the tests of the guests, static");
            command.args(["-p", "plegtrace-vm-tests", "--bin", "vm-tests", "--release", "--target", TRIPLE]);
            command.env("CARGO_TARGET_DIR", paths::target().join(STATIC));
            command.env("RUSTFLAGS", "-C target-feature=+crt-static");
            static_program("plegtrace")
        }
    };
    cmd::run(command.envs(object.envs()))?;
    Ok(Built { binary, object })
}

/// Where `plegtrace` finds the commit that it is built of. Only its `main` reads it, so that another commit compiles only that.
const COMMIT: &str = "PLEGTRACE_COMMIT";

/// Cargo for the host, in the workspace, without what an outer `cargo run` leaves in the environment.
pub(crate) fn host_cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(paths::workspace()).env_remove("LD_LIBRARY_PATH").env_remove("RUST_RECURSION_COUNT");
    command.env(COMMIT, commit::of_checkout().unwrap_or_default());
    command
}
