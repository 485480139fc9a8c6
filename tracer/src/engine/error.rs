//! [`EngineError`]: why there is no observation, with the exit code and what to do about it.

use std::io;

use crate::{
    exit::Exit,
    kernel::KernelError,
    target::{BtfError, DiscoverError},
};

/// Why there is no observation.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A check says no.
    #[error("{what}")]
    Blocked {
        /// The sentence.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
    /// No component of a node on this machine.
    #[error("{}", nothing_to_trace(leftovers))]
    NothingToTrace {
        /// What was found and is no evidence of a node.
        leftovers: Vec<String>,
    },
    /// Several runtimes could be meant.
    #[error("{0}")]
    Ambiguous(String),
    /// The processes cannot be listed.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// The kernel's structures are not known.
    #[error(transparent)]
    Offsets(#[from] BtfError),
    /// The kernel side failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// No thread for the ring buffer.
    #[error("cannot start the thread that drains the ring buffer")]
    Drain(#[source] io::Error),
    /// No signals.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    /// No runtime for our own tasks.
    #[error("cannot start the event loop")]
    EventLoop(#[source] io::Error),
}

/// Says what was looked for and, of a machine that only looks like a node, what was found.
fn nothing_to_trace(leftovers: &[String]) -> String {
    let mut said =
        "no kubelet and no container runtime found: no process, enabled unit, configuration, pod or socket of either"
            .to_owned();
    if !leftovers.is_empty() {
        said += &format!("; found only leftovers of a removed package: {}", leftovers.join(", "));
    }
    said
}

impl EngineError {
    /// The exit code that goes with it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Ambiguous(_) | Self::Discover(DiscoverError::NoSuchProcess { .. }) => Exit::Usage,
            Self::NothingToTrace { .. } => Exit::NothingToTrace,
            _ => Exit::CannotRun,
        }
    }

    /// Can it be otherwise in a while? A kubelet that is not there can come.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        // A process that the operator named does not come back under its number.
        let wrong = matches!(self, Self::Discover(DiscoverError::NoSuchProcess { .. }));
        !wrong && matches!(self, Self::NothingToTrace { .. } | Self::Ambiguous(_) | Self::Discover(_))
    }

    /// What to do next, when there is something.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Blocked { hint, .. } => hint.clone(),
            Self::NothingToTrace { .. } => {
                Some("is this a Kubernetes node? In a container, plegtrace needs hostPID: true".to_owned())
            }
            Self::Kernel(KernelError::Stub) => Some("build it with: cargo xtask build --release".to_owned()),
            Self::Kernel(_) | Self::Offsets(_) => {
                Some("see what this machine allows: plegtrace doctor".to_owned())
            }
            _ => None,
        }
    }
}
