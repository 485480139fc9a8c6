//! Files whose paths others choose: configurations and bundles that a command line names, programs in a search path.
//!
//! To open the wrong thing is an act: a watchdog reboots the node when it is closed again, a tape rewinds, and who reads
//! the kernel's log takes it away from others. A container may have put any of them, or a link to it, where a file is
//! expected. So its type is looked at before it is opened, and its links lead nowhere but below the root of whoever
//! named it.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _},
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    },
    path::{Component, Path},
};

use super::program::path_of_open;

/// Filesystems whose regular files are answers of the kernel: to read some of them takes something away, or waits.
const OF_THE_KERNEL: [i64; 5] = [
    libc::PROC_SUPER_MAGIC,
    libc::SYSFS_MAGIC,
    libc::DEBUGFS_MAGIC,
    libc::TRACEFS_MAGIC,
    libc::SECURITYFS_MAGIC,
];

/// Links on the way to a file, as the kernel limits them (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// Opens a regular file to be read; `path` begins at `root`, the root directory of whoever named it.
///
/// # Errors
///
/// It cannot be opened, is no regular file, or is one of the kernel's: [`io::ErrorKind::InvalidInput`].
pub(crate) fn open_in(root: &Path, path: &Path) -> io::Result<File> {
    let root = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root)?;
    let place = match resolve(&root, path) {
        // A filter of system calls that does not know this one, or cannot look into its arguments, does not permit it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => walk(&root, path)?,
        place => place?,
    };
    if !place.metadata()?.is_file() || is_of_the_kernel(&place)? {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path_of_open(&place))
}

/// The place that a path means below a root: its links do not lead out of it (`openat2`, Linux 5.6).
fn resolve(root: &File, path: &Path) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all zeros is a valid value of this structure of integers.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::try_from(libc::O_PATH | libc::O_CLOEXEC).map_err(io::Error::other)?;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: path and structure are valid for the call, and its size is told.
    let fd = unsafe {
        libc::syscall(libc::SYS_openat2, root.as_raw_fd(), path.as_ptr(), &raw const how, size_of_val(&how))
    };
    owned(i32::try_from(fd).map_err(io::Error::other)?)
}

/// The same one name after the other.
fn walk(root: &File, path: &Path) -> io::Result<File> {
    // Names still to go, the next one last; and the directories that were entered.
    let mut rest: Vec<OsString> = reversed(path);
    let mut entered: Vec<File> = Vec::new();
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            // The root is above itself.
            entered.pop();
            continue;
        }
        let place = step(entered.last().unwrap_or(root), &name)?;
        if !place.metadata()?.is_symlink() {
            entered.push(place);
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = rustix::fs::readlinkat(&place, c"", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            entered.clear();
        }
        rest.extend(reversed(target));
    }
    entered.pop().map_or_else(|| root.try_clone(), Ok)
}

/// Names of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let named = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(named).map(|part| part.as_os_str().to_owned()).collect()
}

/// An entry of a directory. A link is opened as itself: it is no directory to go on from, and no file to read.
fn step(dir: &File, name: &OsStr) -> io::Result<File> {
    let name = CString::new(name.as_bytes())?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: an open directory and a string that ends with zero.
    owned(unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags) })
}

