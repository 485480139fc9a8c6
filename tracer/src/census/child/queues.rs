//! [`Queues`]: what has not been read on connections to a system bus, and who holds their ends.
//!
//! Not for the child, but for the process that watches: the kernel answers from memory, and links of descriptors in
//! `/proc` are read without a look at any file. Nothing here waits for a stuck process.

use std::{
    collections::{HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use super::unix_diag::Link;
use crate::{
    input::BusReaderFact,
    target::{UnixSocket, is_bus_path},
};

/// Least time between two looks at the descriptors of all processes, and what one look may take.
const SCAN_EVERY: Duration = Duration::from_secs(10);
const SCAN_TIME: Duration = Duration::from_millis(100);
/// Descriptors of one process that are looked at.
const MAX_FDS: usize = 4096;
/// Sockets whose holders are kept.
const MAX_HOLDERS: usize = 4096;
/// Most readers that are reported at once.
const MAX_READERS: usize = 4;

/// All unix sockets at one moment, and who was found to hold some of them.
#[derive(Debug, Default)]
pub struct Queues {
    link: Option<Link>,
    sockets: HashMap<u64, UnixSocket>,
    /// Sockets of callers that were there once.
    seen: HashSet<u64>,
    holders: HashMap<u64, u32>,
    scanned: Option<Instant>,
}

/// What is known of the connection of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusConnection {
    /// It is closed.
    pub gone: bool,
    /// The bus has accepted it; `None`: not known.
    pub accepted: Option<bool>,
    /// Bytes that the bus has not read.
    pub unread_by_bus: Option<u32>,
    /// Bytes that the caller has not read.
    pub unread: Option<u32>,
    /// Process that holds the end of the bus; 0 when not known.
    pub bus: u32,
}

impl Queues {
    /// Asks the kernel for all sockets; `false` when it does not say.
    pub fn read(&mut self) -> bool {
        if self.link.as_ref().is_none_or(|link| link.is_spent) {
            self.link = Link::open().ok();
        }
        let Some(Ok(list)) = self.link.as_mut().map(Link::dump) else {
            self.sockets.clear();
            return false;
        };
        self.sockets = list.into_iter().map(|socket| (socket.inode, socket)).collect();
        self.holders.retain(|socket, _| self.sockets.contains_key(socket));
        true
    }

    /// What is known of the connection of this socket; after [`Self::read`].
    pub fn connection(&mut self, socket: u64) -> BusConnection {
        let Some(own) = self.sockets.get(&socket) else {
            // Sockets of other network namespaces are never there.
            return BusConnection { gone: self.seen.remove(&socket), ..BusConnection::default() };
        };
        let (unread, peer) = (own.unread, own.peer);
        if self.seen.len() < MAX_HOLDERS {
            self.seen.insert(socket);
        }
        let end = match peer {
            Some(peer) => Some(peer),
            None => self.sockets.values().find(|it| waits(it)).map(|it| it.inode),
        };
        BusConnection {
            gone: false,
            accepted: Some(peer.is_some()),
            unread_by_bus: peer.and_then(|peer| self.sockets.get(&peer)?.unread),
            unread,
            bus: end.map_or(0, |end| self.holder(end)),
        }
    }

    /// Clients of a bus that have not read what it wrote to them, the most first; after [`Self::read`].
    pub fn readers(&mut self) -> Vec<BusReaderFact> {
        let bus_ends = self.sockets.values().filter(|it| it.name.as_deref().is_some_and(is_bus_path));
        let clients = bus_ends.filter_map(|it| self.sockets.get(&it.peer?));
        let mut late: Vec<(u32, u64)> =
            clients.filter_map(|it| Some((it.unread.filter(|unread| *unread > 0)?, it.inode))).collect();
        late.sort_unstable_by(|a, b| b.cmp(a));
        late.truncate(MAX_READERS);
        let reader = |(unread, socket)| BusReaderFact { socket, pid: self.holder(socket), unread };
        late.into_iter().map(reader).collect()
    }

    /// Who holds a socket; 0 when that was not found.
    fn holder(&mut self, socket: u64) -> u32 {
        if let Some(pid) = self.holders.get(&socket) {
            return *pid;
        }
        if self.scanned.is_none_or(|last| last.elapsed() >= SCAN_EVERY) {
            self.scan();
        }
        self.holders.get(&socket).copied().unwrap_or(0)
    }

    /// Looks at the descriptors of all processes for the ends of connections to buses.
    fn scan(&mut self) {
        let began = Instant::now();
        self.scanned = Some(began);
        let is_bus = |it: &&UnixSocket| it.name.as_deref().is_some_and(is_bus_path);
        let ends = self.sockets.values().filter(is_bus);
        let wanted: HashSet<u64> = ends.flat_map(|it| [Some(it.inode), it.peer]).flatten().collect();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            if began.elapsed() > SCAN_TIME || self.holders.len() >= MAX_HOLDERS {
                return;
            }
            for socket in sockets_of(pid).filter(|socket| wanted.contains(socket)) {
                // systemd keeps the socket at which the bus listens too.
                let known = self.holders.entry(socket).or_insert(pid);
                if *known == 1 {
                    *known = pid;
                }
            }
        }
    }
}

/// A bus listens here, and has not accepted everybody.
fn waits(socket: &UnixSocket) -> bool {
    socket.listening
        && socket.unread.is_some_and(|waiting| waiting > 0)
        && socket.name.as_deref().is_some_and(is_bus_path)
}

fn sockets_of(pid: u32) -> impl Iterator<Item = u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().take(MAX_FDS);
    entries.filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        os::unix::net::{UnixListener, UnixStream},
    };

    use super::*;

    fn inode(socket: &impl std::os::fd::AsRawFd) -> u64 {
        let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        link.to_str().unwrap().trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
    }

    /// A bus that does not accept, then does not read, then one whose client does not read, then a closed connection.
    #[test]
    fn a_connection_from_its_begin_to_its_end() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dbus")).unwrap();
        let listener = UnixListener::bind(root.path().join("dbus/system_bus_socket")).unwrap();
        let mut client = UnixStream::connect(root.path().join("dbus/system_bus_socket")).unwrap();
        let own = inode(&client);
        let mut queues = Queues::default();
        let mut look = || {
            queues.scanned = None;
            assert!(queues.read());
            (queues.connection(own), queues.readers())
        };
        let us = std::process::id();
        let (found, _) = look();
        assert_eq!((found.accepted, found.unread_by_bus, found.bus), (Some(false), None, us));
        let (mut bus, _) = listener.accept().unwrap();
        client.write_all(b"call").unwrap();
        let (found, _) = look();
        assert_eq!((found.accepted, found.unread_by_bus, found.unread), (Some(true), Some(4), Some(0)));
        assert_eq!((found.bus, found.gone), (us, false));
        bus.read_exact(&mut [0; 4]).unwrap();
        bus.write_all(b"reply").unwrap();
        let (found, readers) = look();
        assert_eq!((found.unread_by_bus, found.unread), (Some(0), Some(5)));
        let reader = readers.iter().find(|reader| reader.socket == own).unwrap();
        assert_eq!((reader.pid, reader.unread), (us, 5));
        drop(client);
        assert!(look().0.gone);
    }
}
