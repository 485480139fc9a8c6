//! [`SessionError`]: why there is no report, with the exit code and what to do about it.

use std::io;

use crate::{
    cli::SettingsError,
    exit::Exit,
    kernel::KernelError,
    target::{BtfError, DiscoverError},
};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The command line makes no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A check says no.
    #[error("{what}")]
    Blocked {
        /// The sentence.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
    /// No component of a node on this machine.
    #[error("no kubelet and no container runtime here: no process, unit, socket or directory of one")]
    NothingToTrace,
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
    /// No signals.
    #[error("listen for signals")]
    Signals(#[source] io::Error),
    /// No runtime for our own tasks.
    #[error("start the event loop")]
    EventLoop(#[source] io::Error),
    /// The report could not be written.
    #[error("write the report")]
    Write(#[source] io::Error),
}

impl SessionError {
    /// The exit code that goes with it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Settings(_) | Self::Ambiguous(_) | Self::Discover(DiscoverError::NoSuchProcess { .. }) => {
                Exit::Usage
            }
            Self::NothingToTrace => Exit::NothingToTrace,
            _ => Exit::CannotRun,
        }
    }

    /// What to do next, when there is something.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Blocked { hint, .. } => hint.clone(),
            Self::NothingToTrace => {
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
