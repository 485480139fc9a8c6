//! Numbers of system calls → names, and which of their arguments are worth a look.

use super::{
    files::{Holders, Open, Opened},
    sockets::Sockets,
};
use crate::{
    census::text::Position,
    input::{FdFact, FdTarget, SyscallFact},
};

/// Longest path that is read (`PATH_MAX`).
const MAX_PATH: usize = 4096;
/// Memory is read in pieces that do not cross this, so that a path at the end of a mapping is read whole.
const PAGE: u64 = 4096;

/// Calls that work on the descriptor in their first argument.
const ON_FD: &[&str] = &[
    "read",
    "write",
    "readv",
    "writev",
    "pread64",
    "pwrite64",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "accept",
    "accept4",
    "connect",
    "shutdown",
    "fsync",
    "fdatasync",
    "syncfs",
    "sync_file_range",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "flock",
    "fcntl",
    "ioctl",
    "ftruncate",
    "fallocate",
    "getdents",
    "getdents64",
    "fstat",
    "fstatfs",
    "fchdir",
    "fchown",
    "fchmod",
    "close",
    "splice",
    "sendfile",
    "setns",
];

/// Calls with a path, and which argument that is.
const ON_PATH: &[(&str, usize)] = &[
    ("open", 0),
    ("openat", 1),
    ("openat2", 1),
    ("creat", 0),
    ("stat", 0),
    ("lstat", 0),
    ("newfstatat", 1),
    ("statx", 1),
    ("statfs", 0),
    ("access", 0),
    ("faccessat", 1),
    ("faccessat2", 1),
    ("readlink", 0),
    ("readlinkat", 1),
    // The target: the source may be any word.
    ("mount", 1),
    ("umount2", 0),
    ("pivot_root", 0),
    ("chroot", 0),
    ("chdir", 0),
    ("mkdir", 0),
    ("mkdirat", 1),
    ("mknod", 0),
    ("mknodat", 1),
    ("rmdir", 0),
    ("unlink", 0),
    ("unlinkat", 1),
    ("rename", 0),
    ("renameat", 1),
    ("renameat2", 1),
    ("link", 0),
    ("linkat", 1),
    ("symlink", 1),
    ("symlinkat", 2),
    ("truncate", 0),
    ("chown", 0),
    ("chmod", 0),
    ("fchmodat", 1),
    ("fchownat", 1),
    ("execve", 0),
    ("execveat", 1),
];

/// The name of a call on this machine.
pub(super) fn name(nr: i64) -> Option<&'static str> {
    Some(syscalls::Sysno::new(usize::try_from(nr).ok()?)?.name())
}

/// Where the path is that a call was given.
pub(super) fn path_address(call: &SyscallFact) -> Option<u64> {
    let name = call.name.as_deref()?;
    let (_, place) = ON_PATH.iter().find(|(known, _)| *known == name)?;
    call.args.get(*place).copied().filter(|address| *address != 0)
}

/// The call a thread of `pid` is inside.
pub(super) fn fact(pid: u32, at: &Position, holders: &Holders, sockets: &Sockets) -> Option<SyscallFact> {
    let Position::Inside { nr, args, .. } = *at else { return None };
    let name = name(nr);
    let fd = name.filter(|name| ON_FD.contains(name)).and_then(|_| descriptor(args[0]));
    let fd = fd.and_then(|fd| descriptor_of(pid, fd, holders, sockets));
    Some(SyscallFact {
        nr,
        name: name.map(str::to_owned),
        args,
        fd,
        path: None,
        lock_holder: None,
        watched: Vec::new(),
    })
}

/// What a descriptor of `pid` refers to.
pub(super) fn descriptor_of(pid: u32, fd: i32, holders: &Holders, sockets: &Sockets) -> Option<FdFact> {
    holders.fd(pid, fd).map(|open| descriptor_fact(open, holders, sockets))
}

