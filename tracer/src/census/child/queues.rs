//! [`Queues`]: what has not been read on connections to a system bus, and who holds their ends.
//!
//! Not for the child, but for the process that watches: the kernel answers from memory, and links of descriptors in
//! `/proc` are read without a look at any file. Nothing here waits for a stuck process.

use std::{
    collections::{HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use super::peer;
use crate::{
    input::{BusPeerFact, BusReaderFact, SystemdWork},
    target::{UnixSocket, is_bus_path, sock_diag::Link, unix_diag},
};

/// Least time between two looks at the descriptors of all processes, and what one look may take.
const SCAN_EVERY: Duration = Duration::from_secs(10);
const SCAN_TIME: Duration = Duration::from_millis(100);
/// One that took too long goes on after this time, with the processes that it did not come to.
const GO_ON_AFTER: Duration = Duration::from_secs(1);
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
    holders: HashMap<u64, Holder>,
    /// Processes that were found to hold ends of buses: those of new connections are most likely theirs.
    buses: HashSet<u32>,
    /// Those have been asked again since the last reading.
    asked_again: bool,
    /// First processes of the PID namespaces of buses, as far as they are clients; of this reading.
    owners: HashMap<u32, u32>,
    /// Buses whose first process is none; of this reading.
    without_owner: HashSet<u32>,
    scanned: Option<Instant>,
    /// The first process that the last look did not come to.
    cut_at: Option<u32>,
}

/// Who holds a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    pid: u32,
    /// Of a socket at which a bus listens: so many of the connections that were accepted there it holds.
    accepted: usize,
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
    /// Whoever would is known, and is no client of this bus.
    pub no_owner: bool,
}

