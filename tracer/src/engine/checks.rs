//! May we run here, and how are probes attached?

use std::path::Path;

use super::EngineError;
use crate::{
    cli::Settings,
    kernel::{self, AttachMode},
    preflight::{self, Features, Given, Report},
};

/// Every check, and what the kernel said.
pub(crate) struct Checked {
    pub(crate) report: Report,
    pub(crate) features: Features,
}

/// Asks the kernel and runs every check. Attaches nothing.
pub(crate) fn run(settings: &Settings) -> Checked {
    let features = kernel::probe_features();
    let given =
        Given { object_embedded: !kernel::is_stub(), features: Some(&features), attach: settings.attach };
    let report = preflight::run(Path::new("/"), &given);
    Checked { report, features }
}

/// How probes will be attached.
///
/// # Errors
///
/// The most basic check that says no.
pub(crate) fn ready(settings: &Settings) -> Result<AttachMode, EngineError> {
    let checked = run(settings);
    if let Some(blocked) = checked.report.blocking() {
        return Err(EngineError::Blocked { what: blocked.sentence, hint: blocked.hint });
    }
    preflight::attach_mode(&checked.features, settings.attach)
        .map_err(|e| EngineError::Blocked { what: e.to_string(), hint: Some(e.hint().to_owned()) })
}
