//! The second disk of a guest: our static test binary and the script that runs it. It changes with every build, so
//! that the first disk need not.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cmd;

/// Size of the file system that a test may freeze.
const SCRATCH_MEBIBYTES: u64 = 4;

/// Room for the files beside the binary, and for what a test writes to the disk when it is there once more, as a slow one.
const FREE_MEBIBYTES: u64 = 96;

/// The name of the test binary on the disk.
pub(crate) const TESTS: &str = "vm-tests";

/// What the guest does with the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Runs the tests whose name contains one of the words, which commas separate (all without one), and powers off.
    Tests(Option<String>),
    /// Opens a shell on the serial port and powers off when it ends.
    Shell,
}

/// A file on the disk.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) name: &'static str,
    pub(crate) from: PathBuf,
}

/// Makes the disk at `disk`: these files, and the script that uses them.
///
/// # Errors
/// When a file cannot be copied or mke2fs fails.
pub(crate) fn disk(files: &[File], script: &str, disk: &Path) -> Result<()> {
    let tree = disk.with_extension("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    fs::create_dir_all(&tree).with_context(|| format!("cannot create {}", tree.display()))?;
    let mut bytes = 0;
    for File { name, from } in files {
        bytes +=
            fs::copy(from, tree.join(name)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let start = tree.join("start");
    fs::write(&start, script).with_context(|| format!("cannot write {}", start.display()))?;
    fs::set_permissions(&start, fs::Permissions::from_mode(0o755))?;
    mke2fs(&tree.join("scratch.ext4"), SCRATCH_MEBIBYTES, &["-O", "^has_journal"])?;
    let mebibytes = bytes / (1 << 20) + FREE_MEBIBYTES;
    if disk.exists() {
        fs::remove_file(disk).with_context(|| format!("cannot remove {}", disk.display()))?;
    }
    mke2fs(disk, mebibytes, &["-d".as_ref(), tree.as_os_str()])?;
    fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))
}

fn mke2fs(image: &Path, mebibytes: u64, options: &[impl AsRef<OsStr>]) -> Result<()> {
    let mke2fs = cmd::which("mke2fs").context("no mke2fs: run `cargo xtask setup`")?;
    let mut command = Command::new(mke2fs);
    command.args(["-q", "-t", "ext4"]).args(options).arg(image).arg(format!("{mebibytes}M"));
    cmd::output(&mut command).map(drop)
}

/// What a guest does with the tests.
pub(crate) fn script(mode: &Mode) -> String {
    let work = match mode {
        Mode::Tests(None) => "/run/payload/vm-tests".to_owned(),
        // Words were checked to be plain names, see `Selection::new`, or are our own.
        Mode::Tests(Some(word)) => format!("/run/payload/vm-tests --only {word}"),
        Mode::Shell => {
            "export TERM=dumb\necho 'tests: /run/payload/vm-tests; exit powers off'\nsetsid -c -w sh -i"
                .to_owned()
        }
    };
    format!("#!/bin/sh\n{work}\nsync\nsystemctl poweroff --force --force\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the guest does, it powers off afterwards.
    #[test]
    fn scripts_end_with_power_off() {
        for mode in [Mode::Tests(None), Mode::Tests(Some("boots".to_owned())), Mode::Shell] {
            assert!(script(&mode).ends_with("systemctl poweroff --force --force\n"));
        }
        assert!(script(&Mode::Tests(Some("boots".to_owned()))).contains("vm-tests --only boots\n"));
    }
}
