//! Instances of inotify that root has: each user may have `fs.inotify.max_user_instances` of them.
//!
//! The kernel does not tell how many it counts. Descriptors tell, of all processes of root; but several of them can be one
//! instance, after a fork. Which ones are, the kernel tells by an order of all open files (kcmp(2)); it is asked only when there
//! seems to be little left.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    io,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    files::{Holders, INOTIFY},
    node::Node,
    read,
    sandbox::KCMP_FILE,
    tell::Tell,
};
use crate::{
    census::{
        protocol::Step,
        text::{container_id, effective_user, memberships},
    },
    input::{ContainerFact, InotifyFact, InotifyUser, is_scarce},
};

const LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";
/// What it is called in the list of what was not seen.
const WHAT: &str = "instances of inotify";
/// How long processes are looked at, and for how long without a word to the parent, whose patience is a few times that.
const TIME: Duration = Duration::from_millis(400);
const SILENCE: Duration = Duration::from_millis(50);
/// Processes, and descriptors of one.
const MAX_PROCESSES: usize = 200_000;
const MAX_DESCRIPTORS: usize = 8192;
/// Descriptors that are compared with each other.
const MAX_COMPARED: usize = 4096;
/// Programs that are told of, and those whose container is looked up.
const MAX_USERS: usize = 8;
const MAX_PLACED: usize = 3;

/// A process with its descriptors of inotify.
#[derive(Debug)]
struct Process {
    pid: u32,
    comm: String,
    descriptors: Vec<i32>,
}

/// What was found.
#[derive(Debug, Default)]
struct Count {
    processes: Vec<Process>,
    /// Not all processes were looked at.
    at_least: bool,
    /// Two descriptors may be one instance.
    at_most: bool,
}

impl Count {
    fn used(&self) -> u64 {
        self.processes.iter().map(|process| process.descriptors.len() as u64).sum()
    }
}

/// How many root has, when that is nearly all it may have.
pub(super) fn scarce(tell: &mut Tell, node: &Node) -> io::Result<Option<InotifyFact>> {
    let limit = match read::text(&tell.path(LIMIT)) {
        Ok(text) => text.trim().parse::<u64>().ok(),
        // A kernel without inotify.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tell.refused(0, "", WHAT, &error)?;
            None
        }
    };
    let Some(limit) = limit else { return Ok(None) };
    let mut count = count(tell, &node.holders)?;
    if is_scarce(count.used(), limit) {
        once_each(tell, &mut count)?;
    }
    let used = count.used();
    if !is_scarce(used, limit) {
        if count.at_least {
            tell.cut(0, "", WHAT, "not all processes could be looked at".to_owned())?;
        }
        return Ok(None);
    }
    let mut users = users(&count.processes);
    for user in users.iter_mut().take(MAX_PLACED) {
        place(tell, node, user)?;
    }
    Ok(Some(InotifyFact {
        limit,
        used,
        at_least: count.at_least,
        at_most: count.at_most,
        refused: None,
        users,
    }))
}

/// The descriptors of all processes of root, also of those that are otherwise none of our business.
fn count(tell: &mut Tell, holders: &Holders) -> io::Result<Count> {
    let (mut found, began, mut spoke) = (Count::default(), Instant::now(), None::<Instant>);
    let pids = read::numbers(&tell.path("/proc"), MAX_PROCESSES).unwrap_or_default();
    found.at_least = pids.len() == MAX_PROCESSES;
    for pid in pids {
        let is_due = spoke.is_none_or(|spoke| spoke.elapsed() >= SILENCE);
        if began.elapsed() >= TIME || is_due && !tell.ask(0, "", Step::Files)? {
            found.at_least = true;
            break;
        }
        if is_due {
            spoke = Some(Instant::now());
        }
        let dir = tell.process(pid);
        let descriptors = match holders.inotify_of(pid) {
            Some(descriptors) => descriptors.to_vec(),
            None => list(&dir, &mut found.at_least),
        };
        if descriptors.is_empty() {
            continue;
        }
        let status = read::text(&dir.join("status")).unwrap_or_default();
        if effective_user(&status) == Some(0) {
            let comm = read::stat(&dir).map(|stat| stat.comm).unwrap_or_default();
            found.processes.push(Process { pid, comm, descriptors });
        }
    }
    Ok(found)
}

