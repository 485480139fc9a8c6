//! Kubelet and runtime by the sockets on which they listen, where no process has the name of one.
//!
//! Who listens is looked for only when somebody does: the tables of sockets tell that. Then the descriptors of root's daemons are read,
//! those of the children of the first process first, and not more than [`MAX_PROCESSES`] of them. The first process itself keeps
//! sockets for services that do not run.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use plegtrace_common::role::Role;

use super::{
    cmdline,
    holders::{holds_any, listening_ports, table},
    identity, owner,
    process::{Process, clock_ticks, namespace, read_stat, ticks_to_ns},
    sock_diag::Link,
    unix_diag,
    unix_sockets::{UnixSocket, unix_sockets},
};
use crate::input::{ClientFact, ListeningFact};

/// Processes whose descriptors are read.
const MAX_PROCESSES: usize = 256;
/// Clients of runtimes that are reported.
const MAX_CONNECTED: usize = 8;
/// Ports on which a kubelet listens: its API and its health (`--port`, `--healthz-port`).
const PORTS: [u16; 2] = [10_250, 10_248];
/// The parent of all threads of the kernel.
const KTHREADD: u32 = 2;
/// The first process of the node.
const FIRST: u32 = 1;

/// Where runtimes listen unless they are told otherwise.
const SOCKETS: [(&str, Role); 5] = [
    (cmdline::CONTAINERD, Role::Containerd),
    ("/run/k3s/containerd/containerd.sock", Role::Containerd),
    ("/run/crio/crio.sock", Role::Crio),
    ("/run/cri-dockerd.sock", Role::CriDockerd),
    (cmdline::DOCKER, Role::Dockerd),
];

/// A process that may be the kubelet by what it does: whether it has a kubelet's functions is for who reads its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The process.
    pub pid: u32,
    /// Its start, CLOCK_BOOTTIME.
    pub started_ns: u64,
    /// Its executable.
    pub exe: PathBuf,
}

/// What was found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Where somebody listens.
    pub(super) listening: ListeningFact,
    /// Who listens where runtimes do.
    pub(super) runtimes: Vec<(u32, &'static str, Role)>,
    /// Who listens where kubelets do, or is connected to a runtime.
    pub(super) suspects: Vec<Suspect>,
    /// Sockets that nobody was found to hold.
    pub(super) unheld: BTreeSet<u64>,
}

/// What is looked for.
pub(super) struct Search<'a> {
    pub(super) proc: &'a Path,
    /// All processes.
    pub(super) pids: &'a [u32],
    /// Those that are known to be something else.
    pub(super) known: &'a [Process],
    pub(super) kubelet: bool,
    pub(super) runtime: bool,
    /// Ends of connections to runtimes.
    pub(super) clients: &'a BTreeSet<u64>,
    /// Sockets whose holders were looked for in vain not long ago.
    pub(super) fruitless: &'a BTreeSet<u64>,
}

impl Search<'_> {
    /// Reads the tables, and if somebody listens, looks who that is.
    pub(super) fn run(&self) -> Found {
        let first = self.proc.join(FIRST.to_string());
        let (ports, sockets) = (self.ports(&first), self.sockets(&first));
        let mut wanted: BTreeSet<u64> =
            ports.keys().chain(sockets.keys()).chain(self.clients).copied().collect();
        let mut found = Found::default();
        found.listening.ports = ports.values().copied().collect::<BTreeSet<u16>>().into_iter().collect();
        found.listening.sockets = sockets
            .values()
            .map(|(path, _)| (*path).to_owned())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        wanted.retain(|inode| !self.fruitless.contains(inode));
        let mut left = wanted.clone();
        for pid in if wanted.is_empty() { Vec::new() } else { self.daemons() } {
            let dir = self.proc.join(pid.to_string());
            let held: Vec<u64> = holds_any(&dir, &left).unwrap_or_default();
            left.retain(|inode| !held.contains(inode));
            let runtime = held.iter().find_map(|inode| sockets.get(inode));
            found.runtimes.extend(runtime.map(|(path, role)| (pid, *path, *role)));
            let is_client = held.iter().any(|inode| self.clients.contains(inode)) && !self.is_runtime(pid);
            if is_client && found.listening.connected.len() < MAX_CONNECTED {
                let name = read_stat(&dir).map(|stat| stat.comm).unwrap_or_default();
                found.listening.connected.push(ClientFact { pid, name });
            }
            if is_client || held.iter().any(|inode| ports.contains_key(inode)) {
                found.suspects.extend(suspect(&dir, pid));
            }
            if left.is_empty() {
                break;
            }
        }
        found.unheld = left;
        found
    }

    fn is_runtime(&self, pid: u32) -> bool {
        self.known.iter().any(|it| it.pid == pid && it.role.is_runtime())
    }

    /// Sockets of root's that listen on ports of kubelets.
    fn ports(&self, first: &Path) -> BTreeMap<u64, u16> {
        if !self.kubelet {
            return BTreeMap::new();
        }
        let tables = ["net/tcp", "net/tcp6"].map(|name| listening_ports(&first.join(name), &PORTS));
        tables.into_iter().flatten().collect()
    }

    /// Sockets on which somebody listens where runtimes do. Those that the first process holds are kept for a service.
    fn sockets(&self, first: &Path) -> BTreeMap<u64, (&'static str, Role)> {
        let table = if self.runtime { table(&first.join("net/unix")) } else { None };
        let all = unix_sockets(&table.unwrap_or_default()).into_iter().filter(|socket| socket.listening);
        let of_runtime = |name: &str| {
            let path = cmdline::socket(name)?;
            SOCKETS.into_iter().find(|(known, _)| Path::new(known) == path)
        };
        let mut sockets: BTreeMap<u64, (&str, Role)> =
            all.filter_map(|socket| Some((socket.inode, of_runtime(socket.name.as_deref()?)?))).collect();
        if !sockets.is_empty() {
            let kept = holds_any(first, &sockets.keys().copied().collect()).unwrap_or_default();
            sockets.retain(|inode, _| !kept.contains(inode));
        }
        sockets
    }

    /// Programs of root's with several threads, outside of containers, that are nothing else of the node; children of the first process
    /// first.
    fn daemons(&self) -> Vec<u32> {
        let host = namespace(&self.proc.join(FIRST.to_string()), "pid");
        let mut all: Vec<(bool, u32)> = Vec::new();
        for pid in self.pids.iter().copied().filter(|pid| *pid > KTHREADD) {
            let dir = self.proc.join(pid.to_string());
            let Some(stat) = read_stat(&dir).filter(|stat| !stat.has_ended()) else { continue };
            let other = self
                .known
                .iter()
                .any(|it| it.pid == pid && it.role != Role::Kubelet && !it.role.is_runtime());
            if stat.parent != KTHREADD && stat.threads > 1 && !other {
                all.push((stat.parent != FIRST, pid));
            }
        }
        all.sort_unstable();
        let of_root = |pid: &u32| {
            let dir = self.proc.join(pid.to_string());
            owner::owner(&dir) == Some(0) && namespace(&dir, "pid") == host
        };
        all.into_iter().map(|(_, pid)| pid).filter(of_root).take(MAX_PROCESSES).collect()
    }
}

