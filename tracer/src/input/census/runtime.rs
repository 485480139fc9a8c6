//! What the runtime says of its containers, and what has become of them.

use serde::{Deserialize, Serialize};

use super::{descriptor::Holder, process::ParkedThreads};

/// What a runtime says of its containers, over the CRI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeSays {
    /// Its process.
    pub pid: u32,
    /// Version of the CRI that it answered in; empty when it did not answer.
    pub version: String,
    /// Our calls: they are among the handlers that are seen.
    pub calls: Vec<OwnCall>,
    /// What it says of itself: "RuntimeReady", "NetworkReady"; empty when it was not asked, or did not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<RuntimeCondition>,
    /// Sandboxes and containers, those that run first; at most 4096.
    pub containers: Vec<RuntimeState>,
    /// How many were too many.
    pub left_out: u32,
}

/// A condition of a runtime, from the answer of `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeCondition {
    /// Its type.
    pub name: String,
    /// It is true.
    pub holds: bool,
    /// Why not, in a word; hostile text.
    pub reason: String,
    /// The same in words, the first 200 characters; hostile text.
    pub message: String,
    /// It is required, and the answer does not have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

impl RuntimeCondition {
    /// The conditions that the CRI requires (api.proto, `RuntimeStatus`). The kubelet reports its node NotReady while one of them is false
    /// or missing, and looks at no other (`updateRuntimeUp`, kubelet.go).
    pub const REQUIRED: [&str; 2] = ["RuntimeReady", "NetworkReady"];

    /// Is the node NotReady without it? A runtime may say more: containerd says since 1.7 whether anything that it was asked or configured
    /// to do is deprecated (`ContainerdHasNoDeprecationWarnings`), which is false on many a sound node.
    #[must_use]
    pub fn is_required(&self) -> bool {
        Self::REQUIRED.contains(&self.name.as_str())
    }
}

/// A call that the census made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCall {
    /// CRI method.
    pub operation: String,
    /// When it was sent.
    pub began_ns: u64,
    /// When the answer was there; `None`: none came, and the call was given up.
    pub ended_ns: Option<u64>,
    /// The error that it was answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
}

/// An error of gRPC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    /// Its code (`google.golang.org/grpc/codes`).
    pub code: i32,
    /// Its first 200 characters; hostile text.
    pub message: String,
}

/// A container or sandbox as the runtime believes it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeState {
    /// Which.
    pub container: ContainerFact,
    /// "created", "running", "exited", "unknown"; of sandboxes "ready", "notready".
    pub state: String,
    /// It runs, the runtime says.
    pub runs: bool,
}

/// A container, or a command in one, whose first process has ended, by the pid that its shim wrote down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedInit {
    /// Id of the container or sandbox.
    pub id: String,
    /// The runtime's id of the command; `None` for the container itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<String>,
    /// The process.
    pub pid: u32,
    /// It has ended, and nobody has asked how; otherwise it is gone.
    pub zombie: bool,
    /// Who traces it (ptrace): as long as that one does not let go, the kernel does not tell its parent of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracer: Option<Holder>,
    /// Commands in the same container that run.
    #[serde(default)]
    pub commands: u32,
}

/// A process of a container that was sent SIGKILL and does not end, because a thread of it waits in the kernel and cannot be interrupted
/// there (state D).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unkillable {
    /// When it was looked at.
    pub at_ns: u64,
    /// The process.
    pub pid: u32,
    /// The kernel's name of it. Hostile text.
    pub comm: String,
    /// Start of the process, as in [`ProcessFact::started_ns`](super::ProcessFact::started_ns).
    pub started_ns: Option<u64>,
    /// Its container, when its cgroup names one.
    pub container: Option<ContainerFact>,
    /// Where it waits.
    pub park: ParkedThreads,
}

/// Container and pod of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContainerFact {
    /// Id of the container; of the sandbox for a shim.
    pub id: String,
    /// Id of its sandbox.
    pub sandbox: Option<String>,
    /// Name of the container in its pod.
    pub name: Option<String>,
    /// Name of the pod.
    pub pod: Option<String>,
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Where this was read: "cri", "bundle", "docker labels", "cgroup", "command line".
    pub source: String,
}
