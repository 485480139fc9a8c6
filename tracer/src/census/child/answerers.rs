//! Programs that answer for the kernel, and whom a thread waits for inside of it: the servers of FUSE file systems, and
//! those that must permit each access to a file (fanotify).
//!
//! They are looked for only when a thread of the node waits for one: then the descriptors of every process are listed,
//! for a bounded time. A server of FUSE reads its requests from /dev/fuse; a listener of fanotify holds an
//! `anon_inode:[fanotify]`, whose `fdinfo` says whether its group may refuse (fs/notify/fdinfo.c).

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use super::{read, scan::Tree, tell::Tell};
use crate::{
    census::{
        protocol::{Answer, Step},
        text::decides_accesses,
    },
    input::{Answerers, Holder, ParkedThreads},
};

/// How long is looked at descriptors.
const TIME: Duration = Duration::from_millis(400);
/// Descriptors that are looked at, per process.
const MAX_DESCRIPTORS: usize = 8192;
/// Most answerers that are reported, of each kind.
const MAX_TOLD: usize = 16;

/// Does a thread wait for a program that answers for the kernel?
pub(super) fn are_awaited(park: &ParkedThreads) -> bool {
    park.waits_for_answerer()
}

/// Tells who they are.
pub(super) fn tell(tell: &mut Tell, tree: &Tree) -> io::Result<()> {
    let (mut found, began) = (Answerers::default(), Instant::now());
    for (pid, seen) in tree {
        if began.elapsed() >= TIME {
            found.incomplete = true;
            break;
        }
        if tell.ask(*pid, &seen.stat.comm, Step::Files)? {
            look(&tell.process(*pid), *pid, &seen.stat.comm, &mut found);
        } else {
            found.incomplete = true;
        }
    }
    tell.say(&Answer::Answerers(found))
}

/// Looks at one process, of which one descriptor of each kind is enough.
fn look(dir: &Path, pid: u32, comm: &str, found: &mut Answerers) {
    let numbers = match read::numbers(&dir.join("fd"), MAX_DESCRIPTORS) {
        Ok(numbers) => numbers,
        Err(error) => {
            found.incomplete |= error.kind() == io::ErrorKind::PermissionDenied;
            return;
        }
    };
    let (mut fuse, mut permission) = (None, None);
    for fd in numbers {
        match read::link(&dir.join(format!("fd/{fd}"))).as_deref() {
            Some("/dev/fuse") => fuse = fuse.or(Some(fd)),
            Some("anon_inode:[fanotify]") if permission.is_none() => {
                let info = read::text(&dir.join(format!("fdinfo/{fd}"))).unwrap_or_default();
                permission = decides_accesses(&info).then_some(fd);
            }
            _ => {}
        }
    }
    for (fd, list) in [(fuse, &mut found.fuse), (permission, &mut found.permission)] {
        let Some(fd) = fd.and_then(|fd| i32::try_from(fd).ok()) else { continue };
        if list.len() < MAX_TOLD {
            list.push(Holder { pid, comm: comm.to_owned(), fd, orphan: false });
        } else {
            found.incomplete = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// Each is found once, by what its descriptors are; who merely watches files permits nothing.
    #[test]
    fn by_their_descriptors() {
        let root = tempfile::tempdir().unwrap();
        let mut found = Answerers::default();
        for (pid, link, flags) in [
            (7, "/dev/fuse", ""),
            (8, "anon_inode:[fanotify]", "fanotify flags:5 event-flags:0\n"),
            (9, "anon_inode:[fanotify]", "fanotify flags:1 event-flags:0\n"),
            (10, "/dev/null", ""),
        ] {
            let dir = root.path().join(pid.to_string());
            for name in ["fd", "fdinfo"] {
                fs::create_dir_all(dir.join(name)).unwrap();
            }
            for fd in [3, 4] {
                symlink(link, dir.join(format!("fd/{fd}"))).unwrap();
                fs::write(dir.join(format!("fdinfo/{fd}")), format!("pos:\t0\n{flags}")).unwrap();
            }
            look(&dir, pid, "x", &mut found);
        }
        let pids = |all: &[Holder]| all.iter().map(|one| (one.pid, one.fd)).collect::<Vec<_>>();
        assert_eq!((pids(&found.fuse), pids(&found.permission)), (vec![(7, 3)], vec![(8, 3)]));
        assert!(!found.incomplete);
    }
}