/// Its descriptors of inotify. A process that has ended holds none.
fn list(dir: &Path, at_least: &mut bool) -> Vec<i32> {
    let numbers = match read::numbers(&dir.join("fd"), MAX_DESCRIPTORS) {
        Ok(numbers) => numbers,
        Err(error) => {
            *at_least |= error.kind() == io::ErrorKind::PermissionDenied;
            return Vec::new();
        }
    };
    *at_least |= numbers.len() == MAX_DESCRIPTORS;
    let is_inotify = |fd: &u32| read::link(&dir.join(format!("fd/{fd}"))).as_deref() == Some(INOTIFY);
    numbers.into_iter().filter(is_inotify).filter_map(|fd| i32::try_from(fd).ok()).collect()
}

/// Leaves each instance to the first process that holds it.
fn once_each(tell: &mut Tell, count: &mut Count) -> io::Result<()> {
    // Other machines' processes have no open files here.
    if !tell.is_here() || count.used() > MAX_COMPARED as u64 {
        count.at_most = true;
        return Ok(());
    }
    let mut sorted: Vec<(u32, i32)> = Vec::new();
    let mut at_most = count.at_most;
    for process in &mut count.processes {
        let pid = process.pid;
        let first = process.descriptors.first().map(|fd| (pid, *fd));
        // A process that executes a program makes whoever compares its files wait.
        if !tell.ask(pid, &process.comm, Step::Stacks)? || first.and_then(|fd| compare(fd, fd)).is_none() {
            at_most = true;
            continue;
        }
        process.descriptors.retain(|fd| {
            let new = (pid, *fd);
            let order = |known: &(u32, i32)| {
                compare(*known, new).unwrap_or_else(|| {
                    at_most = true;
                    Ordering::Less
                })
            };
            let place = sorted.binary_search_by(order);
            place.is_err_and(|place| {
                sorted.insert(place, new);
                true
            })
        });
    }
    count.at_most = at_most;
    count.processes.retain(|process| !process.descriptors.is_empty());
    Ok(())
}

/// In which order the kernel has the open files of two descriptors; `None` when it does not tell.
fn compare(one: (u32, i32), other: (u32, i32)) -> Option<Ordering> {
    // SAFETY: no memory is involved.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_FILE, one.1, other.1) };
    match order {
        0 => Some(Ordering::Equal),
        1 => Some(Ordering::Less),
        2 => Some(Ordering::Greater),
        _ => None,
    }
}

/// Who holds them, by name, those with most first.
fn users(processes: &[Process]) -> Vec<InotifyUser> {
    let mut by_name: BTreeMap<&str, InotifyUser> = BTreeMap::new();
    for process in processes {
        let own = process.descriptors.len() as u64;
        let user = by_name.entry(&process.comm).or_insert_with(|| InotifyUser {
            comm: process.comm.clone(),
            processes: 0,
            instances: 0,
            pid: process.pid,
            own: 0,
            container: None,
            cgroup: None,
        });
        (user.processes, user.instances) = (user.processes + 1, user.instances + own);
        if own > user.own {
            (user.pid, user.own) = (process.pid, own);
        }
    }
    let mut users: Vec<InotifyUser> = by_name.into_values().collect();
    users.sort_by_key(|user| (std::cmp::Reverse(user.instances), user.pid));
    users.truncate(MAX_USERS);
    users
}

