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
    unix_sockets::unix_sockets,
};
use crate::input::ListeningFact;

/// Processes whose descriptors are read.
const MAX_PROCESSES: usize = 256;
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
    /// Who listens where kubelets do.
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
    /// Sockets whose holders were looked for in vain not long ago.
    pub(super) fruitless: &'a BTreeSet<u64>,
}

impl Search<'_> {
    /// Reads the tables, and if somebody listens, looks who that is.
    pub(super) fn run(&self) -> Found {
        let first = self.proc.join(FIRST.to_string());
        let (ports, sockets) = (self.ports(&first), self.sockets(&first));
        let mut wanted: BTreeSet<u64> = ports.keys().chain(sockets.keys()).copied().collect();
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
            if held.iter().any(|inode| ports.contains_key(inode)) {
                found.suspects.extend(suspect(&dir, pid));
            }
            if left.is_empty() {
                break;
            }
        }
        found.unheld = left;
        found
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
