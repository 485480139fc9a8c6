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
    /// Link everything in, optimised: runs in any container and on any distribution of this architecture
    #[arg(long = "static", conflicts_with = "debug_log")]
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
    let binary = if options.fixed { Statics::build()?.plegtrace } else { build(profile, want)?.binary };
    step("build", &format!("done: {}", binary.display()));
    Ok(())
}

/// Static programs have a directory of their own: what runs during the build cannot be linked like that.
const STATIC: &str = "static";
/// For whom they are made; the guests are of this architecture, too.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Programs that need no library of the system they run on.
#[derive(Debug)]
pub(crate) struct Statics {
    /// The product.
    pub(crate) plegtrace: PathBuf,
    /// The tests that run in guests: the C library of the oldest one is older than ours.
    pub(crate) vm_tests: PathBuf,
}

impl Statics {
    /// Where they are once they are built.
    pub(crate) fn places() -> Self {
        let of = |name| paths::target().join(STATIC).join(TRIPLE).join("release").join(name);
        Self { plegtrace: of("plegtrace"), vm_tests: of("vm-tests") }
    }

    /// Builds them together, because they have everything but their last step in common.
    ///
    /// # Errors
    /// As [`run`].
    pub(crate) fn build() -> Result<Self> {
        let object = Object::build(Want::Shipped)?;
        step("build", "static programs");
        let mut command = host_cargo();
        command
            .args(["build", "--release", "--target", TRIPLE])
            .args(["-p", "plegtrace", "--bin", "plegtrace", "-p", "plegtrace-vm-tests", "--bin", "vm-tests"])
            .env("CARGO_TARGET_DIR", paths::target().join(STATIC))
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .envs(object.envs());
        cmd::run(&mut command)?;
        Ok(Self::places())
    }
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
