//! A program that must permit each access to the files of a file system, and never answers.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::FromRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::stall::WATCHDOG;
use crate::undo::Undo;
use crate::wait::{self, BUDGET};

/// A small file system of its own. Unmounted when dropped.
#[derive(Debug)]
pub struct Guarded(PathBuf);

impl Guarded {
    /// Mounts it.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount() -> Result<Self> {
        let path = PathBuf::from("/var/tmp/plegtrace-guarded");
        fs::create_dir_all(&path)?;
        wait::output(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&path), BUDGET)?;
        Ok(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// From now on a process of its own must permit each open of its files, and does not, until what is returned is dropped or for
    /// some time. Gives the process as well.
    ///
    /// # Errors
    /// When the kernel does not allow that.
    pub fn guard(&self) -> Result<(u32, Undo)> {
        let agent = Command::new("sleep").arg("1000").stdin(Stdio::from(permissions(&self.0)?)).spawn()?;
        let pid = agent.id();
        let end = move || {
            // Then the kernel permits whatever waits.
            let mut agent = agent;
            drop(agent.kill());
            drop(agent.wait());
        };
        Ok((pid, Undo::within(WATCHDOG, "files were guarded", end)))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(wait::output(Command::new("umount").arg("-l").arg(&self.0), BUDGET));
    }
}

/// The opens of all files of the file system there, each of which waits for an answer (fanotify(7)).
fn permissions(path: &Path) -> Result<File> {
    // SAFETY: no memory is involved.
    let fd =
        unsafe { libc::fanotify_init(libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC, libc::O_RDONLY as u32) };
    ensure!(fd >= 0, "fanotify_init: {}", io::Error::last_os_error());
    // SAFETY: it is ours, and nobody else has it.
    let file = unsafe { File::from_raw_fd(fd) };
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    // SAFETY: a string that ends with a zero.
    let marked =
        unsafe { libc::fanotify_mark(fd, flags, libc::FAN_OPEN_PERM, libc::AT_FDCWD, path.as_ptr()) };
    ensure!(marked == 0, "fanotify_mark: {}", io::Error::last_os_error());
    Ok(file)
}
