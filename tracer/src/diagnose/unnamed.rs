//! Signs that a kubelet or a runtime runs although no process is known to be one: its file can have any name, and it can be where
//! plegtrace does not look. Who shows one of them is not said to be down.
//!
//! A sign counts only if it is younger than the end of the last process that was known as that component: who dies keeps its sockets for
//! a moment.

use super::health::RUNTIMES;
use crate::{
    correlate::{LastList, Snapshot, TracedProcess, TracedState},
    decode::MonoNs,
    input::{ClientFact, Component, ListeningFact},
};

/// Where a runtime listens unless it is told otherwise; the embedded containerd of k3s and RKE2, too.
const SOCKETS: [(Component, &str); 5] = [
    (Component::Containerd, "/run/containerd/containerd.sock"),
    (Component::Containerd, "/run/k3s/containerd/containerd.sock"),
    (Component::Crio, "/run/crio/crio.sock"),
    (Component::Dockerd, "/run/docker.sock"),
    (Component::CriDockerd, "/run/cri-dockerd.sock"),
];

/// By what somebody shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A socket of root's listens on this port of kubelets.
    Port(u16),
    /// It lists pods and containers at the runtime as a kubelet does.
    Lists {
        /// Its process.
        pid: u32,
        /// The name of that.
        name: String,
    },
    /// Somebody listens on this socket of runtimes.
    Socket(String),
}

/// A kubelet that is not known: its last known process has ended at `gone`, if there was one.
pub(super) fn kubelet(snapshot: &Snapshot, gone: Option<MonoNs>) -> Option<Sign> {
    let port = || listening(snapshot, gone)?.ports.first().map(|port| Sign::Port(*port));
    let recently = |last: MonoNs| {
        gone.is_none_or(|gone| last > gone) && snapshot.now.since(last) <= snapshot.pace().late_ns
    };
    let lists = snapshot.other_clients.iter().find_map(|client| {
        let like = client.like_kubelet.filter(|like| recently(like.last) && !is_gone(like.pid, snapshot))?;
        Some(Sign::Lists { pid: like.pid, name: client.name.clone() })
    });
    lists.or_else(port)
}

/// A process that is connected to a runtime and asks nothing. That is no sign of a kubelet, because others are so too, and none that there
/// is no kubelet.
pub(super) fn silent_client(snapshot: &Snapshot, gone: Option<MonoNs>) -> Option<&ClientFact> {
    let asks =
        |client: &ClientFact| snapshot.other_clients.iter().any(|other| other.pids.contains(&client.pid));
    listening(snapshot, gone)?.connected.iter().find(|client| !asks(client) && !is_gone(client.pid, snapshot))
}

/// A runtime of this kind that is not known: somebody listens where it does.
pub(super) fn runtime(component: Component, snapshot: &Snapshot, gone: Option<MonoNs>) -> Option<Sign> {
    let sockets = &listening(snapshot, gone)?.sockets;
    let of = |component| SOCKETS.iter().filter(move |(of, _)| *of == component).map(|(_, path)| *path);
    let presences = snapshot.presences.iter().filter(|presence| presence.component == component);
    let targets = snapshot.targets.iter().filter(|target| target.fact.component == component);
    let known = targets.filter_map(|target| target.fact.socket.as_deref());
    let paths = known.chain(presences.map(|presence| presence.path.as_str())).chain(of(component));
    let mut listened = paths.filter(|path| sockets.iter().any(|socket| socket == without_var(path)));
    listened.next().map(|path| Sign::Socket(path.to_owned()))
}

/// A runtime that is not known, on a node without a known one, and without the kubelet's word that it gets its lists.
pub(super) fn of_runtime(snapshot: &Snapshot) -> Option<Sign> {
    let is_live = |component: &Component| {
        let it = |target: &&TracedProcess| target.fact.component == *component;
        snapshot.targets.iter().filter(it).any(|target| target.state == TracedState::Live)
    };
    if RUNTIMES.iter().any(is_live) {
        return None;
    }
    RUNTIMES.into_iter().find_map(|component| {
        let gone = gone_at(component, snapshot);
        runtime(component, snapshot, gone).filter(|_| !lists_succeed(snapshot, gone))
    })
}

/// Does the kubelet get its lists? Then some runtime answers it, whatever process that is.
pub(super) fn lists_succeed(snapshot: &Snapshot, gone: Option<MonoNs>) -> bool {
    let LastList::At(last) = snapshot.last_list else { return false };
    gone.is_none_or(|gone| last > gone) && snapshot.now.since(last) <= snapshot.pace().late_ns
}

/// When the last process that was known as this component ended; `None` when there was none.
pub(super) fn gone_at(component: Component, snapshot: &Snapshot) -> Option<MonoNs> {
    let of = snapshot.targets.iter().filter(|target| target.fact.component == component);
    let at = of.filter_map(|target| match target.state {
        TracedState::Gone { at, .. } => Some(at),
        TracedState::Live => None,
    });
    at.max()
}

fn listening(snapshot: &Snapshot, gone: Option<MonoNs>) -> Option<&ListeningFact> {
    let fact = snapshot.listening.as_ref()?;
    gone.is_none_or(|gone| fact.at_ns > gone.0).then_some(fact)
}

fn is_gone(pid: u32, snapshot: &Snapshot) -> bool {
    snapshot.targets.iter().any(|target| target.fact.pid == pid && target.state != TracedState::Live)
}

/// `/var/run` is `/run` on every node.
fn without_var(path: &str) -> &str {
    path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path)
}

impl Sign {
    /// What shows it, raw.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Port(port) => format!("a process of root's listens on port {port}"),
            Self::Lists { pid, name } if name.is_empty() => {
                format!("process {pid} lists pods and containers at the runtime as a kubelet does")
            }
            Self::Lists { pid, name } => {
                format!("{name} (pid {pid}) lists pods and containers at the runtime as a kubelet does")
            }
            Self::Socket(path) => format!("a process listens on {path}"),
        }
    }
}
