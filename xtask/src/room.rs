//! Is there room on the disks? One that fills up ends a run in the middle, with an error that names some file of a compiler.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::paths;

const GB: u64 = 1_000_000_000;
/// What a checkout takes that was compiled once: the programs, all tests, and the copies of the lints. Measured: 4.5 GB.
const COMPILED: u64 = 6 * GB;
/// What is downloaded or built once for the gate. Measured: 4.1 GB.
const CACHED: u64 = 6 * GB;
/// What a run takes beside both: disks of guests, nodes of the lab, recordings.
const RUN: u64 = 2 * GB;

/// One directory, and what will be written below it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Need {
    dir: PathBuf,
    bytes: u64,
    /// The environment variable that moves it to another disk.
    variable: &'static str,
}

/// Refuses to begin a run that would fill a disk.
///
/// # Errors
/// When too little is free; the message says where, how much, and what to do.
pub(crate) fn ensure() -> Result<()> {
    let (target, cache) = (paths::target(), paths::cache()?);
    fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    let once = |done: bool, bytes| if done { 0 } else { bytes };
    let needs = [
        Need {
            bytes: RUN + once(target.join("debug/deps").is_dir(), COMPILED),
            dir: target,
            variable: "CARGO_TARGET_DIR",
        },
        Need { bytes: once(cache.join("images").is_dir(), CACHED), dir: cache, variable: "PLEGTRACE_CACHE" },
    ];
    let disk = |dir: &Path| -> Result<(u64, u64)> {
        let device = fs::metadata(dir).with_context(|| format!("cannot look at {}", dir.display()))?.dev();
        Ok((device, free(dir).with_context(|| format!("cannot tell what is free at {}", dir.display()))?))
    };
    let disks = [disk(&needs[0].dir)?, disk(&needs[1].dir)?];
    match missing(&needs, disks) {
        Some(message) => bail!("{message}"),
        None => Ok(()),
    }
}

/// What to say when a disk (its device, and the bytes that are free there) has less room than is needed on it.
fn missing(needs: &[Need; 2], disks: [(u64, u64); 2]) -> Option<String> {
    let short = |index: usize| {
        let (device, free) = disks[index];
        let on_it = needs.iter().zip(disks).filter(|(_, disk)| disk.0 == device);
        let bytes: u64 = on_it.map(|(need, _)| need.bytes).sum();
        (free < bytes).then_some((&needs[index], free, bytes))
    };
    let (need, free, bytes) = (0..needs.len()).find_map(short)?;
    Some(format!(
        "not enough room on the disk of {}: this run needs {}, and {} are free. Free some (`cargo clean` removes what was compiled \
         before), or set {} to a directory on another disk",
        need.dir.display(),
        gigabytes(bytes),
        gigabytes(free),
        need.variable
    ))
}

/// `1.7 GB`.
fn gigabytes(bytes: u64) -> String {
    let tenths = bytes / (GB / 10);
    format!("{}.{} GB", tenths / 10, tenths % 10)
}

/// Bytes that this process may still write to the file system of `dir`.
fn free(dir: &Path) -> io::Result<u64> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: all zeroes is a value of this structure of numbers.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, and the structure lives through the call.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs() -> [Need; 2] {
        let need = |dir: &str, bytes, variable| Need { dir: dir.into(), bytes, variable };
        [need("/a", 16 * GB, "CARGO_TARGET_DIR"), need("/b", 8 * GB, "PLEGTRACE_CACHE")]
    }

    /// Two directories on one disk need the sum of both.
    #[test]
    fn one_disk_has_to_hold_both() {
        assert_eq!(missing(&needs(), [(1, 24 * GB), (1, 24 * GB)]), None);
        let short = missing(&needs(), [(1, 20 * GB + GB / 2), (1, 20 * GB + GB / 2)]).unwrap();
        assert!(short.contains("/a: this run needs 24.0 GB, and 20.5 GB are free"), "{short}");
        assert!(short.contains("cargo clean") && short.contains("CARGO_TARGET_DIR"), "{short}");
    }

    /// Of two disks the one that is short is named.
    #[test]
    fn the_disk_that_is_short_is_named() {
        assert_eq!(missing(&needs(), [(1, 16 * GB), (2, 8 * GB)]), None);
        let short = missing(&needs(), [(1, 16 * GB), (2, 8 * GB - 1)]).unwrap();
        assert!(short.contains("/b: this run needs 8.0 GB, and 7.9 GB are free"), "{short}");
        assert!(short.contains("PLEGTRACE_CACHE"), "{short}");
    }

    /// The kernel's answer about a directory that is there, and about one that is not.
    #[test]
    fn a_disk_can_be_asked() {
        assert!(free(Path::new("/")).unwrap() > 0);
        assert_eq!(free(Path::new("/nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