impl Queues {
    /// Asks the kernel for all sockets; `false` when it does not say.
    pub fn read(&mut self) -> bool {
        if self.link.as_ref().is_none_or(|link| link.is_spent) {
            self.link = Link::open().ok();
        }
        let Some(Ok(list)) = self.link.as_mut().map(unix_diag::dump) else {
            self.sockets.clear();
            return false;
        };
        self.sockets = list.into_iter().map(|socket| (socket.inode, socket)).collect();
        self.holders.retain(|socket, _| self.sockets.contains_key(socket));
        self.owners.clear();
        self.without_owner.clear();
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
            no_owner: bus != 0 && self.without_owner.contains(&bus),
        }
    }

    /// Bytes that the holder of this socket has not read, and bytes that whoever is at its other end has not; after [`Self::read`].
    #[must_use]
    pub fn unread(&self, socket: u64) -> (Option<u32>, Option<u32>) {
        let own = self.sockets.get(&socket);
        let other = own.and_then(|own| self.sockets.get(&own.peer?));
        (own.and_then(|own| own.unread), other.and_then(|other| other.unread))
    }

    /// Of the sockets of a process the one at whose other end a bus is: where it has not read all, else the oldest; or, of one that
    /// `connects`, one with nobody at the other end, while a bus has not accepted everybody. After [`Self::read`].
    #[must_use]
    pub fn socket_of(&self, pid: u32, connects: bool) -> Option<u64> {
        let all: Vec<&UnixSocket> = sockets_of(pid).filter_map(|socket| self.sockets.get(&socket)).collect();
        let unread_by_bus = |own: &UnixSocket| {
            let end = self.sockets.get(&own.peer?)?;
            end.name.as_deref().is_some_and(is_bus_path).then(|| end.unread.unwrap_or(0))
        };
        let ends = all.iter().filter_map(|own| Some((unread_by_bus(own)?, own.inode)));
        let connected = ends.min_by_key(|(unread, inode)| (*unread == 0, *inode)).map(|(_, inode)| inode);
        let is_waiting = || connects && self.sockets.values().any(waits);
        let alone = all.iter().find(|own| own.peer.is_none() && own.name.is_none() && !own.listening);
        connected.or_else(|| alone.filter(|_| is_waiting()).map(|own| own.inode))
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
        let init = peer::init_of(bus);
        let owner = init.filter(|init| *init == bus || self.unread_of(*init, bus).is_some()).unwrap_or(0);
        if owner == 0 && init.is_some_and(|init| self.is_no_client(init)) {
            self.without_owner.insert(bus);
        }
        self.owners.insert(bus, owner);
        owner
    }

    /// All descriptors of this process can be read, and none leads to a bus.
    fn is_no_client(&self, pid: u32) -> bool {
        let leads_to_bus = |socket: u64| {
            let end = self.sockets.get(&socket).and_then(|own| self.sockets.get(&own.peer?));
            end.is_some_and(|end| end.name.as_deref().is_some_and(is_bus_path))
        };
        descriptors(pid).is_some_and(|all| all.count() < MAX_FDS) && !sockets_of(pid).any(leads_to_bus)
    }

    /// Bytes that a client of a bus has not read, all its connections together; `None` when it has none.
    fn unread_of(&self, client: u32, bus: u32) -> Option<u32> {
        let held = |socket: u64, pid: u32| self.holders.get(&socket).is_some_and(|it| it.pid == pid);
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
                let work = if is_init { peer::work(pid) } else { SystemdWork::default() };
                found.extend(peer::look(pid).map(|peer| BusPeerFact { is_init, unread, work, ..peer }));
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
        if let Some(holder) = self.holders.get(&socket) {
            return holder.pid;
        }
        if !self.asked_again {
            self.asked_again = true;
            let (ends, wanted) = self.wanted();
            self.buses.clone().into_iter().for_each(|bus| self.take(bus, &ends, &wanted));
            if let Some(holder) = self.holders.get(&socket) {
                return holder.pid;
            }
        }
        let every = if self.cut_at.is_some() { GO_ON_AFTER } else { SCAN_EVERY };
        if self.scanned.is_none_or(|last| last.elapsed() >= every) {
            self.scan(SCAN_TIME);
        }
        self.holders.get(&socket).map_or(0, |holder| holder.pid)
    }

    /// Looks at the descriptors of all processes for the ends of connections to buses, for about this time: then it is for the next
    /// look to go on.
    fn scan(&mut self, time: Duration) {
        let began = Instant::now();
        self.scanned = Some(began);
        let (ends, wanted) = self.wanted();
        let from = self.cut_at.take().unwrap_or(0);
        if from == 0 {
            self.buses.clear();
        }
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut pids: Vec<u32> = pids.filter(|pid| *pid >= from).collect();
        pids.sort_unstable();
        for pid in pids {
            if self.holders.len() >= MAX_HOLDERS {
                return;
            }
            self.take(pid, &ends, &wanted);
            if began.elapsed() > time {
                self.cut_at = Some(pid.saturating_add(1));
                return;
            }
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
        let held: Vec<u64> = sockets_of(pid).filter(|socket| wanted.contains(socket)).collect();
        if held.iter().any(|socket| ends.contains(socket)) {
            self.buses.insert(pid);
        }
        self.note(pid, &held);
    }

    /// A process holds these. Others may hold the socket at which a bus listens, too (systemd, the launcher of dbus-broker): the bus is who
    /// has accepted there.
    fn note(&mut self, pid: u32, held: &[u64]) {
        for &socket in held {
            let accepted = self.accepted(socket, held);
            let known = self.holders.entry(socket).or_insert(Holder { pid, accepted });
            if accepted > known.accepted || known.pid == 1 && accepted == known.accepted {
                *known = Holder { pid, accepted };
            }
        }
    }

    /// How many of these were accepted at that socket.
    fn accepted(&self, socket: u64, held: &[u64]) -> usize {
        let Some(listens) = self.sockets.get(&socket).filter(|it| it.listening) else { return 0 };
        let here = |it: &&UnixSocket| !it.listening && it.name == listens.name;
        held.iter().filter_map(|other| self.sockets.get(other)).filter(here).count()
    }
}