/// The descriptor that a call of `pid` opens once more, as `runc init` does with exec.fifo: by its path below
/// /proc/self, or (since runc 1.2.8, 1.3.3 and 1.4) by its number in a directory that was opened before, which belongs
/// to a mount of procfs that nobody else has.
pub(super) fn reopened(pid: u32, call: &SyscallFact, holders: &Holders) -> Option<i32> {
    let path = call.path.as_deref()?;
    if let Some(fd) = own_descriptor(path) {
        return Some(fd);
    }
    let opens = matches!(call.name.as_deref(), Some("openat" | "openat2"));
    let number = opens && path.bytes().all(|byte| byte.is_ascii_digit());
    let dir = holders.fd(pid, descriptor(call.args[0]).filter(|_| number)?)?;
    match &dir.what {
        Opened::File(dir) if dir.ends_with("/fd") => path.parse().ok(),
        _ => None,
    }
}

/// The path of a call that was given a directory and a path below it, from the root on: `mkdirat(5, "new")`.
pub(super) fn from_directory(pid: u32, call: &SyscallFact, holders: &Holders) -> Option<String> {
    let path = call.path.as_deref().filter(|path| !path.starts_with('/'))?;
    let name = call.name.as_deref()?;
    let takes_directory = name.ends_with("at") || name.ends_with("at2") || name == "statx";
    let dir =
        holders.fd(pid, descriptor(call.args[0]).filter(|_| takes_directory && name != "symlinkat")?)?;
    match &dir.what {
        Opened::File(dir) if dir.starts_with('/') => Some(format!("{}/{path}", dir.trim_end_matches('/'))),
        _ => None,
    }
}

fn own_descriptor(path: &str) -> Option<i32> {
    let own = ["/proc/self/fd/", "/proc/thread-self/fd/"];
    own.iter().find_map(|start| path.strip_prefix(start))?.parse().ok()
}

/// A descriptor is the lower half of its argument; the upper one may be anything.
fn descriptor(argument: u64) -> Option<i32> {
    i32::try_from(argument & u64::from(u32::MAX)).ok()
}

fn descriptor_fact(open: &Open, holders: &Holders, sockets: &Sockets) -> FdFact {
    let target = match &open.what {
        Opened::Pipe { inode, .. } => FdTarget::Pipe(holders.pipe(*inode)),
        Opened::Socket(inode) => match sockets.fact(*inode, holders) {
            Some(socket) => FdTarget::Socket(socket),
            None => FdTarget::Other { link: format!("socket:[{inode}]") },
        },
        Opened::File(path) => FdTarget::File { path: path.clone() },
        Opened::Other(link) => FdTarget::Other { link: link.clone() },
    };
    FdFact { fd: open.fd, target }
}

