//! `plegtrace` without a command: observes the node and reports.

use super::{
    CommandError,
    output::{self, Drawing},
};
use crate::{
    cli::Settings,
    diagnose::diagnose,
    engine::{self, Observed},
    exit::Exit,
};

/// Observes, reports, and says what there is to say beside the report.
///
/// # Errors
///
/// plegtrace cannot run here, there is nothing to trace, or the report cannot be written.
pub(crate) fn run(settings: &Settings) -> Result<(Exit, Vec<String>), CommandError> {
    let drawing = Drawing::prepare(settings)?;
    let Observed { snapshot, flame } = engine::observe_in(settings, engine::ready(settings)?, None, None)?;
    let diagnosis = diagnose(&snapshot);
    output::write(&snapshot, &diagnosis, drawing.as_ref().zip(flame.as_ref()), settings)
        .map_err(CommandError::Write)?;
    Ok((output::exit_code(diagnosis.verdict), output::send(&snapshot, settings)))
}
