//! A file system whose server answers the kernel's greeting and then nothing more.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::undo::Undo;
use crate::wait::{self, BUDGET};

const DEVICE: &str = "/dev/fuse";
/// Longest request: include/uapi/linux/fuse.h, `FUSE_MIN_READ_BUFFER` with room to spare.
const REQUEST: usize = 64 << 10;
/// `FUSE_INIT` of the same file, and the version of the protocol that is spoken.
const INIT: u32 = 26;
const VERSION: [u32; 2] = [7, 31];
/// Sizes of `struct fuse_out_header` and `struct fuse_init_out`.
const HEADER: usize = 16;
const ANSWER: usize = HEADER + 64;

/// Who holds it, and what keeps its users from hanging for ever. Unmounted when dropped.
#[derive(Debug)]
pub struct Dead {
    mount: PathBuf,
    server: u32,
    over: Option<Undo>,
}

impl Dead {
    /// Mounts it, and gives it to a process of its own that only sleeps.
    ///
    /// # Errors
    /// When the kernel has no FUSE, or does not greet.
    pub fn mount() -> Result<Self> {
        // Where it is a module; where it is not, this fails and opening says the rest.
        drop(wait::output(Command::new("modprobe").arg("fuse"), BUDGET));
        let mount = PathBuf::from("/var/tmp/plegtrace-fuse");
        fs::create_dir_all(&mount)?;
        let mut device = OpenOptions::new().read(true).write(true).open(DEVICE).context(DEVICE)?;
        attach(&device, &mount)?;
        greet(&mut device).context("the kernel does not greet the server of a file system")?;
        let server = Command::new("sleep").arg("1000").stdin(Stdio::from(device)).spawn()?;
        let pid = server.id();
        let over = Undo::within(crate::stall::WATCHDOG, "the file system did not answer", || end(server));
        Ok(Self { mount, server: pid, over: Some(over) })
    }

    /// A file below it; nobody knows whether it exists.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.mount.join("file")
    }

    /// Its server.
    #[must_use]
    pub fn server(&self) -> u32 {
        self.server
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        // Without a server whoever waits gets an error.
        self.over = None;
        drop(wait::output(Command::new("umount").arg("-l").arg(&self.mount), BUDGET));
    }
}

fn end(mut server: Child) {
    drop(server.kill());
    drop(server.wait());
}

fn attach(device: &File, mount: &Path) -> Result<()> {
    let options = CString::new(format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd()))?;
    let target = CString::new(mount.as_os_str().as_encoded_bytes())?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: four strings that end with a zero.
    let mounted = unsafe {
        libc::mount(c"plegtrace".as_ptr(), target.as_ptr(), c"fuse".as_ptr(), flags, options.as_ptr().cast())
    };
    ensure!(mounted == 0, "cannot mount {}: {}", mount.display(), io::Error::last_os_error());
    Ok(())
}

/// Answers the first request. Its header begins with length, kind and number.
fn greet(device: &mut File) -> Result<()> {
    let mut request = vec![0; REQUEST];
    let length = device.read(&mut request)?;
    ensure!(length >= HEADER && request[4..8] == INIT.to_le_bytes(), "its first request is another one");
    let mut answer = [0; ANSWER];
    answer[..4].copy_from_slice(&u32::try_from(ANSWER)?.to_le_bytes());
    answer[8..16].copy_from_slice(&request[8..16]);
    answer[HEADER..HEADER + 4].copy_from_slice(&VERSION[0].to_le_bytes());
    answer[HEADER + 4..HEADER + 8].copy_from_slice(&VERSION[1].to_le_bytes());
    ensure!(device.write(&answer)? == ANSWER, "the answer is not taken");
    Ok(())
}
