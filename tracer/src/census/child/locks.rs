//! Who holds the file locks that threads wait for.

use std::path::Path;

use super::{read, tell::Tell, threads::Threads};
use crate::{
    census::text::{has_lock, holder_of_lock},
    input::Holder,
};

/// Descriptors of a holder that are looked at.
const MAX_DESCRIPTORS: usize = 1024;

/// Adds the holders of the locks that threads of a process wait for.
///
/// `/proc/locks` tells who took a lock. A lock of flock(2) belongs to the open file: it outlives that process in a child
/// with the same descriptor, and its number may have a new owner by then. Such a holder has no name.
pub(super) fn holders(tell: &Tell, pid: u32, threads: &mut Threads) {
    let calls = threads.parks.iter_mut().filter_map(|seen| seen.park.syscall.as_mut());
    for call in calls.filter(|call| matches!(call.name.as_deref(), Some("flock" | "fcntl"))) {
        let locks = read::locks(&tell.path("/proc/locks")).unwrap_or_default();
        let holder = holder_of_lock(&locks, pid);
        call.lock_holder = holder.map(|(holder, file)| self::holder(&tell.process(holder), holder, file));
    }
}

fn holder(process: &Path, pid: u32, file: &str) -> Holder {
    let stat = read::stat(process).filter(|_| holds(process, file));
    Holder { pid, comm: stat.map(|stat| stat.comm).unwrap_or_default(), fd: -1, orphan: false }
}

/// Does one of its descriptors hold a lock on this file? Before Linux 4.1 none tells.
fn holds(process: &Path, file: &str) -> bool {
    let dir = process.join("fdinfo");
    let descriptors = read::numbers(&dir, MAX_DESCRIPTORS).unwrap_or_default();
    let mut texts = descriptors.into_iter().filter_map(|fd| read::text(&dir.join(fd.to_string())).ok());
    texts.any(|text| has_lock(&text, file))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsRawFd as _};

    use super::*;

    /// The holder has a name when it still has the lock: not when it has ended, and not when another process got its
    /// number since.
    #[test]
    fn holders_that_live() {
        let root = tempfile::tempdir().unwrap();
        let of = |pid: u32, lock: &str| {
            let dir = root.path().join(pid.to_string());
            fs::create_dir_all(dir.join("fdinfo")).unwrap();
            let zeros = "0 ".repeat(47);
            fs::write(dir.join("stat"), format!("{pid} (host-local) S 1 {zeros}")).unwrap();
            fs::write(dir.join("fdinfo/0"), "pos:\t0\nflags:\t02\n").unwrap();
            fs::write(dir.join("fdinfo/9"), format!("pos:\t0\nflags:\t02\n{lock}")).unwrap();
        };
        of(7, "lock:\t1: FLOCK  ADVISORY  WRITE 7 08:01:393235 0 EOF\n");
        of(8, "lock:\t1: FLOCK  ADVISORY  WRITE 8 08:01:42 0 EOF\n");
        of(9, "");
        let names = [7, 8, 9, 10].map(|pid: u32| {
            let found = holder(&root.path().join(pid.to_string()), pid, "08:01:393235");
            (found.pid, found.comm)
        });
        assert_eq!(
            names.map(|(pid, comm)| (pid, comm == "host-local")),
            [(7, true), (8, false), (9, false), (10, false)]
        );
    }

    /// The kernel names the file alike in both of its texts.
    #[test]
    fn a_lock_of_our_own() {
        let file = tempfile::tempfile().unwrap();
        // SAFETY: an open file and a constant.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
        let own = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
        let text = fs::read_to_string(own).unwrap();
        let line = text.lines().find(|line| line.starts_with("lock:")).unwrap();
        let name = line.split_ascii_whitespace().nth(6).unwrap();
        assert!(fs::read_to_string("/proc/locks").unwrap().contains(name), "{line}");
        assert!(holds(Path::new("/proc/self"), name));
        drop(file);
        assert!(!holds(Path::new("/proc/self"), name));
    }
}