/// Reads a text that ends with zero in the memory of another process. Waits for its memory lock, and for the
/// filesystem of the page when it is not in memory.
pub(super) fn read_path(pid: u32, mut address: u64) -> Option<String> {
    let mut path = Vec::new();
    while path.len() < MAX_PATH {
        let room = usize::try_from(PAGE - address % PAGE).ok()?.min(MAX_PATH - path.len());
        let mut piece = vec![0u8; room];
        let local = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: room };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: room };
        // SAFETY: the local buffer is ours and as long as said; the remote one is checked by the kernel.
        let read = unsafe {
            libc::process_vm_readv(pid.cast_signed(), &raw const local, 1, &raw const remote, 1, 0)
        };
        piece.truncate(usize::try_from(read).ok()?);
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            path.extend_from_slice(&piece[..end]);
            return (!path.is_empty()).then(|| String::from_utf8_lossy(&path).into_owned());
        }
        if piece.is_empty() {
            return None;
        }
        address = address.checked_add(piece.len() as u64)?;
        path.extend_from_slice(&piece);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{super::tell::Tell, *};

    /// Every name in our lists is one that this machine knows, except for those that only older machines have.
    #[test]
    fn names_are_names() {
        let known: Vec<&str> = (0..600).filter_map(name).collect();
        let all = ON_FD.iter().chain(ON_PATH.iter().map(|(name, _)| name));
        let unknown: Vec<_> = all.filter(|name| !known.contains(name)).collect();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(unknown, [""; 0].iter().collect::<Vec<_>>());
        }
        assert_eq!(name(-1), None);
        assert_eq!(name(i64::MAX), None);
    }

    /// Only a descriptor of the process itself is one.
    #[test]
    fn own_descriptors() {
        assert_eq!(own_descriptor("/proc/self/fd/5"), Some(5));
        assert_eq!(own_descriptor("/proc/self/fd/5/x"), None);
        assert_eq!(own_descriptor("/proc/1/fd/5"), None);
    }

    /// A call of process 9, which has these descriptors, with a directory and a path.
    fn of_nine<T>(ask: impl Fn(&SyscallFact, &Holders) -> T) -> impl Fn(&str, u64, &str) -> T {
        use std::{fs, io, os::unix::fs::symlink};
        let root = tempfile::tempdir().unwrap();
        let fd = root.path().join("proc/9/fd");
        fs::create_dir_all(&fd).unwrap();
        for (number, target) in [("5", "/9/task/9/fd"), ("6", "/var/lib"), ("7", "/run/runc/c1/exec.fifo")] {
            symlink(target, fd.join(number)).unwrap();
        }
        let mut holders = Holders::default();
        holders.add(&mut Tell::below(root.path(), io::sink()), 9, "runc:[2:INIT]", true).unwrap();
        move |name, dir, path| {
            let (name, path) = (Some(name.to_owned()), Some(path.to_owned()));
            let args = [dir, 0x1000, 0, 0, 0, 0];
            let call =
                SyscallFact { nr: 257, name, args, fd: None, path, lock_holder: None, watched: Vec::new() };
            ask(&call, &holders)
        }
    }

    /// A path below a directory that was opened before is told from the root on; one from the root on, or below the working
    /// directory, stays as it is.
    #[test]
    fn paths_below_a_directory() {
        let of = of_nine(|call, holders| from_directory(9, call, holders));
        assert_eq!(of("mkdirat", 6, "new").as_deref(), Some("/var/lib/new"));
        assert_eq!(of("openat2", 6, "a/b").as_deref(), Some("/var/lib/a/b"));
        for (name, dir, path) in [
            ("mkdirat", 6, "/new"),
            ("mkdirat", 0xffff_ff9c, "new"),
            ("mkdirat", 8, "new"),
            ("mkdir", 6, "new"),
        ] {
            assert_eq!(of(name, dir, path), None, "{name} {dir} {path}");
        }
    }

    /// A number is a descriptor only in a directory of descriptors, which newer versions of runc open first.
    #[test]
    fn reopened_by_number() {
        let of = of_nine(|call, holders| reopened(9, call, holders));
        assert_eq!((of("openat", 5, "7"), of("openat2", 5, "7")), (Some(7), Some(7)));
        assert_eq!(of("openat", 0xffff_ff9c, "/proc/self/fd/7"), Some(7));
        for (name, dir, path) in [
            ("openat", 6, "7"),
            ("openat", 8, "7"),
            ("openat", 0xffff_ff9c, "7"),
            ("openat", 5, "7a"),
            ("openat", 5, "99999999999"),
            ("statx", 5, "7"),
        ] {
            assert_eq!(of(name, dir, path), None, "{name} {dir} {path}");
        }
    }

    /// A path that lies across two pages, one that has no end, and one that is nowhere.
    #[test]
    fn paths() {
        let me = std::process::id();
        let mut memory = vec![b'a'; 4 * 4096];
        let page = memory.as_ptr() as u64 % PAGE;
        let start = usize::try_from(PAGE - page).unwrap() + 4096 - 3;
        memory[start..start + 7].copy_from_slice(b"/x/y/z\0");
        let at = memory.as_ptr() as u64 + start as u64;
        assert_eq!(read_path(me, at), Some("/x/y/z".into()));
        let endless = vec![b'b'; 3 * MAX_PATH];
        assert_eq!(read_path(me, endless.as_ptr() as u64), None);
        assert_eq!(read_path(me, 8), None);
        assert_eq!(read_path(me, u64::MAX), None);
    }

    /// The upper half of a register is not part of a descriptor.
    #[test]
    fn descriptors() {
        assert_eq!(descriptor(0xdead_beef_0000_0003), Some(3));
        assert_eq!(descriptor(u64::from(u32::MAX)), None);
    }
}
