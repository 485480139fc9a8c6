//! A file that cannot be closed for a while: whoever has it open cannot end, not even by SIGKILL. FUSE asks its server at each close
//! (FLUSH), and waits for the answer whatever happens (`fuse_flush`, fs/fuse/file.c, `args.force`).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};
use fuser::{
    BackgroundSession, Config, Errno, FileHandle, Filesystem, Generation, INodeNo, LockOwner, MountOption,
    ReplyAttr, ReplyEmpty, ReplyEntry, Request,
};

use crate::one_file::{FILE, KEPT, attributes};

const NAME: &str = "held";

/// The file. Dropped, it lets go of everybody, and its mount goes.
#[derive(Debug)]
pub struct HeldFile {
    path: PathBuf,
    state: Arc<Mutex<State>>,
    _session: BackgroundSession,
}

#[derive(Debug, Default)]
struct State {
    holds: bool,
    /// Those that are closing it.
    waiting: Vec<ReplyEmpty>,
}

impl HeldFile {
    /// Mounts it at the new directory `at`.
    ///
    /// # Errors
    ///
    /// When the kernel has no FUSE.
    pub fn mount(at: &Path) -> Result<Self> {
        fs::create_dir(at).context("cannot make a mount point")?;
        let state: Arc<Mutex<State>> = Arc::default();
        let mut options = Config::default();
        options.mount_options = vec![MountOption::RO, MountOption::FSName(NAME.to_owned())];
        let session =
            fuser::spawn_mount(Server(Arc::clone(&state)), at, &options).context("cannot mount FUSE")?;
        Ok(Self { path: at.join(NAME), state, _session: session })
    }

    /// Whatever `start` starts has the file open. This process has not: what it starts later would wait as it closes it.
    ///
    /// # Errors
    ///
    /// Those of `start`, or the file cannot be opened.
    pub fn open_in(&self, start: impl FnOnce() -> Result<()>) -> Result<()> {
        let file = File::open(&self.path).context("cannot open a file on FUSE")?;
        // SAFETY: the descriptor is ours, and no memory is involved.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        ensure!(done == 0, "cannot hand a descriptor down: {}", std::io::Error::last_os_error());
        start()
    }

    /// From now on nobody comes to the end of closing it.
    pub fn hold(&self) {
        lock(&self.state).holds = true;
    }

    /// Everybody does.
    pub fn let_go(&self) {
        let mut state = lock(&self.state);
        state.holds = false;
        state.waiting.drain(..).for_each(ReplyEmpty::ok);
    }

    /// How many are closing it.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting.len()
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Server(Arc<Mutex<State>>);

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == NAME {
            reply.entry(&KEPT, &attributes(FILE, 0), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEPT, &attributes(inode, 0));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let mut state = lock(&self.0);
        if state.holds {
            state.waiting.push(reply);
        } else {
            reply.ok();
        }
    }
}
