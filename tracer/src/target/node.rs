//! [`Node`]: which of the processes found are the node's own kubelet, runtime and shims.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plegtrace_common::role::Role;

use super::cmdline;
use super::discover::{Overrides, Recognised};
use super::holders::{listens_at, table};
use super::process::Process;
use super::search::{Search, Suspect, clients};
use super::unix_sockets::unix_sockets;
use crate::input::{Component, ListeningFact, Presence};

/// Runtimes that are asked for their sockets, where there are several.
const MAX_ASKED: usize = 8;

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
    /// Where somebody listens as kubelets and runtimes do; `None` when both are known.
    pub listening: Option<ListeningFact>,
    /// Who may be the kubelet by where it listens.
    pub suspects: Vec<Suspect>,
    /// Sockets that nobody was found to hold.
    pub unheld: BTreeSet<u64>,
    /// What is known of processes whatever they are called.
    pub recognised: Vec<Recognised>,
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

    /// The node's kubelet: the one given by the user, else one that says it calls the runtime given by the user, else one of root's, else one
    /// outside of containers, else the oldest; none that calls another runtime than that. One inside of a container, or of another user, is not the
    /// node's where the node has one that does not run.
    #[must_use]
    pub fn kubelet(&self) -> Option<&Process> {
        let mut kubelets: Vec<_> = self.with_role(Role::Kubelet).collect();
        let runtime = self.processes.iter().find(|process| self.forced_runtime == Some(process.pid));
        let served = runtime.and_then(|process| process.facts.serves.as_deref());
        let socket = served.or(self.runtime_endpoint.as_deref());
        let installed = self.presence.iter().any(|presence| presence.component == Component::Kubelet);
        let is_others = |it: &Process| it.is_foreign() && !runtime.is_some_and(Process::is_foreign);
        kubelets.retain(|process| {
            let given = self.forced_kubelet == Some(process.pid);
            let nodes = runtime.is_some() || !(installed && process.is_nested());
            let possible = if is_others(process) { !installed && !self.has_roots() } else { nodes };
            let by_docker =
                || process.facts.docker.is_some() && runtime.is_some_and(|it| self.is_behind_docker(it));
            given || possible && (may_call(process, socket) || by_docker())
        });
        kubelets.sort_by_key(|process| {
            let calls_it = socket.is_some() && process.facts.calls.as_deref() == socket;
            let not_so = (is_others(process), !calls_it, process.is_nested());
            (self.forced_kubelet != Some(process.pid), not_so, process.started_ns)
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
    /// Docker; of several, the one that holds its socket; dockerd. `None` when several are possible, and when nobody listens on the kubelet's
    /// endpoint.
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

    /// Looks for the kubelet and the runtime by the sockets on which they listen, where no name tells.
    pub(super) fn search(
        &mut self,
        proc: &Path,
        pids: &[u32],
        overrides: &Overrides,
        read: &dyn Fn(u32, Option<Role>) -> Option<Process>,
    ) {
        let (kubelet, runtime) = (self.kubelet().is_none(), self.runtime().is_none() && !self.is_ambiguous());
        if !kubelet && !runtime {
            return;
        }
        let known = &self.processes;
        let fruitless = &overrides.fruitless;
        let clients = &if kubelet { clients(proc, known) } else { BTreeSet::new() };
        let found = Search { proc, pids, known, kubelet, runtime, clients, fruitless }.run();
        let is_new = |pid: u32| !self.processes.iter().any(|process| process.pid == pid);
        let runtimes = found.runtimes.into_iter().filter(|(pid, ..)| is_new(*pid));
        let serving = |(pid, path, role): (u32, &str, Role)| {
            let mut process = read(pid, Some(role))?;
            process.facts.serves = Some(path.into());
            Some(process)
        };
        let runtimes: Vec<Process> = runtimes.filter_map(serving).collect();
        self.recognised.extend(runtimes.iter().map(|it| Recognised {
            pid: it.pid,
            started_ns: it.started_ns,
            role: Some(it.role),
        }));
        self.processes.extend(runtimes);
        self.processes.sort_by_key(|process| process.pid);
        (self.suspects, self.unheld, self.listening) = (found.suspects, found.unheld, Some(found.listening));
    }

    /// Looks which of the first runtimes hold the sockets that they say they serve.
    pub(super) fn find_holders(&mut self, proc: &Path) {
        let asked: Vec<u32> = self.runtimes().take(MAX_ASKED).map(|process| process.pid).collect();
        for process in self.processes.iter_mut().filter(|process| asked.contains(&process.pid)) {
            let serves = process.facts.serves.as_deref();
            process.holds_socket = serves.and_then(|path| listens_at(proc, process.pid, path));
        }
    }

    fn choose(&self) -> Choice<'_> {
        if let Some(pid) = self.forced_runtime {
            let given = self.processes.iter().find(|process| process.pid == pid && process.role.is_runtime());
            return given.map_or(Choice::Nobody, Choice::One);
        }
        if let Some(socket) = self.dockershim_asks() {
            let daemons: Vec<&Process> = self.runtimes().filter(|it| it.role == Role::Dockerd).collect();
            let serving = |process: &&&Process| process.facts.serves.as_deref() == Some(socket);
            let only = || daemons.first().filter(|_| daemons.len() == 1);
            let chosen = daemons.iter().find(serving).or_else(only);
            return chosen.map_or(Choice::Nobody, |process| Choice::One(process));
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
            (Some(one), Some(other)) => {
                let mut holders =
                    [one, other].into_iter().chain(cri).filter(|it| it.holds_socket == Some(true));
                let only = holders.next().filter(|_| holders.next().is_none());
                only.map_or(Choice::Several, Choice::One)
            }
        }
    }

    /// Runtimes in the same kind of place as the kubelet: outside of containers, or inside of one. Without a kubelet,
    /// outside, if any is. Those of other users only where the node is a user's.
    pub fn runtimes(&self) -> impl Iterator<Item = &Process> {
        let foreign = self.is_of_user();
        let all = move || {
            self.processes.iter().filter(move |it| it.role.is_runtime() && (foreign || !it.is_foreign()))
        };
        let nested = self.kubelet().map_or_else(|| all().all(Process::is_nested), Process::is_nested);
        all().filter(move |process| process.is_nested() == nested)
    }

    /// Does all of the node belong to another user than root? Where components are installed, and where any of them is root's, none of
    /// another user is taken for the node's; unless the operator says so.
    #[must_use]
    pub fn is_of_user(&self) -> bool {
        if let Some(kubelet) = self.kubelet() {
            return kubelet.is_foreign();
        }
        let given = self.processes.iter().find(|process| self.forced_runtime == Some(process.pid));
        given.map_or_else(|| self.presence.is_empty() && !self.has_roots(), Process::is_foreign)
    }

    /// Does root run a component outside of containers?
    fn has_roots(&self) -> bool {
        let component = |it: &Process| it.role == Role::Kubelet || it.role.is_runtime();
        self.processes.iter().any(|it| component(it) && !it.is_foreign() && !it.is_nested())
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

    /// The Docker socket that the kubelet asks through its dockershim; `None` when it has another runtime.
    fn dockershim_asks(&self) -> Option<&Path> {
        let facts = &self.kubelet()?.facts;
        // Up to 1.23 it is what a kubelet has that says nothing.
        let unsaid =
            || facts.calls.is_none() && self.listeners.as_ref().is_some_and(Listeners::have_dockershim);
        facts.docker.as_deref().or_else(|| unsaid().then(|| Path::new(cmdline::DOCKER)))
    }

    /// The node's runtime, and the daemons behind it: dockerd behind cri-dockerd, and containerd behind dockerd.
    #[must_use]
    pub fn runtime_and_behind(&self) -> Vec<&Process> {
        let mut all: Vec<&Process> = self.runtime().into_iter().collect();
        while let Some(next) = all.last().and_then(|last| self.behind(last)) {
            all.push(next);
        }
        all
    }

    fn behind(&self, runtime: &Process) -> Option<&Process> {
        let role = match runtime.role {
            Role::CriDockerd => Role::Dockerd,
            Role::Dockerd => Role::Containerd,
            _ => return None,
        };
        let mut daemons = self.with_role(role).filter(|it| runtime.is_foreign() || !it.is_foreign());
        if runtime.role == Role::CriDockerd {
            return daemons.next().filter(|_| daemons.next().is_none());
        }
        // Its own, or the one that it is told to use, or the system's.
        let socket = runtime.facts.calls.as_deref().unwrap_or(Path::new(cmdline::CONTAINERD));
        let daemons: Vec<&Process> = daemons.collect();
        let own = daemons.iter().find(|process| process.parent == runtime.pid);
        own.or_else(|| daemons.iter().find(|process| process.facts.serves.as_deref() == Some(socket)))
            .copied()
    }

    fn is_behind_docker(&self, runtime: &Process) -> bool {
        self.with_role(Role::Dockerd)
            .any(|docker| self.behind(docker).is_some_and(|it| it.pid == runtime.pid))
    }

    /// Shims that belong to the node's runtime, or to what is behind it; those that do not say whose they are belong to all.
    pub fn shims(&self) -> Vec<&Process> {
        let runtimes = self.runtime_and_behind();
        let of_ours = |shim: &&Process| {
            runtimes
                .iter()
                .any(|runtime| shim.facts.calls.is_none() || shim.facts.calls == runtime.facts.serves)
        };
        let foreign = self.is_of_user();
        self.with_role(Role::Shim).filter(|shim| foreign || !shim.is_foreign()).filter(of_ours).collect()
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

/// Is this the socket of the kubelet's runtime, as far as that is known? A kubelet that has Docker for a runtime calls no
/// other one: its dockershim is inside of it, and asks dockerd.
fn may_call(kubelet: &Process, socket: Option<&Path>) -> bool {
    let Some(docker) = &kubelet.facts.docker else { return agree(kubelet.facts.calls.as_deref(), socket) };
    let is_its = |socket: &Path| socket == docker || is_dockershim(socket);
    socket.is_none_or(is_its)
}

/// Is it where a kubelet serves the CRI by its dockershim?
fn is_dockershim(socket: &Path) -> bool {
    socket.file_name().is_some_and(|name| name == "dockershim.sock")
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
        let sockets = unix_sockets(&table(&proc.join(pid.to_string()).join("net/unix"))?);
        let paths = sockets.into_iter().filter(|socket| socket.listening).filter_map(|socket| socket.name);
        Some(Self(paths.filter_map(|path| cmdline::socket(&path)).collect()))
    }

    /// Does a kubelet listen where its dockershim serves the CRI?
    fn have_dockershim(&self) -> bool {
        self.0.iter().any(|path| is_dockershim(path))
    }

    /// Does anybody listen there? The kernel keeps the name that was bound, which a link may lead to.
    fn any(&self, endpoint: &Path) -> bool {
        let linked = || std::fs::canonicalize(endpoint).is_ok_and(|path| self.0.contains(&path));
        self.0.contains(endpoint) || linked()
    }
}
