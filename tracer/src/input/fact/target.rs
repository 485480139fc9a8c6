//! Facts of targets: what was found on the node, and what became of it.

use plegtrace_common::role::Role;
use serde::{Deserialize, Serialize};

use super::messages::ClientFact;

/// A process found on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetFact {
    /// What it is.
    pub component: Component,
    /// Process id in plegtrace's pid namespace.
    pub pid: u32,
    /// Start of the process; `None` when not known.
    pub started_ns: Option<u64>,
    /// Path of the executable as the process sees it.
    pub exe: String,
    /// Version of the program when it could be read ("1.6.20").
    pub version: Option<String>,
    /// Go version ("go1.19.8") when it is a Go program.
    pub go_version: Option<String>,
    /// CRI or Docker socket it serves or uses.
    pub socket: Option<String>,
    /// No test has proved plegtrace on this kind of target yet.
    pub unproved: bool,
}

/// A trace of a component without a process: a unit, a socket, a configuration, pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Whose.
    pub component: Component,
    /// Path.
    pub path: String,
    /// It is the socket that the kubelet calls, and nobody listens there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub called: bool,
}

impl Presence {
    /// Why it tells that its component is down.
    #[must_use]
    pub fn words(&self) -> String {
        match self.called {
            true => format!("nothing listens on {}, which the kubelet calls", self.path),
            false => format!("no process, but {} exists", self.path),
        }
    }
}

/// Where somebody listens as a kubelet or a runtime does, whatever its program is called: that no process has the name of one does
/// not tell that none runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningFact {
    /// When that was read.
    pub at_ns: u64,
    /// TCP ports of kubelets (10250: its API, 10248: its health) on which a socket of root's listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Unix sockets of runtimes on which somebody listens, as the kernel has their paths, without `/var`; those that the first process keeps
    /// for a service are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<String>,
    /// Programs of root's, outside of containers and no known part of the node, that are connected to the socket of a runtime: one of
    /// them may be a kubelet that asks nothing. Looked for while no kubelet is known; at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connected: Vec<ClientFact>,
}

/// A component of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are the programs' own")]
pub enum Component {
    Kubelet,
    Containerd,
    Crio,
    Dockerd,
    CriDockerd,
    Shim,
    Conmon,
    Runc,
    Helper,
    /// Process 1 of the node, when it answers calls over D-Bus.
    Systemd,
    /// dbus-daemon or dbus-broker: whoever holds the ends of a system bus.
    BusDaemon,
}

impl Component {
    /// The component a kernel role stands for.
    #[must_use]
    pub fn of_role(role: Role) -> Option<Self> {
        Some(match role {
            // What runs in a container is no part of the node.
            Role::None | Role::Workload => return None,
            Role::Kubelet => Self::Kubelet,
            Role::Containerd => Self::Containerd,
            Role::Crio => Self::Crio,
            Role::Dockerd => Self::Dockerd,
            Role::CriDockerd => Self::CriDockerd,
            Role::Shim => Self::Shim,
            Role::Conmon => Self::Conmon,
            Role::Runc => Self::Runc,
            Role::Helper => Self::Helper,
        })
    }

    /// The role the kernel side keeps for it.
    #[must_use]
    pub fn role(self) -> Role {
        match self {
            Self::Kubelet => Role::Kubelet,
            Self::Containerd => Role::Containerd,
            Self::Crio => Role::Crio,
            Self::Dockerd => Role::Dockerd,
            Self::CriDockerd => Role::CriDockerd,
            Self::Shim => Role::Shim,
            Self::Conmon => Role::Conmon,
            Self::Runc => Role::Runc,
            Self::Helper => Role::Helper,
            // The kernel side does not watch them.
            Self::Systemd | Self::BusDaemon => Role::None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::BusDaemon => "D-Bus daemon",
            other => other.role().name(),
        }
    }
}

/// Something that is not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedFact {
    /// Source that refuses: "uprobes", "process", …
    pub source: String,
    /// Component concerned, when it is one.
    pub component: Option<Component>,
    /// Function, file or feature.
    pub what: String,
    /// Why, in words.
    pub why: String,
    /// The report is weaker for it (as opposed to: this version of the target has no such function).
    pub matters: bool,
}

/// A target ended or was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetGone {
    /// What it was.
    pub component: Component,
    /// Its process id.
    pub pid: u32,
    /// In words: "ended"; how, the kernel's record of its exit tells, where there is one.
    pub how: String,
}
