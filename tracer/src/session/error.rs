//! [`SessionError`]: why there is no report, with the exit code and what to do about it.

use std::{io, path::PathBuf};

use crate::{
    census::goroutines::GoroutineError,
    cli::SettingsError,
    exit::Exit,
    kernel::KernelError,
    recording::{RecordError, RecordingError},
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
    #[error("{}", nothing_to_trace(leftovers))]
    NothingToTrace {
        /// What was found and is no evidence of a node.
        leftovers: Vec<String>,
    },
    /// Not a cause that we know.
    #[error("unknown cause id {0}")]
    NoSuchCause(String),
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
    /// The goroutines of a process cannot be read.
    #[error(transparent)]
    Goroutines(#[from] GoroutineError),
    /// Reading them did not end.
    #[error(
        "process {pid} did not answer within {seconds} s: its memory lock is held, or its memory is on a dead filesystem"
    )]
    NoAnswer {
        /// The process.
        pid: u32,
        /// How long we waited.
        seconds: u64,
    },
    /// There is no recording, or no whole one.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A recording cannot be opened.
    #[error("cannot open {file}")]
    OpenRecording {
        /// The recording.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A recording gives no report.
    #[error("{file}")]
    Recording {
        /// The recording.
        file: PathBuf,
        /// Why.
        #[source]
        source: RecordingError,
    },
    /// No thread for the ring buffer.
    #[error("cannot start the thread that drains the ring buffer")]
    Drain(#[source] io::Error),
    /// No signals.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    /// No runtime for our own tasks.
    #[error("cannot start the event loop")]
    EventLoop(#[source] io::Error),
    /// The report could not be written.
    #[error("cannot write the report")]
    Write(#[source] io::Error),
}

/// Says what was looked for and, of a machine that only looks like a node, what was found.
fn nothing_to_trace(leftovers: &[String]) -> String {
    let mut said =
        "no kubelet and no container runtime here: no process, enabled unit, configuration, pod or socket \
                    of one"
            .to_owned();
    if !leftovers.is_empty() {
        said += &format!("; found only leftovers of a removed package: {}", leftovers.join(", "));
    }
    said
}

impl SessionError {
    /// The exit code that goes with it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Settings(_)
            | Self::Ambiguous(_)
            | Self::NoSuchCause(_)
            | Self::Discover(DiscoverError::NoSuchProcess { .. }) => Exit::Usage,
            Self::Goroutines(GoroutineError::NoSuchProcess(_)) => Exit::Usage,
            Self::Goroutines(GoroutineError::Denied(_)) => Exit::CannotRun,
            Self::Goroutines(_) | Self::NoAnswer { .. } => Exit::CannotTell,
            Self::NothingToTrace { .. } => Exit::NothingToTrace,
            Self::Record(RecordError::Exists(_) | RecordError::NoFile(_) | RecordError::Terminal) => {
                Exit::Usage
            }
            Self::Record(RecordError::Create { source, .. }) | Self::OpenRecording { source, .. } => {
                if is_wrong_path(source) {
                    Exit::Usage
                } else {
                    Exit::CannotRun
                }
            }
            Self::Recording { source: RecordingError::Foreign, .. } => Exit::Usage,
            Self::Recording { source: RecordingError::Read(error), .. } if is_wrong_path(error) => {
                Exit::Usage
            }
            Self::Recording { .. } => Exit::CannotTell,
            _ => Exit::CannotRun,
        }
    }

    /// What to do next, when there is something.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Blocked { hint, .. } => hint.clone(),
            Self::NoSuchCause(_) => Some("list all causes: plegtrace explain --list".to_owned()),
            Self::NothingToTrace { .. } => {
                Some("is this a Kubernetes node? In a container, plegtrace needs hostPID: true".to_owned())
            }
            Self::Goroutines(GoroutineError::Denied(_)) => {
                Some("run it as root, or with CAP_SYS_PTRACE: sudo plegtrace goroutines PID".to_owned())
            }
            Self::Record(RecordError::Exists(_)) => Some("replace it with: --force".to_owned()),
            Self::Record(RecordError::Terminal) => {
                Some("give it a file, or: plegtrace record - | plegtrace report -".to_owned())
            }
            Self::Kernel(KernelError::Stub) => Some("build it with: cargo xtask build --release".to_owned()),
            Self::Kernel(_) | Self::Offsets(_) => {
                Some("see what this machine allows: plegtrace doctor".to_owned())
            }
            _ => None,
        }
    }
}

/// The operator named something else than a file that could be meant.
fn is_wrong_path(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
