//! What stands for the export in a plegtrace that was built without it.

use super::Sent;
use crate::{cli::Collector, correlate::Snapshot};

/// There is none.
#[derive(Clone, Debug)]
pub enum Request {}

/// Why traces are not sent.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The program cannot.
    #[error("this plegtrace was built without the cargo feature otlp")]
    Absent,
}

/// Sends nothing.
///
/// # Errors
///
/// Always: this program cannot.
pub fn send(_: &Collector, _: Vec<Request>) -> Result<Sent, OtlpError> {
    Err(OtlpError::Absent)
}

/// Nothing.
#[must_use]
pub fn requests(_: &Snapshot) -> Vec<Request> {
    Vec::new()
}
