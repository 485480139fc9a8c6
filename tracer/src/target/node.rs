//! [`Node`]: which of the processes found are the node's own kubelet, runtime and shims.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use plegtrace_common::role::Role;

use super::cmdline;
use super::process::{Process, read_whole};
use super::unix_sockets::unix_sockets;
use crate::input::{Component, Presence};

/// Bytes of a table of sockets; what is longer tells nothing of who does not listen.
const MAX_TABLE: u64 = 4 << 20;

/// The components of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Running ones, by pid.
    pub processes: Vec<Process>,
    /// Units, sockets and directories of components, running or not.
    pub presence: Vec<Presence>,
    /// What looks like a trace and is no evidence of a node, each with the reason.
    pub leftovers: Vec<String>,
    /// The endpoint given by the user.
    pub runtime_endpoint: Option<PathBuf>,
    pub(super) listeners: Option<Listeners>,
    pub(super) forced_kubelet: Option<u32>,
    pub(super) forced_runtime: Option<u32>,
}

/// Which process is the runtime.
enum Choice<'n> {
    One(&'n Process),
    Nobody,
    Several,
}

impl Node {
    /// Running processes with this role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(move |process| process.role == role)
    }

    /// The node's kubelet: the one given by the user, else one outside of containers, else the oldest; none that calls
    /// another runtime than the one given by the user. One inside of a container is not the node's where the node has
    /// one that does not run.
    #[must_use]
    pub fn kubelet(&self) -> Option<&Process> {
        let mut kubelets: Vec<_> = self.with_role(Role::Kubelet).collect();
        let runtime = self.processes.iter().find(|process| self.forced_runtime == Some(process.pid));
        let served = runtime.and_then(|process| process.facts.serves.as_deref());
        let socket = served.or(self.runtime_endpoint.as_deref());
        let installed = self.presence.iter().any(|presence| presence.component == Component::Kubelet);
        kubelets.retain(|process| {
            let given = self.forced_kubelet == Some(process.pid);
            let possible = runtime.is_some() || !(installed && process.is_nested());
            given || possible && agree(process.facts.calls.as_deref(), socket)
        });
        kubelets.sort_by_key(|process| {
            (self.forced_kubelet != Some(process.pid), process.is_nested(), process.started_ns)
        });
        kubelets.first().copied()
    }

    /// Inode number of the pid namespace in which kubelet and runtime are; `None` when it cannot be told, and when there
    /// are two.
    #[must_use]
    pub fn pid_namespace(&self) -> Option<u32> {
        let own = self.kubelet().into_iter().chain(self.runtime());
        let mut namespaces: BTreeSet<Option<u32>> = own.map(|process| process.pid_namespace).collect();
        namespaces.pop_first().flatten().filter(|_| namespaces.is_empty())
    }

    /// The runtime that answers the node's kubelet.
    ///
    /// In order: the one given by the user; the one that serves the kubelet's endpoint; the only one outside of
    /// Docker; dockerd. `None` when several are possible, and when nobody listens on the kubelet's endpoint.
    #[must_use]
    pub fn runtime(&self) -> Option<&Process> {
        match self.choose() {
            Choice::One(process) => Some(process),
            Choice::Nobody | Choice::Several => None,
        }
    }

    /// Are there several runtimes, and nothing tells which answers the kubelet?
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        matches!(self.choose(), Choice::Several)
    }

    fn choose(&self) -> Choice<'_> {
        if let Some(pid) = self.forced_runtime {
            let given = self.processes.iter().find(|process| process.pid == pid && process.role.is_runtime());
            return given.map_or(Choice::Nobody, Choice::One);
        }
        if let Some(endpoint) = self.endpoint() {
            let mut serving =
                self.runtimes().filter(|process| process.facts.serves.as_deref() == Some(endpoint));
            if let Some(only) = serving.next().filter(|_| serving.next().is_none()) {
                return Choice::One(only);
            }
        }
        if self.unserved().is_some() {
            return Choice::Nobody;
        }
        let of_docker = |process: &Process| {
            process.role == Role::Containerd
                && self.with_role(Role::Dockerd).any(|docker| docker.pid == process.parent)
        };
        // Another kubelet's runtime is not the one of the kubelet given by the user.
        let endpoint = self.endpoint().filter(|_| self.forced_kubelet.is_some());
        let mut cri = self
            .runtimes()
            .filter(|process| process.role != Role::Dockerd && !of_docker(process))
            .filter(|process| agree(process.facts.serves.as_deref(), endpoint));
        match (cri.next(), cri.next()) {
            (Some(only), None) => Choice::One(only),
            (None, _) => {
                let docker = self.runtimes().find(|process| process.role == Role::Dockerd);
                docker.map_or(Choice::Nobody, Choice::One)
            }
            _ => Choice::Several,
        }
    }

    /// Runtimes in the same kind of place as the kubelet: outside of containers, or inside of one. Without a kubelet,
    /// outside, if any is.
    pub fn runtimes(&self) -> impl Iterator<Item = &Process> {
        let all = || self.processes.iter().filter(|process| process.role.is_runtime());
        let nested = self.kubelet().map_or_else(|| all().all(Process::is_nested), Process::is_nested);
        all().filter(move |process| process.is_nested() == nested)
    }

    /// Components inside of containers, on a node whose own are outside: whatever they do is no business of the node. A `runc
    /// init` is the node's as long as it is one: it has the namespaces of its container before it becomes it.
    pub fn nested(&self) -> impl Iterator<Item = &Process> {
        let own = self.runtime().or_else(|| self.kubelet());
        let outside = own.is_some_and(|process| !process.is_nested());
        let components = self.processes.iter().filter(|process| process.role != Role::Runc);
        components.filter(move |process| outside && process.is_nested())
    }

    /// The socket that the kubelet calls, when nobody listens there; `None` also when that cannot be told.
    #[must_use]
    pub fn unserved(&self) -> Option<Presence> {
        let endpoint = self.endpoint()?;
        if self.kubelet().is_some_and(Process::is_nested) || self.listeners.as_ref()?.any(endpoint) {
            return None;
        }
        let path = endpoint.display().to_string();
        Some(Presence { component: serves(&path), path, called: true })
    }

    /// The CRI socket between kubelet and runtime, as far as it is known.
    #[must_use]
    pub fn endpoint(&self) -> Option<&Path> {
        let given = self.runtime_endpoint.as_deref();
        given.or_else(|| self.kubelet().and_then(|kubelet| kubelet.facts.calls.as_deref()))
    }

    /// Shims that belong to this runtime; those that do not say whose they are belong to all.
    pub fn shims_of<'n>(&'n self, runtime: &'n Process) -> impl Iterator<Item = &'n Process> {
        self.with_role(Role::Shim)
            .filter(|shim| shim.facts.calls.is_none() || shim.facts.calls == runtime.facts.serves)
    }

    /// Is there neither a kubelet nor a runtime, and never was?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let component = |process: &Process| process.role == Role::Kubelet || process.role.is_runtime();
        self.presence.is_empty() && !self.processes.iter().any(component)
    }
}