/// The ends of connections to the sockets of runtimes, of those who made them; only the kernel knows who is connected.
pub(super) fn clients(proc: &Path, known: &[Process]) -> BTreeSet<u64> {
    if proc != Path::new("/proc") {
        return BTreeSet::new();
    }
    let all = Link::open().and_then(|mut link| unix_diag::dump(&mut link));
    connected_to(&all.unwrap_or_default(), known)
}

fn connected_to(all: &[UnixSocket], known: &[Process]) -> BTreeSet<u64> {
    let is_runtime = |path: &Path| {
        let served =
            known.iter().filter(|it| it.role.is_runtime()).filter_map(|it| it.facts.serves.as_deref());
        SOCKETS.iter().map(|(usual, _)| Path::new(*usual)).chain(served).any(|known| known == path)
    };
    // The end that was accepted has the name of the listener.
    let accepted = all.iter().filter(|socket| {
        !socket.listening
            && socket.name.as_deref().and_then(cmdline::socket).is_some_and(|path| is_runtime(&path))
    });
    accepted.filter_map(|socket| socket.peer).collect()
}

impl Suspect {
    /// This process, if root runs it outside of containers.
    #[must_use]
    pub fn of_root(pid: u32) -> Option<Self> {
        let proc = Path::new("/proc");
        let dir = proc.join(pid.to_string());
        let host = namespace(&proc.join(FIRST.to_string()), "pid");
        let is_ours = owner::owner(&dir) == Some(0) && namespace(&dir, "pid") == host;
        suspect(&dir, pid).filter(|_| is_ours)
    }
}

fn suspect(dir: &Path, pid: u32) -> Option<Suspect> {
    let started_ns = ticks_to_ns(read_stat(dir)?.start_ticks, clock_ticks());
    Some(Suspect { pid, started_ns, exe: identity::exe_path(dir)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::fake_tree::FakeTree;

    fn socket(inode: u64, name: Option<&str>, listening: bool, peer: u64) -> UnixSocket {
        let name = name.map(str::to_owned);
        UnixSocket { inode, name, listening, peer: Some(peer), ..UnixSocket::default() }
    }

    /// The other ends of what a runtime has accepted; its own ends, its listener, and other sockets are none.
    #[test]
    fn who_is_connected() {
        let path = Some("/run/containerd/containerd.sock");
        let all = [
            socket(1, path, true, 0),
            socket(2, path, false, 3),
            socket(3, None, false, 2),
            socket(4, Some("/run/containerd/s/abc"), false, 5),
        ];
        assert_eq!(connected_to(&all, &[]).into_iter().collect::<Vec<_>>(), [3]);
        assert_eq!(clients(Path::new("/other"), &[]), BTreeSet::new());
    }

    /// Who holds such an end may be a kubelet, and is reported.
    #[test]
    fn a_client_is_a_suspect() {
        let tree = FakeTree::new()
            .process(10, "/opt/microlet", "microlet", 0)
            .process(40, "/tmp/x", "x", 65_534)
            .listens(77, "@client", Some(10))
            .listens(78, "@other", Some(40));
        let (pids, clients) = ([10, 40], BTreeSet::from([77, 78]));
        let proc = &tree.root().join("proc");
        let search = |clients| {
            let fruitless = &BTreeSet::new();
            Search { proc, pids: &pids, known: &[], kubelet: true, runtime: false, clients, fruitless }.run()
        };
        let found = search(&clients);
        let told: Vec<(u32, &str)> =
            found.listening.connected.iter().map(|client| (client.pid, client.name.as_str())).collect();
        assert_eq!(told, [(10, "microlet")]);
        assert_eq!(found.suspects.iter().map(|suspect| suspect.pid).collect::<Vec<_>>(), [10]);
        assert_eq!(found.unheld.into_iter().collect::<Vec<_>>(), [78]);
        assert!(search(&BTreeSet::new()).suspects.is_empty());
    }
}
