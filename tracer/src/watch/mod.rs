//! Observing for months: what is written for each window, and when something is held up.
//!
//! The thread that observes never touches a disk, which may hang when the node is sick: it hands finished texts to a
//! writer, and says what could not be handed over. The command of `--on-verdict` has a thread of its own as well.

mod dir;
mod evidence;
mod flight;
mod history;
mod latencies;
mod metrics;
mod on_verdict;
mod state;
mod story;
mod voice;
mod windows;
mod writer;

pub use dir::DirError;
#[cfg(feature = "top")]
pub(crate) use flight::Flight;
pub use history::{Entry, Quantiles};
pub(crate) use history::{read as read_history, select};
pub(crate) use metrics::Metrics;
pub use metrics::MetricsError;
pub(crate) use on_verdict::OnVerdict;
pub use on_verdict::{OnVerdictError, Runs};
pub(crate) use state::FILE as STATE;
pub use state::{Answer, State, Status};
pub(crate) use windows::Watch;

use std::{path::PathBuf, time::Duration};

/// Where and how long to keep what is written.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The directory.
    pub(crate) dir: PathBuf,
    /// Length of a window.
    pub(crate) window: Duration,
    /// The history, bytes at most.
    pub(crate) history_bytes: u64,
    /// The history, age at most.
    pub(crate) history_age: Duration,
    /// All evidence together, bytes at most.
    pub(crate) evidence_bytes: u64,
    /// The flight recorder, bytes of memory at most.
    pub(crate) flight_bytes: usize,
}
