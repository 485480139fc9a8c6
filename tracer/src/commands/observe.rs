//! `plegtrace` without a command: observes the node and reports.

use super::{CommandError, output};
use crate::{cli::Settings, diagnose::diagnose, engine, exit::Exit};

/// Observes, reports.
///
/// # Errors
///
/// plegtrace cannot run here, there is nothing to trace, or the report cannot be written.
pub(crate) fn run(settings: &Settings) -> Result<Exit, CommandError> {
    let snapshot = engine::observe(settings, None)?;
    let diagnosis = diagnose(&snapshot);
    output::write(&snapshot, &diagnosis, settings).map_err(CommandError::Write)?;
    Ok(output::exit_code(&diagnosis))
}
