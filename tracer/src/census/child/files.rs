//! Open descriptors: what they refer to, and who else holds the same.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, Instant},
};

use super::{read, tell::Tell};
use crate::{
    census::{
        protocol::Step,
        text::{Access, Link, link},
    },
    input::{Holder, PipeFact},
};

/// Descriptors that are looked at, per process and of all.
const MAX_PER_PROCESS: usize = 8192;
const MAX_ALL: usize = 262_144;
/// Holders of one thing that are told.
const MAX_HOLDERS: usize = 16;

/// The link of a descriptor of inotify (fs/notify/inotify/inotify_user.c).
pub(super) const INOTIFY: &str = "anon_inode:inotify";

/// One descriptor.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) fd: i32,
    pub(super) what: Opened,
}

/// What it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// A pipe, or a FIFO with its path.
    Pipe {
        inode: u64,
        path: Option<String>,
        access: Option<Access>,
    },
    Socket(u64),
    File(String),
    Other(String),
}

/// Descriptors of all processes that were looked at.
#[derive(Debug, Default)]
pub(super) struct Holders {
    by_process: HashMap<u32, Vec<Open>>,
    comms: HashMap<u32, String>,
    /// Those whose session has lost its leader.
    orphans: HashSet<u32>,
    pipes: HashMap<u64, Vec<(u32, usize)>>,
    sockets: HashMap<u64, Vec<(u32, usize)>>,
    /// Who else holds sockets, of those who were asked for nothing else.
    others: HashMap<u64, Vec<Holder>>,
    /// Descriptors of inotify, of those of whom all descriptors were looked at.
    inotify: HashMap<u32, Vec<i32>>,
    count: usize,
    incomplete: bool,
}

impl Holders {
    /// Looks at those who are not told of, as many as the time allows: how much there is to see, they decide.
    pub(super) fn add_others<'a>(
        &mut self,
        tell: &mut Tell,
        others: impl Iterator<Item = (u32, &'a str)>,
        time: Duration,
    ) -> io::Result<()> {
        let begun = Instant::now();
        for (pid, comm) in others {
            if begun.elapsed() >= time {
                self.incomplete = true;
                break;
            }
            self.add(tell, pid, comm, false)?;
        }
        Ok(())
    }

    /// Looks at the sockets of everybody who was not looked at yet, and says whether it came to all of them.
    pub(super) fn add_sockets<'a>(
        &mut self,
        tell: &mut Tell,
        everybody: impl Iterator<Item = (u32, &'a str)>,
        time: Duration,
    ) -> io::Result<bool> {
        let (begun, mut all) = (Instant::now(), true);
        for (pid, comm) in everybody {
            if self.by_process.contains_key(&pid) {
                continue;
            }
            if begun.elapsed() >= time || self.count >= MAX_ALL || !tell.ask(pid, comm, Step::Files)? {
                all = false;
                continue;
            }
            let dir = tell.process(pid).join("fd");
            let numbers = read::numbers(&dir, MAX_PER_PROCESS);
            all &= numbers.as_ref().map_or_else(has_ended, |numbers| numbers.len() < MAX_PER_PROCESS);
            for fd in numbers.unwrap_or_default() {
                let Some(Link::Socket(inode)) = read::link(&dir.join(fd.to_string())).map(|text| link(&text))
                else {
                    continue;
                };
                let Ok(fd) = i32::try_from(fd) else { continue };
                self.count += 1;
                let holder = Holder { pid, comm: comm.to_owned(), fd, orphan: false };
                self.others.entry(inode).or_default().push(holder);
            }
        }
        Ok(all)
    }

    /// Looks at the descriptors of a process; of one that is not told of, only at what others can wait for.
    pub(super) fn add(&mut self, tell: &mut Tell, pid: u32, comm: &str, told: bool) -> io::Result<()> {
        if self.by_process.contains_key(&pid) {
            return Ok(());
        }
        let dir = tell.process(pid);
        let may_follow = tell.ask(pid, comm, Step::Files)?;
        let numbers = match read::numbers(&dir.join("fd"), MAX_PER_PROCESS) {
            Ok(numbers) => numbers,
            Err(error) => {
                self.incomplete |= !has_ended(&error);
                if told && error.kind() == io::ErrorKind::PermissionDenied {
                    tell.refused(pid, comm, Step::Files.words(), &error)?;
                }
                return Ok(());
            }
        };
        self.incomplete |= numbers.len() == MAX_PER_PROCESS || self.count >= MAX_ALL;
        let left = MAX_ALL.saturating_sub(self.count);
        let is_whole = numbers.len() < MAX_PER_PROCESS.min(left);
        let kept = |open: &Open| told || matches!(open.what, Opened::Pipe { .. } | Opened::Socket(_));
        let numbers = numbers.into_iter().take(left);
        let mut open: Vec<Open> = numbers.filter_map(|fd| look(&dir, fd, may_follow)).collect();
        if is_whole {
            let inotify =
                open.iter().filter(|one| matches!(&one.what, Opened::Other(link) if link == INOTIFY));
            self.inotify.insert(pid, inotify.map(|one| one.fd).collect());
        }
        open.retain(kept);
        self.count += open.len();
        for (place, one) in open.iter().enumerate() {
            match one.what {
                Opened::Pipe { inode, .. } => self.pipes.entry(inode).or_default().push((pid, place)),
                Opened::Socket(inode) => self.sockets.entry(inode).or_default().push((pid, place)),
                Opened::File(_) | Opened::Other(_) => {}
            }
        }
        self.comms.insert(pid, comm.to_owned());
        if !open.is_empty() && is_orphan(tell, pid) {
            self.orphans.insert(pid);
        }
        self.by_process.insert(pid, open);
        Ok(())
    }

