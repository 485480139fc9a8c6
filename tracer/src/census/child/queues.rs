//! [`Queues`]: what has not been read on connections to a system bus, and who holds their ends.
//!
//! Not for the child, but for the process that watches: the kernel answers from memory, and links of descriptors in
//! `/proc` are read without a look at any file. Nothing here waits for a stuck process.

use std::{
    collections::{HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use super::{peer, unix_diag::Link};
use crate::{
    input::{BusPeerFact, BusReaderFact},
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
    /// Processes that were found to hold ends of buses: those of new connections are most likely theirs.
    buses: HashSet<u32>,
    /// Those have been asked again since the last reading.
    asked_again: bool,
    /// First processes of the PID namespaces of buses, as far as they are clients; of this reading.
    owners: HashMap<u32, u32>,
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
    /// Process that plays systemd there; 0 when not known.
    pub owner: u32,
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
        self.owners.clear();
        self.asked_again = false;
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
        let bus = end.map_or(0, |end| self.holder(end));
        BusConnection {
            gone: false,
            accepted: Some(peer.is_some()),
            unread_by_bus: peer.and_then(|peer| self.sockets.get(&peer)?.unread),
            unread,
            bus,
            owner: self.owner(bus),
        }
    }

    /// Who plays systemd on a bus; 0 when not known. It is the first process of the bus's PID namespace (on a node that is a
    /// container, that of the container), if it is a client of this bus or, behind a private socket, holds its ends.
    fn owner(&mut self, bus: u32) -> u32 {
        if bus == 0 {
            return 0;
        }
        if let Some(owner) = self.owners.get(&bus) {
            return *owner;
        }
        let init = peer::init_of(bus).filter(|init| *init == bus || self.unread_of(*init, bus).is_some());
        let owner = init.unwrap_or(0);
        self.owners.insert(bus, owner);
        owner
    }

    /// Bytes that a client of a bus has not read, all its connections together; `None` when it has none.
    fn unread_of(&self, client: u32, bus: u32) -> Option<u32> {
        let held = |socket: u64, pid: u32| self.holders.get(&socket) == Some(&pid);
        let ends = self.sockets.values().filter(|end| {
            !end.listening && end.name.as_deref().is_some_and(is_bus_path) && held(end.inode, bus)
        });
        let own = ends.filter_map(|end| end.peer).filter(|peer| held(*peer, client));
        let unread = own.filter_map(|socket| self.sockets.get(&socket)?.unread);
        unread.fold(None, |sum: Option<u32>, unread| Some(sum.unwrap_or(0).saturating_add(unread)))
    }

    /// What the processes that such a connection waits for are doing; after [`Self::connection`].
    #[must_use]
    pub fn peers(&self, connection: &BusConnection) -> Vec<BusPeerFact> {
        let (bus, owner) = (connection.bus, connection.owner);
        let pids = [bus, owner].into_iter().filter(|pid| *pid != 0);
        let mut found: Vec<BusPeerFact> = Vec::new();
        for pid in pids {
            if found.iter().all(|peer| peer.pid != pid) {
                let is_init = pid == owner;
                let unread = if pid == bus { None } else { self.unread_of(pid, bus) };
                found.extend(peer::look(pid).map(|peer| BusPeerFact { is_init, unread, ..peer }));
            }
        }
        found
    }

    /// The kernel's name of a process; empty when it is gone.
    #[must_use]
    pub fn comm(pid: u32) -> String {
        peer::comm(pid)
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
        if !self.asked_again {
            self.asked_again = true;
            let (ends, wanted) = self.wanted();
            self.buses.clone().into_iter().for_each(|bus| self.take(bus, &ends, &wanted));
            if let Some(pid) = self.holders.get(&socket) {
                return *pid;
            }
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
        let (ends, wanted) = self.wanted();
        self.buses.clear();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            if began.elapsed() > SCAN_TIME || self.holders.len() >= MAX_HOLDERS {
                return;
            }
            self.take(pid, &ends, &wanted);
        }
    }

    /// Ends of buses, and both ends of their connections.
    fn wanted(&self) -> (HashSet<u64>, HashSet<u64>) {
        let is_bus = |it: &&UnixSocket| it.name.as_deref().is_some_and(is_bus_path);
        let all: Vec<&UnixSocket> = self.sockets.values().filter(is_bus).collect();
        let ends = all.iter().map(|it| it.inode).collect();
        (ends, all.iter().flat_map(|it| [Some(it.inode), it.peer]).flatten().collect())
    }

    /// What a process holds of them.
    fn take(&mut self, pid: u32, ends: &HashSet<u64>, wanted: &HashSet<u64>) {
        for socket in sockets_of(pid).filter(|socket| wanted.contains(socket)) {
            if ends.contains(&socket) {
                self.buses.insert(pid);
            }
            // systemd keeps the socket at which the bus listens too.
            let known = self.holders.entry(socket).or_insert(pid);
            if *known == 1 {
                *known = pid;
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
