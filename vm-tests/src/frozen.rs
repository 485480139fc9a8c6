//! A file system that does not answer, and a containerd that is stuck in a page fault because of it: as on a node with a
//! dead disk.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{io, mem, ptr};

use anyhow::{Context as _, Result, ensure};

use crate::undo::Undo;
use crate::wait::{self, BUDGET};

/// `FIFREEZE` and `FITHAW` (include/uapi/linux/fs.h): `_IOWR('X', 119, int)` and the next.
const FREEZE: libc::c_ulong = 0xc004_5877;
const THAW: libc::c_ulong = 0xc004_5878;
/// Whatever hangs, a frozen file system is thawed after this time.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A small ext4 that can be frozen. Unmounted when dropped.
#[derive(Debug)]
pub struct Scratch {
    mount: PathBuf,
}

impl Scratch {
    /// Mounts a copy of the image that is beside this program.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount() -> Result<Self> {
        let own = std::env::current_exe()?;
        let image = Path::new("/var/tmp/scratch.ext4");
        fs::copy(own.with_file_name("scratch.ext4"), image).context("cannot copy scratch.ext4")?;
        let mount = PathBuf::from("/var/tmp/scratch");
        fs::create_dir_all(&mount)?;
        wait::output(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&mount), BUDGET)?;
        Ok(Self { mount })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// A file of one page.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn file(&self) -> Result<File> {
        let path = self.mount.join("page");
        fs::write(&path, [0; 4096])?;
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        file.sync_all()?;
        Ok(file)
    }

    /// Freezes it: whoever writes to it waits until what is returned is dropped, or for a minute.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn freeze(&self) -> Result<Undo> {
        let dir = File::open(&self.mount)?;
        control(dir.as_raw_fd(), FREEZE).context("cannot freeze")?;
        let thaw = move || control(dir.as_raw_fd(), THAW).expect("a frozen file system can be thawed");
        Ok(Undo::within(WATCHDOG, "the file system was frozen", thaw))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A program that still runs may have its file mapped.
        drop(wait::output(Command::new("umount").arg("-l").arg(&self.mount), BUDGET));
    }
}

fn control(file: RawFd, request: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these requests do not use their argument.
    let done = unsafe { libc::ioctl(file, request as _, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A process that runs containerd's file and will touch a page of another file. Killed when dropped, which lasts until
/// that page can be touched.
#[derive(Debug)]
pub struct Toucher(Child);

impl Toucher {
    /// Starts it and keeps it at its first instruction.
    ///
    /// # Errors
    /// When it cannot be started or traced.
    pub fn start(program: &Path, file: &File) -> Result<Self> {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let fd = file.as_raw_fd();
        // SAFETY: both calls are safe between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let traced = libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0;
                let kept = libc::fcntl(fd, libc::F_SETFD, 0) == 0;
                if traced && kept { Ok(()) } else { Err(io::Error::last_os_error()) }
            });
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let toucher = Self(child);
        let mut status = 0;
        // SAFETY: waits for our own child.
        let stopped = unsafe { libc::waitpid(toucher.pid(), &raw mut status, 0) };
        ensure!(stopped == toucher.pid() && libc::WIFSTOPPED(status), "it did not stop: {status:#x}");
        Ok(toucher)
    }

    /// Has it map the page of `file` and write to it, instead of all that it would have done.
    ///
    /// # Errors
    /// When it cannot be traced.
    pub fn touch(&self, file: &File) -> Result<()> {
        // SAFETY: plain old data.
        let mut registers: libc::user_regs_struct = unsafe { mem::zeroed() };
        let to: *mut libc::c_void = (&raw mut registers).cast();
        // SAFETY: the process is stopped and traced by us; the kernel writes one `user_regs_struct`.
        ensure!(unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid(), 0, to) } == 0, "no registers");
        registers.rax = u64::try_from(libc::SYS_mmap)?;
        registers.orig_rax = u64::MAX;
        (registers.rdi, registers.rsi) = (0, 4096);
        registers.rdx = u64::try_from(libc::PROT_READ | libc::PROT_WRITE)?;
        registers.r10 = u64::try_from(libc::MAP_SHARED)?;
        (registers.r8, registers.r9) = (u64::try_from(file.as_raw_fd())?, 0);
        // syscall; mov byte ptr [rax], 1; jmp to itself
        let code = i64::from_le_bytes([0x0f, 0x05, 0xc6, 0x00, 0x01, 0xeb, 0xfe, 0x90]);
        // SAFETY: as above; what is written is code of that process alone.
        let done = unsafe {
            libc::ptrace(libc::PTRACE_POKETEXT, self.pid(), registers.rip, code) == 0
                && libc::ptrace(libc::PTRACE_SETREGS, self.pid(), 0, to) == 0
                && libc::ptrace(libc::PTRACE_DETACH, self.pid(), ptr::null_mut::<()>(), 0) == 0
        };
        ensure!(done, "cannot write its code: {}", io::Error::last_os_error());
        self.stuck().map(drop)
    }

    /// Waits until it is in a page fault that does not end; gives its kernel stack.
    fn stuck(&self) -> Result<String> {
        let task = PathBuf::from(format!("/proc/{}", self.pid()));
        wait::until("it to be stuck", BUDGET, || {
            let stack = fs::read_to_string(task.join("stack"))?;
            Ok(stack.contains("page_mkwrite").then_some(stack))
        })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> libc::pid_t {
        libc::pid_t::try_from(self.0.id()).unwrap_or(-1)
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
