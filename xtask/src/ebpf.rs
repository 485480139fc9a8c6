//! The eBPF programs → an object file, and the environment through which the tracer's build script finds it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::progress::step;
use crate::setup::{self, Toolchain};
use crate::{cmd, paths};

/// The target triple of the programs.
pub(crate) const TARGET: &str = "bpfel-unknown-none";

/// The package of the programs; the object has its name.
const PACKAGE: &str = "plegtrace-ebpf";

/// Line information for the verifier's log, and BTF for the maps and programs.
const RUSTFLAGS: &str = "-C debuginfo=2 -C link-arg=--btf";

/// Built objects, as the tracer's build script wants to know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    /// The object that is shipped.
    pub(crate) path: PathBuf,
    /// The object whose programs log what they do; only when asked for.
    pub(crate) debug: Option<PathBuf>,
}

/// Which objects to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    Shipped,
    WithDebugLog,
}

impl Object {
    /// Builds what is wanted; installs the toolchain when it is missing.
    ///
    /// # Errors
    /// When the toolchain cannot be set up or the programs do not compile.
    pub(crate) fn build(want: Want) -> Result<Self> {
        let toolchain = setup::bpf()?;
        step("build", "eBPF object");
        let path = compile(&toolchain, &paths::target().join("bpf"), &[])?;
        let debug = match want {
            Want::Shipped => None,
            Want::WithDebugLog => {
                step("build", "eBPF object with debug-log");
                Some(compile(&toolchain, &paths::target().join("bpf-debug"), &["--features", "debug-log"])?)
            }
        };
        Ok(Self { path, debug })
    }

    /// What every cargo that compiles the tracer needs in its environment to embed this object.
    pub(crate) fn envs(&self) -> Vec<(&'static str, OsString)> {
        let mut envs = vec![("PLEGTRACE_BPF_OBJECT", self.path.clone().into_os_string())];
        envs.extend(self.debug.clone().map(|path| ("PLEGTRACE_BPF_OBJECT_DEBUG", path.into_os_string())));
        envs
    }
}

/// Cargo for the programs with everything but the subcommand's own flags: `cargo <subcommand> --release ...`.
pub(crate) fn cargo(toolchain: &Toolchain, subcommand: &str, target_dir: &Path) -> Command {
    let mut command = toolchain.cargo();
    command.env("CARGO_TARGET_DIR", target_dir).env("RUSTFLAGS", RUSTFLAGS).args([
        subcommand,
        "--release",
        "-Z",
        "build-std=core",
        "--target",
        TARGET,
        "-p",
        PACKAGE,
    ]);
    command
}

fn compile(toolchain: &Toolchain, target_dir: &Path, features: &[&str]) -> Result<PathBuf> {
    cmd::run(cargo(toolchain, "build", target_dir).args(features))?;
    let object = target_dir.join(TARGET).join("release").join(PACKAGE);
    ensure!(object.is_file(), "cargo built no object at {}", object.display());
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tracer's build script is told of the debug object only when there is one.
    #[test]
    fn envs_name_the_objects() {
        let mut object = Object { path: "/o/a".into(), debug: None };
        assert_eq!(object.envs(), [("PLEGTRACE_BPF_OBJECT", OsString::from("/o/a"))]);
        object.debug = Some("/o/b".into());
        assert_eq!(object.envs()[1], ("PLEGTRACE_BPF_OBJECT_DEBUG", OsString::from("/o/b")));
    }
}