fn owned(fd: i32) -> io::Result<File> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a call has just made it, for us alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn is_of_the_kernel(place: &File) -> io::Result<bool> {
    // By its path: `fstatfs` takes such a descriptor since Linux 3.12 only.
    let path = CString::new(path_of_open(place).into_os_string().as_bytes())?;
    // SAFETY: all zeros is a valid value of this structure of integers.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string that ends with zero, and a valid place for the answer.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut status) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(OF_THE_KERNEL.contains(&status.f_type))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Read as _,
        os::unix::fs::{MetadataExt as _, symlink},
    };

    use super::*;

    fn made(path: &Path, kind: libc::mode_t) -> bool {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a string that ends with zero, and numbers.
        unsafe { libc::mknod(path.as_ptr(), kind | 0o600, 0) == 0 }
    }

    fn refusal(root: &Path, path: &str) -> io::ErrorKind {
        open_in(root, Path::new(path)).unwrap_err().kind()
    }

    /// Links begin at the root they are below, and do not lead out of it.
    #[test]
    fn links_stay_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/real"), "x").unwrap();
        symlink("/etc/real", root.path().join("link")).unwrap();
        symlink("../../../../etc/passwd", root.path().join("out")).unwrap();
        let mut text = String::new();
        open_in(root.path(), Path::new("/link")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        assert_eq!(refusal(root.path(), "/out"), io::ErrorKind::NotFound);
        assert_eq!(refusal(root.path(), "/../../etc/passwd"), io::ErrorKind::NotFound);
        assert_eq!(refusal(root.path(), "/etc"), io::ErrorKind::InvalidInput, "a directory");
    }

    /// Opens of a file, as the kernel tells them; a descriptor that is only a place is none.
    struct Opens(File);

    impl Opens {
        fn watch(path: &Path) -> Self {
            let name = CString::new(path.as_os_str().as_bytes()).unwrap();
            // SAFETY: no pointers, and a string that ends with zero.
            let watch = unsafe {
                let watch = owned(libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC)).unwrap();
                assert!(libc::inotify_add_watch(watch.as_raw_fd(), name.as_ptr(), libc::IN_OPEN) >= 0);
                watch
            };
            Self(watch)
        }

        fn any(&mut self) -> bool {
            match self.0.read(&mut [0; 4096]) {
                Ok(length) => length > 0,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    false
                }
            }
        }
    }

    /// A FIFO is never opened, and so nobody who waits for its reader goes on.
    #[test]
    fn a_fifo_is_not_opened() {
        let root = tempfile::tempdir().unwrap();
        let fifo = root.path().join("fifo");
        assert!(made(&fifo, libc::S_IFIFO));
        symlink("/fifo", root.path().join("link")).unwrap();
        let mut opens = Opens::watch(&fifo);
        for path in ["/fifo", "/link"] {
            assert_eq!(refusal(root.path(), path), io::ErrorKind::InvalidInput);
        }
        assert!(!opens.any());
        drop(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap());
        assert!(opens.any(), "an open is told");
    }

    /// A device is not opened: this one has no driver, and the kernel would say so.
    #[test]
    fn a_device_is_not_opened() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("device");
        assert!(made(&device, libc::S_IFCHR), "before Linux 5.8 this takes root");
        symlink("/device", root.path().join("link")).unwrap();
        for path in ["/device", "/link"] {
            assert_eq!(refusal(root.path(), path), io::ErrorKind::InvalidInput);
        }
    }

    /// Answers of the kernel are no files of a container, not even by links.
    #[test]
    fn files_of_the_kernel_are_refused() {
        let root = Path::new("/");
        assert_eq!(refusal(root, "/proc/version"), io::ErrorKind::InvalidInput);
        assert_eq!(refusal(root, "/sys/kernel/notes"), io::ErrorKind::InvalidInput);
        let magic = open_in(root, Path::new("/proc/self/exe")).unwrap_err();
        assert_eq!(magic.raw_os_error(), Some(libc::ELOOP));
    }

    /// Without `openat2` it is the same.
    #[test]
    fn walks() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/real"), "x").unwrap();
        for (target, name) in
            [("etc", "dir"), ("/dir/real", "link"), ("../../../etc/passwd", "out"), ("circle", "circle")]
        {
            symlink(target, dir.path().join(name)).unwrap();
        }
        let root = File::open(dir.path()).unwrap();
        let real = fs::metadata(dir.path().join("etc/real")).unwrap().ino();
        let both = |path: &str| {
            let found = [walk(&root, Path::new(path)), resolve(&root, Path::new(path))];
            let [walked, resolved] = found.map(|place| {
                let found = place.and_then(|place| place.metadata());
                found.map(|found| found.ino()).map_err(|error| error.raw_os_error())
            });
            assert_eq!(walked, resolved, "{path}");
            walked
        };
        for path in ["/etc/./real", "/link", "/dir/real", "/etc/../etc/real", "/../../dir/../etc/real"] {
            assert_eq!(both(path), Ok(real), "{path}");
        }
        assert_eq!(both("/out"), Err(Some(libc::ENOENT)));
        assert_eq!(both("/circle"), Err(Some(libc::ELOOP)));
        assert_eq!(both("/etc/real/x"), Err(Some(libc::ENOTDIR)));
        assert_eq!(both("/"), Ok(root.metadata().unwrap().ino()));
    }
}
