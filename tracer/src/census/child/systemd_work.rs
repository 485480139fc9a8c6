//! What gives systemd work: a mount table that changes all the time, or unit files that it reads.
//!
//! systemd reads the whole mount table when it has changed, and then works on each of its lines for ten times as long
//! (`mount_load_proc_self_mountinfo`, src/core/mount.c): it is seldom seen to have the table open. That it changes is seen by poll(2) on a
//! `mountinfo` (`mounts_poll`, fs/namespace.c). Unit files are open while they are read, and during a reload systemd holds what it has
//! written of its state in a memfd named `systemd-state` (`manager_reload`, src/core/manager.c; a file in /run/systemd before 233). The
//! kernel tells names of descriptors without a lock that systemd holds for long (fs/proc/fd.c).

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::read;
use crate::input::SystemdWork;

/// Looks, and the time from one to the next.
const LOOKS: u32 = 40;
const BETWEEN: Duration = Duration::from_millis(1);
/// After this time no further one is begun.
const TIME: Duration = Duration::from_millis(60);
/// Descriptors that are looked at: systemd has one for each socket and each service's log.
const MAX_DESCRIPTORS: usize = 4096;
/// Numbers that are looked at for what is opened next: the lowest free ones (open(2)).
const NEXT: usize = 8;
/// Where unit files are, also those that are generated (systemd.unit(5)).
const UNITS: [&str; 4] = ["/etc/systemd/", "/run/systemd/", "/usr/lib/systemd/", "/lib/systemd/"];

/// Looks several times at the process with this directory in `/proc`, and at its mount table.
pub(super) fn look(process: &Path) -> SystemdWork {
    let began = Instant::now();
    let mut work = SystemdWork::default();
    let (Ok(numbers), Ok(table)) = (numbers(process), File::open(process.join("mountinfo"))) else {
        return work;
    };
    while work.looks < LOOKS && (work.looks == 0 || began.elapsed() < TIME) {
        work.looks += 1;
        work.units += u32::from(reads_units(process, &numbers));
        // From here to the end of the pause: at the last look as at the others.
        thread::sleep(BETWEEN);
        work.mounts_changed += u32::from(has_changed(&table));
    }
    work
}

/// The descriptors of units that are open now, and those that are opened next: only at these is looked again and again, so that what is
/// open for a moment is not closed before its turn comes.
fn numbers(process: &Path) -> io::Result<Vec<u32>> {
    let open: BTreeSet<u32> = read::numbers(&process.join("fd"), MAX_DESCRIPTORS)?.into_iter().collect();
    let next = (0..).filter(|fd| !open.contains(fd)).take(NEXT);
    let now = open.iter().copied().filter(|fd| is_of_units_at(process, *fd));
    Ok(now.chain(next).collect())
}

fn reads_units(process: &Path, numbers: &[u32]) -> bool {
    numbers.iter().any(|fd| is_of_units_at(process, *fd))
}

fn is_of_units_at(process: &Path, fd: u32) -> bool {
    read::link(&process.join(format!("fd/{fd}"))).is_some_and(|link| is_of_units(&link))
}

/// A file of units, or the state that is kept during a reload.
fn is_of_units(link: &str) -> bool {
    let is_file = || link.contains("/system/") || link.ends_with("/system") || link.contains("/generator");
    link.starts_with("/memfd:systemd-state") || UNITS.iter().any(|dir| link.starts_with(dir)) && is_file()
}

/// Has this mount table changed since it was asked last, or opened?
fn has_changed(table: &File) -> bool {
    let mut asked = [PollFd::new(table, PollFlags::PRI)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok_and(|_| asked[0].revents().contains(PollFlags::PRI))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn units_by_their_names() {
        for (link, wanted) in [
            ("/memfd:systemd-state (deleted)", true),
            ("/run/systemd/system/a.service", true),
            ("/usr/lib/systemd/system", true),
            ("/etc/systemd/system/multi-user.target.wants", true),
            ("/run/systemd/generator.late/a.mount", true),
            ("/run/systemd/notify", false),
            ("/etc/systemd/journald.conf", false),
            ("/var/lib/x/system/a", false),
            ("socket:[17]", false),
        ] {
            assert_eq!(is_of_units(link), wanted, "{link}");
        }
    }

    /// What is opened next has the lowest free numbers; what else was open before is left alone. A process that is gone has nothing.
    #[test]
    fn descriptors_of_a_process() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("fd")).unwrap();
        let open = |fd: u32, link: &str| symlink(link, root.path().join(format!("fd/{fd}"))).unwrap();
        open(0, "/dev/null");
        open(2, "/memfd:systemd-state (deleted)");
        open(4, "/run/systemd/notify");
        let numbers = numbers(root.path()).unwrap();
        assert_eq!(numbers, [2, 1, 3, 5, 6, 7, 8, 9, 10]);
        assert!(reads_units(root.path(), &numbers));
        fs::remove_file(root.path().join("fd/2")).unwrap();
        assert!(!reads_units(root.path(), &numbers));
        open(11, "/etc/systemd/system/b.service");
        assert!(!reads_units(root.path(), &numbers), "it is far off");
        open(3, "/etc/systemd/system/b.service");
        assert!(reads_units(root.path(), &numbers));
        assert_eq!(look(&root.path().join("gone")), SystemdWork::default());
    }

    /// Ours does not change by itself, and looks are counted.
    #[test]
    fn looks_at_ourselves() {
        let work = look(Path::new("/proc/self"));
        assert!((1..=LOOKS).contains(&work.looks), "{work:?}");
        assert_eq!(work.units, 0);
        assert!(!has_changed(&File::open("/dev/null").unwrap()));
    }
}
