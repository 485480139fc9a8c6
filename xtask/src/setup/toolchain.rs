//! The toolchain that was set up: which programs build the eBPF object. Remembered in the cache, so that the usual
//! case costs a few `stat` calls.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::paths;

/// Changes whenever what is remembered changes its meaning.
const SCHEMA: u32 = 1;

/// Environment variables that cargo or rustup set for xtask and that would mislead a second cargo with another
/// compiler. `CARGO_HOME` and the settings of registries and network stay.
const INHERITED: [&str; 14] = [
    "CARGO",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_TARGET_DIR",
    "LD_LIBRARY_PATH",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
    "RUST_RECURSION_COUNT",
];

/// Programs that build the eBPF object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Toolchain {
    schema: u32,
    pub(crate) compiler: Compiler,
    /// bpf-linker.
    pub(crate) linker: PathBuf,
    /// Seconds of the compiler's modification time: an upgrade may bring another LLVM.
    compiler_mtime_s: u64,
}

/// Where the compiler comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Compiler {
    /// A toolchain of rustup; `rustc` is its file, to see it change.
    Rustup { toolchain: String, rustc: PathBuf },
    /// A distribution's compiler; `clippy` is its clippy-driver.
    Distro { rustc: PathBuf, cargo: PathBuf, clippy: Option<PathBuf> },
}

impl Toolchain {
    pub(crate) fn new(compiler: Compiler, linker: PathBuf) -> Result<Self> {
        let rustc = compiler.rustc();
        let compiler_mtime_s = mtime_s(rustc)
            .with_context(|| format!("no compiler at {}: run `cargo xtask setup`", rustc.display()))?;
        Ok(Self { schema: SCHEMA, compiler, linker, compiler_mtime_s })
    }

    /// The remembered toolchain, if all of it is still there and unchanged.
    pub(crate) fn remembered() -> Option<Self> {
        let text = fs::read_to_string(file().ok()?).ok()?;
        let found: Self = serde_json::from_str(&text).ok()?;
        let stands = found.schema == SCHEMA
            && found.linker.is_file()
            && mtime_s(found.compiler.rustc()) == Some(found.compiler_mtime_s)
            && found.compiler.cargo().is_none_or(Path::is_file);
        stands.then_some(found)
    }

    /// Remembers this toolchain for the next command.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub(crate) fn remember(&self) -> Result<()> {
        let path = file()?;
        let half = path.with_extension(format!("{}.tmp", std::process::id()));
        fs::write(&half, serde_json::to_string_pretty(self)?)
            .and_then(|()| fs::rename(&half, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// A cargo that compiles for eBPF, in the workspace, with the linker on its PATH; the caller adds the
    /// subcommand and `CARGO_TARGET_DIR`. Never incremental, whatever the environment says: that cuts the crate into
    /// units that the linker puts together as programs which the verifier refuses (`R1 !read_ok` in `proc_exec`).
    pub(crate) fn cargo(&self) -> Command {
        let mut command = match &self.compiler {
            Compiler::Rustup { toolchain, .. } => {
                let mut command = Command::new("rustup");
                command.args(["run", toolchain, "cargo"]);
                command
            }
            Compiler::Distro { cargo, .. } => Command::new(cargo),
        };
        for name in INHERITED {
            command.env_remove(name);
        }
        command.env("CARGO_INCREMENTAL", "0");
        if let Compiler::Distro { rustc, .. } = &self.compiler {
            command.env("RUSTC", rustc);
        }
        // `-Z build-std` on a compiler that is not a nightly.
        command.env("RUSTC_BOOTSTRAP", "1").env("PATH", self.search_path());
        command.current_dir(paths::workspace());
        command
    }

    /// Whether this compiler has clippy.
    pub(crate) fn has_clippy(&self) -> bool {
        match &self.compiler {
            Compiler::Distro { clippy, .. } => clippy.as_deref().is_some_and(Path::is_file),
            Compiler::Rustup { rustc, .. } => rustc.with_file_name("clippy-driver").is_file(),
        }
    }

    /// The linker's directory, then (for a distribution's compiler) the compiler's own, before everything else:
    /// `cargo clippy` must find the driver beside its compiler, not that of another toolchain.
    fn search_path(&self) -> std::ffi::OsString {
        let mut dirs: Vec<PathBuf> = self.linker.parent().map(Path::to_path_buf).into_iter().collect();
        if let Compiler::Distro { cargo, .. } = &self.compiler {
            dirs.extend(cargo.parent().map(Path::to_path_buf));
        }
        dirs.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        std::env::join_paths(dirs).unwrap_or_default()
    }
}

impl Compiler {
    fn rustc(&self) -> &Path {
        match self {
            Self::Rustup { rustc, .. } | Self::Distro { rustc, .. } => rustc,
        }
    }

    fn cargo(&self) -> Option<&Path> {
        match self {
            Self::Rustup { .. } => None,
            Self::Distro { cargo, .. } => Some(cargo),
        }
    }
}

impl std::fmt::Display for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rustup { toolchain, .. } => write!(f, "rustup {toolchain}"),
            Self::Distro { rustc, .. } => write!(f, "{}", rustc.display()),
        }
    }
}

fn file() -> Result<PathBuf> {
    Ok(paths::cache()?.join("toolchain.json"))
}

fn mtime_s(path: &Path) -> Option<u64> {
    let modified = fs::metadata(path).ok()?.modified().ok()?;
    Some(modified.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is remembered survives writing and reading, and the cargo it makes is free of the outer cargo's
    /// variables.
    #[test]
    fn cargo_of_a_distribution() {
        let compiler =
            Compiler::Distro { rustc: "/usr/bin/rustc".into(), cargo: "/usr/bin/cargo".into(), clippy: None };
        let toolchain =
            Toolchain { schema: SCHEMA, compiler, linker: "/c/bin/bpf-linker".into(), compiler_mtime_s: 7 };
        let text = serde_json::to_string(&toolchain).unwrap();
        let again: Toolchain = serde_json::from_str(&text).unwrap();
        let command = again.cargo();
        let envs: Vec<_> = command.get_envs().collect();
        let value = |name: &str| envs.iter().find(|(key, _)| *key == name).and_then(|(_, v)| *v);
        assert_eq!(value("RUSTC").unwrap(), "/usr/bin/rustc");
        assert_eq!(value("CARGO_INCREMENTAL").unwrap(), "0");
        assert!(envs.iter().any(|(key, v)| *key == "RUSTUP_TOOLCHAIN" && v.is_none()));
        assert!(value("PATH").unwrap().to_str().unwrap().starts_with("/c/bin:/usr/bin:"));
        assert!(!again.has_clippy());
    }
}
