//! A program on a disk that answers late: a FUSE file system with one file, of which the first read by each process that is not the
//! program itself takes its time.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fuser::{
    BackgroundSession, Config, Errno, FileHandle, Filesystem, Generation, INodeNo, LockOwner, MountOption,
    OpenFlags, ReplyAttr, ReplyData, ReplyEntry, Request,
};

use crate::one_file::{FILE, KEPT, attributes};
use crate::process;

/// The file. It goes with its mount when dropped.
#[derive(Debug)]
pub struct SlowFile {
    path: PathBuf,
    late: Arc<Mutex<HashSet<u32>>>,
    _session: BackgroundSession,
}

impl SlowFile {
    /// Mounts a copy of `program`, with its name, at the new directory `at`. Whoever is not called by that name waits for `delay` at
    /// its first read that does not come from the page cache.
    ///
    /// # Errors
    ///
    /// When the kernel has no FUSE.
    pub fn mount(program: &Path, at: &Path, delay: Duration) -> Result<Self> {
        let name = program.file_name().context("a program without a name")?.to_owned();
        let file = Arc::new(File::open(program).context("cannot open a program")?);
        let size = file.metadata().context("cannot look at a program")?.len();
        fs::create_dir(at).context("cannot make a mount point")?;
        let late = Arc::default();
        let server = Server { name, file, size, delay, late: Arc::clone(&late) };
        let path = at.join(&server.name);
        let mut options = Config::default();
        options.mount_options =
            vec![MountOption::RO, MountOption::Exec, MountOption::FSName("slow".to_owned())];
        let session = fuser::spawn_mount(server, at, &options).context("cannot mount FUSE")?;
        Ok(Self { path, late, _session: session })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many threads had to wait.
    #[must_use]
    pub fn late(&self) -> usize {
        self.late.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[derive(Debug)]
struct Server {
    name: OsString,
    file: Arc<File>,
    size: u64,
    delay: Duration,
    late: Arc<Mutex<HashSet<u32>>>,
}

impl Server {
    /// Does this thread have to wait?
    fn is_late(&self, thread: u32) -> bool {
        let is_program = OsStr::new(&process::name(thread)) == self.name;
        !is_program && self.late.lock().unwrap_or_else(PoisonError::into_inner).insert(thread)
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == self.name {
            reply.entry(&KEPT, &attributes(FILE, self.size), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEPT, &attributes(inode, self.size));
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let delay = if self.is_late(request.pid()) { self.delay } else { Duration::ZERO };
        let file = Arc::clone(&self.file);
        // Others are served meanwhile.
        thread::spawn(move || {
            thread::sleep(delay);
            let mut bytes = vec![0; size as usize];
            match file.read_at(&mut bytes, offset) {
                Ok(read) => reply.data(&bytes[..read]),
                Err(_) => reply.error(Errno::EIO),
            }
        });
    }
}