/// Where the process with most of them runs.
fn place(tell: &mut Tell, node: &Node, user: &mut InotifyUser) -> io::Result<()> {
    if !tell.ask(user.pid, &user.comm, Step::Cgroup)? {
        return Ok(());
    }
    let text = read::text(&tell.process(user.pid).join("cgroup")).unwrap_or_default();
    let lines = memberships(&text);
    let id = lines.iter().find_map(|line| container_id(line.path));
    user.container = id.map(|id| -> ContainerFact { node.containers.container(id, "cgroup") });
    let named = lines.iter().find(|line| line.has("name=systemd")).or(lines.iter().find(|line| line.is_v2()));
    user.cgroup = named.map(|line| line.path.to_owned()).filter(|path| path != "/");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        fs::File,
        os::fd::{AsRawFd as _, FromRawFd as _},
        os::unix::fs::symlink,
    };

    use super::*;

    fn process(pid: u32, comm: &str, descriptors: &[i32]) -> Process {
        Process { pid, comm: comm.to_owned(), descriptors: descriptors.to_vec() }
    }

    /// A new instance.
    fn instance() -> File {
        // SAFETY: no memory is involved; the descriptor is ours alone.
        unsafe { File::from_raw_fd(libc::inotify_init1(libc::IN_CLOEXEC)) }
    }

    /// Two descriptors of one instance count once, whoever comes second; what cannot be compared may be counted twice.
    #[test]
    fn each_once() {
        let (one, other) = (instance(), instance());
        let again = one.try_clone().unwrap();
        let fds = [one.as_raw_fd(), other.as_raw_fd(), again.as_raw_fd()];
        let own = std::process::id();
        let mut tell = Tell::below(Path::new("/"), io::sink());
        let mut count = Count { processes: vec![process(own, "a", &fds)], ..Count::default() };
        once_each(&mut tell, &mut count).unwrap();
        assert_eq!((count.used(), count.at_most), (2, false));
        let twice = vec![process(own, "a", &fds[..1]), process(own, "b", &fds[1..])];
        let mut count = Count { processes: twice, ..Count::default() };
        once_each(&mut tell, &mut count).unwrap();
        assert_eq!((count.used(), count.at_most, count.processes.len()), (2, false, 2));
        let mut count = Count { processes: vec![process(u32::MAX / 2, "gone", &fds)], ..Count::default() };
        once_each(&mut tell, &mut count).unwrap();
        assert_eq!((count.used(), count.at_most), (3, true));
    }

    /// Instances of other users do not count for root, whoever the process belonged to before; nor do other descriptors.
    #[test]
    fn only_of_root() {
        let root = tempfile::tempdir().unwrap();
        for (pid, users, descriptors) in [(7, "1000\t0", 2), (8, "0\t1000", 5), (9, "0\t0", 0)] {
            let dir = root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(dir.join("fd")).unwrap();
            fs::write(dir.join("status"), format!("Name:\tx\nUid:\t{users}\t0\t0\n")).unwrap();
            symlink("anon_inode:[eventpoll]", dir.join("fd/9")).unwrap();
            (0..descriptors).for_each(|fd| symlink(INOTIFY, dir.join(format!("fd/{fd}"))).unwrap());
        }
        let mut tell = Tell::below(root.path(), io::sink());
        let found = count(&mut tell, &Holders::default()).unwrap();
        let pids: Vec<u32> = found.processes.iter().map(|process| process.pid).collect();
        assert_eq!((pids, found.used(), found.at_least), (vec![7], 2, false));
        // Who does not answer is not asked again, and then nobody is known.
        tell.order.late.push((0, Step::Files));
        assert!(count(&mut tell, &Holders::default()).unwrap().at_least);
    }

    /// Names with most first; of several processes, the one with most is told.
    #[test]
    fn by_name() {
        let users = users(&[process(5, "a", &[3]), process(6, "b", &[3, 4]), process(7, "b", &[1, 2, 3])]);
        let told: Vec<_> =
            users.iter().map(|user| (user.comm.as_str(), user.processes, user.instances)).collect();
        assert_eq!(told, [("b", 2, 5), ("a", 1, 1)]);
        assert_eq!((users[0].pid, users[0].own), (7, 3));
    }

    /// Only what is of inotify counts, and a list that was cut says so.
    #[test]
    fn descriptors_of_a_process() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("fd")).unwrap();
        for (fd, link) in [INOTIFY, "anon_inode:[eventpoll]", INOTIFY, "/x"].iter().enumerate() {
            symlink(link, root.path().join(format!("fd/{fd}"))).unwrap();
        }
        let mut at_least = false;
        assert_eq!(list(root.path(), &mut at_least), [0, 2]);
        assert_eq!(list(&root.path().join("gone"), &mut at_least), [0; 0]);
        assert!(!at_least);
    }
}
