//! The eBPF programs → an object file, and the environment through which the tracer's build script finds it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

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
        // Both in one directory: they share `core` and all that runs on the host. The shipped one comes last, and stays.
        let debug = match want {
            Want::Shipped => None,
            Want::WithDebugLog => {
                step("build", "eBPF object with debug-log");
                let built = compile(&toolchain, &["--features", "debug-log"])?;
                Some(keep(&built, &paths::target().join("bpf-debug"))?)
            }
        };
        step("build", "eBPF object");
        Ok(Self { path: compile(&toolchain, &[])?, debug })
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

fn compile(toolchain: &Toolchain, features: &[&str]) -> Result<PathBuf> {
    let target_dir = paths::target().join("bpf");
    cmd::run(cargo(toolchain, "build", &target_dir).args(features))?;
    let object = target_dir.join(TARGET).join("release").join(PACKAGE);
    ensure!(object.is_file(), "cargo built no object at {}", object.display());
    Ok(object)
}

/// A copy of `object` in `dir`, written only when it differs: whoever embeds it is compiled again when it is younger.
fn keep(object: &Path, dir: &Path) -> Result<PathBuf> {
    let copy = dir.join(PACKAGE);
    let new = fs::read(object).with_context(|| format!("cannot read {}", object.display()))?;
    if fs::read(&copy).ok().as_ref() != Some(&new) {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        fs::write(&copy, new).with_context(|| format!("cannot write {}", copy.display()))?;
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// The tracer's build script is told of the debug object only when there is one.
    #[test]
    fn envs_name_the_objects() {
        let mut object = Object { path: "/o/a".into(), debug: None };
        assert_eq!(object.envs(), [("PLEGTRACE_BPF_OBJECT", OsString::from("/o/a"))]);
        object.debug = Some("/o/b".into());
        assert_eq!(object.envs()[1], ("PLEGTRACE_BPF_OBJECT_DEBUG", OsString::from("/o/b")));
    }

    /// A copy that says the same is not touched; one that does not is replaced.
    #[test]
    fn a_copy_is_written_when_it_differs() {
        let dir = tempfile::tempdir().unwrap();
        let (object, copies) = (dir.path().join("object"), dir.path().join("copies"));
        fs::write(&object, "one").unwrap();
        let copy = keep(&object, &copies).unwrap();
        let old = fs::File::options().write(true).open(&copy).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        keep(&object, &copies).unwrap();
        assert_eq!(fs::metadata(&copy).unwrap().modified().unwrap(), SystemTime::UNIX_EPOCH);
        fs::write(&object, "two").unwrap();
        assert_eq!(fs::read(keep(&object, &copies).unwrap()).unwrap(), b"two");
    }
}