    /// One descriptor of a process.
    pub(super) fn fd(&self, pid: u32, fd: i32) -> Option<&Open> {
        self.by_process.get(&pid)?.iter().find(|open| open.fd == fd)
    }

    /// Its descriptors of inotify; `None` when it was not looked at to the end.
    pub(super) fn inotify_of(&self, pid: u32) -> Option<&[i32]> {
        self.inotify.get(&pid).map(Vec::as_slice)
    }

    /// Inodes of its sockets, each once.
    pub(super) fn sockets_of(&self, pid: u32) -> Vec<u64> {
        let inode = |open: &Open| match open.what {
            Opened::Socket(inode) => Some(inode),
            _ => None,
        };
        let mut inodes: Vec<u64> =
            self.by_process.get(&pid).into_iter().flatten().filter_map(inode).collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    /// Pipes that it can read while somebody else can write.
    pub(super) fn read_by(&self, pid: u32, most: usize) -> Vec<PipeFact> {
        let mut pipes: Vec<PipeFact> = Vec::new();
        for open in self.by_process.get(&pid).into_iter().flatten() {
            let Opened::Pipe { inode, access: Some(Access { reads: true, .. }), .. } = open.what else {
                continue;
            };
            if pipes.len() == most || pipes.iter().any(|pipe| pipe.inode == inode) {
                continue;
            }
            let fact = self.pipe(inode);
            if fact.writers.iter().any(|writer| writer.pid != pid) {
                pipes.push(fact);
            }
        }
        pipes
    }

    /// A pipe with those who hold it.
    pub(super) fn pipe(&self, inode: u64) -> PipeFact {
        let mut fact = PipeFact { inode, incomplete: self.incomplete, ..PipeFact::default() };
        for (pid, place) in self.pipes.get(&inode).into_iter().flatten() {
            let Some(open) = self.by_process.get(pid).and_then(|all| all.get(*place)) else { continue };
            let Opened::Pipe { path, access, .. } = &open.what else { continue };
            fact.path = fact.path.or_else(|| path.clone());
            let Some(access) = access else {
                fact.incomplete = true;
                continue;
            };
            for (holds, list) in [(access.reads, &mut fact.readers), (access.writes, &mut fact.writers)] {
                if holds && list.len() < MAX_HOLDERS {
                    list.push(self.holder(*pid, open.fd));
                } else {
                    fact.incomplete |= holds;
                }
            }
        }
        fact
    }

    /// Who holds a socket.
    pub(super) fn of_socket(&self, inode: u64) -> Vec<Holder> {
        let holders = self.sockets.get(&inode).into_iter().flatten().filter_map(|(pid, place)| {
            let open = self.by_process.get(pid)?.get(*place)?;
            Some(self.holder(*pid, open.fd))
        });
        let others = self.others.get(&inode).into_iter().flatten().cloned();
        holders.chain(others).take(MAX_HOLDERS).collect()
    }

    fn holder(&self, pid: u32, fd: i32) -> Holder {
        let comm = self.comms.get(&pid).cloned().unwrap_or_default();
        Holder { pid, comm, fd, orphan: self.orphans.contains(&pid) }
    }
}

/// Is a process whose descriptors cannot be listed gone? Then it holds nothing.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Has the leader of its session ended? Every command that runc starts leads a session of its own.
fn is_orphan(tell: &Tell, pid: u32) -> bool {
    let session = read::stat(&tell.process(pid)).map_or(0, |stat| stat.session);
    let ended = |leader: u32| read::stat(&tell.process(leader)).is_none_or(|stat| stat.has_ended());
    session != 0 && session != pid && ended(session)
}

fn look(dir: &Path, fd: u32, may_follow: bool) -> Option<Open> {
    let place = dir.join("fd").join(fd.to_string());
    let what = match link(&read::link(&place)?) {
        Link::Pipe(inode) => Opened::Pipe { inode, path: None, access: access(&place) },
        Link::Socket(inode) => Opened::Socket(inode),
        Link::Other(text) => Opened::Other(text),
        Link::Path(path) => match may_follow.then(|| fifo(&place, &path)).flatten() {
            Some(inode) => Opened::Pipe { inode, path: Some(path), access: access(&place) },
            None => Opened::File(path),
        },
    };
    Some(Open { fd: i32::try_from(fd).ok()?, what })
}

/// What the descriptor was opened for: the kernel gives its link these permissions, and neither when it was opened with
/// `O_PATH` (fs/proc/fd.c, `tid_fd_update_inode`). One call, where `fdinfo` takes four.
fn access(place: &Path) -> Option<Access> {
    let mode = std::fs::symlink_metadata(place).ok()?.mode();
    Some(Access { reads: mode & 0o400 != 0, writes: mode & 0o200 != 0 })
}

/// The inode when it is a FIFO. Follows the link to the open file, never the path.
fn fifo(place: &Path, path: &str) -> Option<u64> {
    const S_IFIFO: u16 = 0o010_000;
    let name = std::ffi::CString::new(place.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: plain numbers; all zero is valid.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    let wanted = libc::STATX_TYPE | libc::STATX_INO;
    // A server across the network, or behind FUSE, is not asked: what the kernel has in memory is enough.
    let flags = libc::AT_STATX_DONT_SYNC;
    // The bare call: the C library would answer `ENOSYS` with a call that does ask.
    // SAFETY: a string that ends with zero, and a valid place for the answer.
    let done = unsafe {
        libc::syscall(libc::SYS_statx, libc::AT_FDCWD, name.as_ptr(), flags, wanted, &raw mut status)
    };
    if done == 0 {
        return (status.stx_mode & 0o170_000 == S_IFIFO).then_some(status.stx_ino);
    }
    // Before Linux 4.11 there is no way not to ask; these places are in memory.
    let no_statx = io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS);
    if !no_statx || !(path.starts_with("/run/") || path.starts_with("/var/run/")) {
        return None;
    }
    let metadata = std::fs::metadata(place).ok()?;
    (metadata.mode() & 0o170_000 == u32::from(S_IFIFO)).then(|| metadata.ino())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::{
            fd::AsRawFd as _,
            unix::fs::{OpenOptionsExt as _, symlink},
        },
    };

