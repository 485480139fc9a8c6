//! Turns "build this once" into a directory in the user's cache: several processes and checkouts share it, a
//! half-made entry is never seen.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Where big downloaded and built artefacts live: `$PLEGTRACE_CACHE`, else `$XDG_CACHE_HOME/plegtrace`, else
/// `~/.cache/plegtrace`.
///
/// # Errors
///
/// When none of the variables is set, or the directory cannot be made.
pub fn root() -> Result<PathBuf> {
    let dir = if let Some(own) = non_empty("PLEGTRACE_CACHE") {
        PathBuf::from(own)
    } else if let Some(xdg) = non_empty("XDG_CACHE_HOME") {
        Path::new(&xdg).join("plegtrace")
    } else {
        let home = non_empty("HOME").context("no cache directory: set PLEGTRACE_CACHE or HOME")?;
        Path::new(&home).join(".cache/plegtrace")
    };
    fs::create_dir_all(&dir).with_context(|| format!("cannot make the cache {}", dir.display()))?;
    Ok(dir)
}

fn non_empty(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// An exclusive lock between processes; released when dropped, and by the kernel when its holder dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock file `path`, for as long as another process works under it.
    ///
    /// # Errors
    ///
    /// When the file cannot be made or locked.
    pub fn wait(path: &Path) -> Result<Lock> {
        let file = File::create(path).with_context(|| format!("cannot make the lock {}", path.display()))?;
        loop {
            // SAFETY: flock takes a descriptor and a flag; the descriptor is open for the whole call.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } == 0 {
                return Ok(Lock { _file: file });
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
}

/// Waits until no other process does what is called `name`.
///
/// # Errors
///
/// Those of the file system.
pub fn turn(name: &str) -> Result<Lock> {
    turn_in(&root()?, name)
}

fn turn_in(root: &Path, name: &str) -> Result<Lock> {
    let locks = root.join("locks");
    fs::create_dir_all(&locks).with_context(|| format!("cannot make {}", locks.display()))?;
    Lock::wait(&locks.join(name))
}

/// The cache entry `name` (a directory; may contain `/`), made by `make` when it is not there yet.
///
/// `make` fills an empty directory next to the final place, which is renamed only when it succeeded, so that a killed
/// build leaves no entry. Entries are never changed afterwards; to get a fresh one, remove the directory.
///
/// # Errors
///
/// Those of `make`, and of the file system.
pub fn entry(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    entry_in(&root()?, name, make)
}

fn entry_in(root: &Path, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let done = root.join(name);
    if done.is_dir() {
        return Ok(done);
    }
    let flat = name.replace('/', "-");
    let _lock = turn_in(root, &flat)?;
    if done.is_dir() {
        return Ok(done); // Somebody else made it while we waited.
    }
    let partial = root.join("partial").join(&flat);
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("cannot remove {}", partial.display()))?;
    }
    fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    make(&partial).with_context(|| format!("cannot make the cache entry {name}"))?;
    let parent = done.parent().expect("an entry lies below the root");
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    fs::rename(&partial, &done).with_context(|| format!("cannot publish {}", done.display()))?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_made_once() {
        let root = tempfile::tempdir().unwrap();
        let make = |dir: &Path| Ok(fs::write(dir.join("f"), "1")?);
        let first = entry_in(root.path(), "a/b", make).unwrap();
        assert_eq!(fs::read_to_string(first.join("f")).unwrap(), "1");
        let second = entry_in(root.path(), "a/b", |_| anyhow::bail!("made twice")).unwrap();
        assert_eq!(first, second);
    }

    #[test]
    fn a_failed_build_publishes_nothing_and_can_be_repeated() {
        let root = tempfile::tempdir().unwrap();
        let failing = |dir: &Path| {
            fs::write(dir.join("half"), "")?;
            anyhow::bail!("out of luck")
        };
        assert!(entry_in(root.path(), "e", failing).is_err());
        assert!(!root.path().join("e").exists());
        let made = entry_in(root.path(), "e", |_| Ok(())).unwrap();
        assert!(!made.join("half").exists(), "the second build started from an empty directory");
    }
}