/// The runtime that usually listens there.
fn serves(endpoint: &str) -> Component {
    let names =
        [("crio", Component::Crio), ("cri-dockerd", Component::CriDockerd), ("docker", Component::Dockerd)];
    let known = names.into_iter().find(|(name, _)| endpoint.contains(name));
    known.map_or(Component::Containerd, |(_, component)| component)
}

/// Do both sockets name the same, as far as they are known?
fn agree(one: Option<&Path>, other: Option<&Path>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// The unix sockets of a network namespace on which somebody listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listeners(BTreeSet<PathBuf>);

impl Listeners {
    /// As this process sees them; `None` when they cannot be read, or not all.
    pub(super) fn read(proc: &Path, pid: u32) -> Option<Self> {
        let file = File::open(proc.join(pid.to_string()).join("net/unix")).ok()?;
        let table = read_whole(file, MAX_TABLE).ok().filter(|table| (table.len() as u64) < MAX_TABLE)?;
        let sockets = unix_sockets(&String::from_utf8_lossy(&table));
        let paths = sockets.into_iter().filter(|socket| socket.listening).filter_map(|socket| socket.name);
        Some(Self(paths.filter_map(|path| cmdline::socket(&path)).collect()))
    }

    /// Does anybody listen there? The kernel keeps the name that was bound, which a link may lead to.
    fn any(&self, endpoint: &Path) -> bool {
        let linked = || std::fs::canonicalize(endpoint).is_ok_and(|path| self.0.contains(&path));
        self.0.contains(endpoint) || linked()
    }
}