    use super::*;

    /// Processes with a pipe, a socket, a file and something else each.
    fn tree(pids: &[u32]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for pid in pids {
            let dir = root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(dir.join("fd")).unwrap();
            for (fd, link) in ["pipe:[4]", "socket:[5]", "/x", "anon_inode:[eventpoll]"].iter().enumerate() {
                symlink(link, dir.join(format!("fd/{fd}"))).unwrap();
            }
        }
        root
    }

    /// Of whoever is not told of, files are not kept, and they do not fill the table.
    #[test]
    fn others_only_hold_ends() {
        let root = tree(&[7, 8]);
        let (mut tell, mut holders) = (Tell::below(root.path(), io::sink()), Holders::default());
        holders.add(&mut tell, 7, "a", true).unwrap();
        let others = [(8, "b"), (7, "a")].into_iter();
        holders.add_others(&mut tell, others, Duration::from_secs(60)).unwrap();
        let kept = |pid| (0..4).filter(|fd| holders.fd(pid, *fd).is_some()).collect::<Vec<_>>();
        assert_eq!((kept(7), kept(8)), (vec![0, 1, 2, 3], vec![0, 1]));
        assert_eq!(holders.count, 6);
        let pipe = holders.pipe(4);
        assert_eq!(pipe.readers.iter().map(|reader| reader.pid).collect::<Vec<_>>(), [7, 8]);
        assert!(!pipe.incomplete);
    }

    /// A process that has ended holds nothing; of one that cannot be read, nobody knows.
    #[test]
    fn ended_is_not_unknown() {
        let root = tree(&[7]);
        fs::create_dir_all(root.path().join("proc/9")).unwrap();
        fs::write(root.path().join("proc/9/fd"), "").unwrap();
        let mut tell = Tell::below(root.path(), io::sink());
        let mut holders = Holders::default();
        let mut incomplete = |pid| {
            holders.add(&mut tell, pid, "x", true).unwrap();
            holders.pipe(4).incomplete
        };
        assert_eq!([7, 8, 9].map(&mut incomplete), [false, false, true]);
    }

    /// Each end of a pipe is open for one thing, and a descriptor that only names a file for none.
    #[test]
    fn ends_of_a_pipe() {
        let (reader, writer) = io::pipe().unwrap();
        let path = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open("/").unwrap();
        let of = |fd: i32| {
            let access = access(Path::new(&format!("/proc/self/fd/{fd}"))).unwrap();
            (access.reads, access.writes)
        };
        assert_eq!(of(reader.as_raw_fd()), (true, false));
        assert_eq!(of(writer.as_raw_fd()), (false, true));
        assert_eq!(of(path.as_raw_fd()), (false, false));
        assert!(access(Path::new("/proc/self/fd/1000000")).is_none());
    }

    /// When the time is over, what is known of others is incomplete; with nobody left to look at it is not.
    #[test]
    fn others_have_a_time() {
        let root = tree(&[7]);
        let mut tell = Tell::below(root.path(), io::sink());
        let mut incomplete = |others: &[(u32, &str)]| {
            let mut holders = Holders::default();
            holders.add_others(&mut tell, others.iter().copied(), Duration::ZERO).unwrap();
            (holders.incomplete, holders.fd(7, 0).is_some())
        };
        assert_eq!((incomplete(&[(7, "a")]), incomplete(&[])), ((true, false), (false, false)));
    }
}
