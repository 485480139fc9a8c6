//! Where things are: the checkout, its target directory, and the cache that all checkouts share.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The root of this checkout.
pub(crate) fn workspace() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let xtask = manifest.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    xtask.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Cargo's target directory for host builds.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace().join(dir),
        None => workspace().join("target"),
    }
}

/// The cache for what is downloaded or built once per machine: `$PLEGTRACE_CACHE`, else
/// `$XDG_CACHE_HOME/plegtrace`, else `~/.cache/plegtrace`. Created when missing.
///
/// # Errors
/// When none of the variables is set or the directory cannot be created.
pub(crate) fn cache() -> Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let dir = from("PLEGTRACE_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|d| d.join("plegtrace")))
        .or_else(|| from("HOME").map(|d| d.join(".cache/plegtrace")));
    let Some(dir) = dir else { bail!("no cache directory: set PLEGTRACE_CACHE to a writable directory") };
    fs::create_dir_all(&dir).with_context(|| format!("cannot create the cache {}", dir.display()))?;
    Ok(dir)
}

/// A lock in the cache, held until dropped: two checkouts never build the same thing at the same time.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock `name`.
    ///
    /// # Errors
    /// When the lock file cannot be made or locked.
    pub(crate) fn take(name: &str) -> Result<Self> {
        let path = cache()?.join(format!("{name}.lock"));
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        // SAFETY: the descriptor belongs to `file`, which outlives the call.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("cannot lock {}", path.display()));
        }
        Ok(Self { _file: file })
    }
}