/// A bus listens here, and has not accepted everybody.
fn waits(socket: &UnixSocket) -> bool {
    socket.listening
        && socket.unread.is_some_and(|waiting| waiting > 0)
        && socket.name.as_deref().is_some_and(is_bus_path)
}

/// The descriptors of a process; `None` when they cannot be read.
fn descriptors(pid: u32) -> Option<impl Iterator<Item = fs::DirEntry>> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().take(MAX_FDS))
}

fn sockets_of(pid: u32) -> impl Iterator<Item = u64> {
    descriptors(pid).into_iter().flatten().filter_map(|entry| {
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

    /// Of all who hold the socket at which a bus listens, the bus is who has accepted there: in whatever order they are looked at.
    #[test]
    fn the_bus_is_who_has_accepted() {
        let socket = |inode: u64, name: &str, listening| {
            (inode, UnixSocket { inode, name: Some(name.to_owned()), listening, ..UnixSocket::default() })
        };
        let (bus, private) = ("/run/dbus/system_bus_socket", "/run/systemd/private");
        let all =
            [(10, bus, true), (11, bus, false), (12, bus, false), (20, private, true), (21, private, false)];
        let systemd: (u32, &[u64]) = (1, &[10, 20, 21]);
        let launcher: (u32, &[u64]) = (50, &[10]);
        let broker: (u32, &[u64]) = (51, &[10, 11, 12]);
        for order in [[systemd, launcher, broker], [broker, launcher, systemd], [launcher, broker, systemd]] {
            let sockets = all.map(|(inode, name, listening)| socket(inode, name, listening)).into();
            let mut queues = Queues { sockets, ..Queues::default() };
            order.iter().for_each(|(pid, held)| queues.note(*pid, held));
            let holder = |socket: u64| queues.holders[&socket].pid;
            assert_eq!([10, 11, 12, 20, 21].map(holder), [51, 51, 51, 1, 1], "{order:?}");
        }
        // Nobody has been accepted yet.
        let mut queues = Queues { sockets: [socket(10, bus, true)].into(), ..Queues::default() };
        [systemd, (700, &[10][..])].iter().for_each(|(pid, held)| queues.note(*pid, held));
        assert_eq!(queues.holders[&10].pid, 700);
    }

    /// A look that has no time comes to one process, the next one to the next, and in the end to all.
    #[test]
    fn a_look_that_was_cut_goes_on() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dbus")).unwrap();
        let listener = UnixListener::bind(root.path().join("dbus/system_bus_socket")).unwrap();
        let mut queues = Queues::default();
        assert!(queues.read());
        let (ours, processes) = (inode(&listener), fs::read_dir("/proc").unwrap().count());
        let mut looks = 0;
        while !queues.holders.contains_key(&ours) {
            queues.scan(Duration::ZERO);
            looks += 1;
            assert!(looks <= processes * 2, "we are never come to");
        }
        assert!(looks > 1 && queues.holders[&ours].pid == std::process::id(), "{looks} looks");
        assert!(queues.cut_at.is_some_and(|next| next == std::process::id() + 1), "{:?}", queues.cut_at);
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
        let mut look = || loop {
            queues.scanned = None;
            assert!(queues.read());
            let found = (queues.connection(own), queues.readers());
            // On a busy machine one look does not come to all processes.
            if queues.cut_at.is_none() {
                return found;
            }
        };
        let us = std::process::id();
        // Other tests of this process have sockets, too.
        let of_us = || {
            let mut queues = Queues::default();
            assert!(queues.read());
            queues.socket_of(us, false)
        };
        let (found, _) = look();
        assert_eq!((found.accepted, found.unread_by_bus, found.bus), (Some(false), None, us));
        let (mut bus, _) = listener.accept().unwrap();
        client.write_all(b"call").unwrap();
        let (found, _) = look();
        assert_eq!((found.accepted, found.unread_by_bus, found.unread), (Some(true), Some(4), Some(0)));
        assert_eq!((found.bus, found.gone), (us, false));
        assert_eq!(of_us(), Some(own), "the other end is the bus's");
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
