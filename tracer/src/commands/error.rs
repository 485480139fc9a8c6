//! [`CommandError`]: why there is no report, with the exit code and what to do about it.

use std::{io, path::PathBuf};

use crate::{
    census::goroutines::GoroutineError,
    cli::SettingsError,
    engine::EngineError,
    exit::Exit,
    recording::{RecordError, RecordingError},
    render::flame::SavedError,
    watch::{DirError, MetricsError, OnVerdictError},
};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line makes no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// There is no observation.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Not a cause that we know.
    #[error("unknown cause id {0}")]
    NoSuchCause(String),
    /// The goroutines of a process cannot be read.
    #[error(transparent)]
    Goroutines(#[from] GoroutineError),
    /// No thread for what would keep us waiting.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
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
    /// An earlier flame graph cannot be compared with.
    #[error("cannot compare with {file}")]
    Against {
        /// Its folded text.
        file: PathBuf,
        /// Why.
        #[source]
        source: SavedError,
    },
    /// Nothing can be written for windows.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// Metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The command of `--on-verdict` cannot be run.
    #[error(transparent)]
    OnVerdict(#[from] OnVerdictError),
    /// There is no screen.
    #[cfg(feature = "top")]
    #[error(transparent)]
    Top(#[from] crate::top::TopError),
    /// There is no history.
    #[error("cannot read the history of {dir}")]
    History {
        /// The directory of windows.
        dir: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The manual pages could not be written.
    #[error("cannot write manual pages to {dir}")]
    Manual {
        /// Their directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The report could not be written.
    #[error("cannot write the report")]
    Write(#[source] io::Error),
}

impl CommandError {
    /// The exit code that goes with it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Engine(error) => error.exit(),
            Self::Settings(_) | Self::NoSuchCause(_) | Self::OnVerdict(OnVerdictError::NoProgram { .. }) => {
                Exit::Usage
            }
            #[cfg(feature = "top")]
            Self::Top(crate::top::TopError::NoTerminal) => Exit::Usage,
            Self::Goroutines(GoroutineError::NoSuchProcess(_)) => Exit::Usage,
            Self::Goroutines(GoroutineError::Denied(_)) => Exit::CannotRun,
            Self::Goroutines(_) | Self::NoAnswer { .. } => Exit::CannotTell,
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
            Self::Against { source: SavedError::Read(error), .. } if !is_wrong_path(error) => Exit::CannotRun,
            Self::Manual { source, .. } if is_wrong_path(source) => Exit::Usage,
            Self::History { source, .. } if !is_wrong_path(source) => Exit::CannotRun,
            Self::Against { .. }
            | Self::History { .. }
            | Self::Dir(DirError::Taken(_) | DirError::Foreign { .. }) => Exit::Usage,
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
            Self::Engine(error) => error.hint(),
            Self::NoSuchCause(_) => Some("list all causes: plegtrace explain --list".to_owned()),
            Self::Goroutines(GoroutineError::Denied(_)) => {
                Some("run it as root, or with CAP_SYS_PTRACE: sudo plegtrace goroutines PID".to_owned())
            }
            #[cfg(feature = "top")]
            Self::Top(crate::top::TopError::NoTerminal) => {
                Some("without one: sudo plegtrace, or sudo plegtrace watch".to_owned())
            }
            Self::Metrics(_) => Some("choose another address: --metrics 127.0.0.1:9466".to_owned()),
            Self::History { .. } => {
                Some("plegtrace watch writes it; name its directory with --dir".to_owned())
            }
            Self::Record(RecordError::Exists(_)) => Some("replace it with: --force".to_owned()),
            Self::Record(RecordError::Terminal) => {
                Some("give it a file, or: plegtrace record - | plegtrace report -".to_owned())
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
