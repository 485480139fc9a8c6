//! [`Program`]: an executable that is started again and again, as an open file: the process that told of it may be gone
//! long before it is analysed.

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    foreign::open_in,
    identity::{self, exe_link, exe_path},
    process::namespace,
};

/// An open executable.
#[derive(Debug)]
pub struct Program {
    /// The file.
    pub file: File,
    /// Its path in the mount namespace in which it was found.
    pub path: PathBuf,
    /// Which file it is, and in which state.
    pub version: FileVersion,
}

/// A file in one state: it has another one when it is replaced, and when it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: (i64, i64),
}

impl Program {
    /// What a process runs. `None` when it is gone, and for files without a name: runc seals a copy of itself in memory
    /// for each container, and the next one has another.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn of_process(pid: u32) -> io::Result<Option<Self>> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let Some(path) = exe_path(&process) else { return Ok(None) };
        let file = match std::fs::File::open(exe_link(pid)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Self::from_file(file, path)
    }

    /// The first executable of this name in `directories`, as the process `pid` sees them.
    #[must_use]
    pub fn find(pid: u32, directories: &[PathBuf], name: &str) -> Option<Self> {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let absolute = directories.iter().filter(|directory| directory.is_absolute());
        absolute.map(|directory| directory.join(name)).find_map(|path| {
            let file = open_in(&root, &path).ok()?;
            let executable = file.metadata().is_ok_and(|meta| meta.mode() & 0o111 != 0);
            Self::from_file(file, path).ok().flatten().filter(|_| executable)
        })
    }

    fn from_file(file: File, path: PathBuf) -> io::Result<Option<Self>> {
        let meta = file.metadata()?;
        let version = FileVersion {
            dev: meta.dev(),
            ino: meta.ino(),
            size: meta.size(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
        };
        Ok((meta.nlink() > 0).then_some(Self { file, path, version }))
    }
}

/// Do both processes see the same mounts? Not when one of them is gone.
#[must_use]
pub fn share_mounts(a: u32, b: u32) -> bool {
    let mounts = |pid: u32| namespace(Path::new(&format!("/proc/{pid}")), "mnt");
    mounts(a).is_some_and(|of_a| mounts(b) == Some(of_a))
}

/// A path that leads to an open file, whatever is at its own path by now.
#[must_use]
pub(crate) fn path_of_open(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A read lease on a file (`fcntl(2)`, `F_SETLEASE`): whoever opens it for writing waits until the lease is given up.
///
/// A program that runs cannot be written to, so its probes stay where they belong. One that runs only now and then can,
/// and so can one that has ended: then the kernel would put breakpoints into the new text at the places of the old one.
/// With a lease, the probes are taken off first. The kernel waits for that for 45 s at most
/// (`/proc/sys/fs/lease-break-time`).
#[derive(Debug)]
pub struct Lease {
    /// `None`: nobody is kept from writing.
    file: Option<File>,
    end: LeaseEnd,
}

/// Says to the holder of a lease that it is not needed any more.
#[derive(Clone, Debug, Default)]
pub struct LeaseEnd(Arc<AtomicBool>);

impl LeaseEnd {
    /// The lease shall be given up, and what it guards be taken off.
    pub fn give_up(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Shall it?
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Lease {
    /// Takes a lease.
    ///
    /// # Errors
    ///
    /// Somebody has the file open for writing, its filesystem knows no leases, or the privilege is missing (`CAP_LEASE`
    /// for files of others).
    pub fn take(file: &File) -> io::Result<Self> {
        // The lease belongs to the open file, which others may share; so it is opened once more.
        let file = identity::open(&path_of_open(file)).map_err(io::Error::other)?;
        // SAFETY: to ignore this signal, which would end us, has no preconditions.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        // SAFETY: an open file and constants.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file: Some(file), end: LeaseEnd::default() })
    }

    /// In the place of a lease that cannot be had, where that is no reason to go without probes.
    #[must_use]
    pub fn of_nothing() -> Self {
        Self { file: None, end: LeaseEnd::default() }
    }

    /// By which it is ended.
    #[must_use]
    pub fn end(&self) -> LeaseEnd {
        self.end.clone()
    }

    /// Does nobody want to write to the file, and is the lease still needed?
    #[must_use]
    pub fn is_intact(&self) -> bool {
        // SAFETY: an open file and a constant.
        let holds = |file: &File| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK };
        !self.end.is_given_up() && self.file.as_ref().is_none_or(holds)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    /// A process tells its program; a file without a name is none that others will start.
    #[test]
    fn programs_of_processes() {
        let own = Program::of_process(std::process::id()).unwrap().unwrap();
        assert_eq!(own.path, std::env::current_exe().unwrap());
        assert!(Program::of_process(u32::MAX).unwrap().is_none());
        assert!(share_mounts(std::process::id(), std::process::id()));
        assert!(!share_mounts(std::process::id(), u32::MAX) && !share_mounts(u32::MAX, u32::MAX));
        let sealed = tempfile::tempfile().unwrap();
        assert!(Program::from_file(sealed, PathBuf::from("/memfd:runc")).unwrap().is_none());
    }

    /// The first executable counts; what is written to or replaced is another version.
    #[test]
    fn programs_by_name() {
        let tree = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| tree.path().join(name));
        for dir in [&first, &second] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("runc"), "x").unwrap();
        }
        fs::set_permissions(second.join("runc"), fs::Permissions::from_mode(0o755)).unwrap();
        let find = || {
            Program::find(std::process::id(), &[PathBuf::from("."), first.clone(), second.clone()], "runc")
        };
        let found = find().unwrap();
        assert_eq!(found.path, second.join("runc"), "the other one is not executable");
        assert_eq!(find().unwrap().version, found.version);
        fs::write(second.join("runc"), "longer").unwrap();
        assert_ne!(find().unwrap().version, found.version);
        fs::remove_file(second.join("runc")).unwrap();
        assert!(find().is_none());
        assert!(Program::find(u32::MAX, &[second], "runc").is_none());
    }

    /// A writer waits until the lease is given up; a reader does not.
    #[test]
    fn writers_wait_for_a_lease() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("runc");
        fs::write(&path, "old").unwrap();
        let lease = Lease::take(&File::open(&path).unwrap()).unwrap();
        assert!(fs::read(&path).is_ok() && lease.is_intact());
        let writer = std::thread::spawn({
            let path = path.clone();
            move || fs::write(path, "new").unwrap()
        });
        while lease.is_intact() {
            std::thread::yield_now();
        }
        assert_eq!(fs::read(&path).unwrap(), b"old", "it waits");
        drop(lease);
        writer.join().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let written = fs::OpenOptions::new().write(true).open(&path).unwrap();
        assert!(Lease::take(&File::open(&path).unwrap()).is_err(), "somebody writes");
        drop(written);
    }

    /// The file of a program that runs can be guarded as well; without a guard there is still an end.
    #[test]
    fn leases_end() {
        let own = File::open(exe_link(std::process::id())).unwrap();
        for lease in [Lease::take(&own).unwrap(), Lease::of_nothing()] {
            let end = lease.end();
            assert!(lease.is_intact() && !end.is_given_up());
            end.give_up();
            assert!(!lease.is_intact() && lease.end().is_given_up());
        }
    }
}
