//! `plegtrace record`: the one-shot with a file at the tap.

use std::sync::Arc;

use super::{
    CommandError,
    output::{self, Drawing},
};
use crate::{
    cli::{RecordOptions, Settings},
    diagnose::diagnose,
    engine::{Observed, Tap, observe_in, ready},
    exit::Exit,
    recording::{Destination, Recorded, Recorder},
    words::human,
};

/// Observes, records, reports; says what there is to say of the recording.
///
/// # Errors
///
/// plegtrace cannot run here, or the recording cannot be written; then the report is printed all the same.
pub(crate) fn run(options: &RecordOptions, settings: &Settings) -> Result<(Exit, Vec<String>), CommandError> {
    let drawing = Drawing::prepare(settings)?;
    let mode = ready(settings)?;
    let destination = Destination::create(&options.file, options.force)?;
    let (name, reports) = (destination.name(), !destination.is_stdout());
    let recorder = Arc::new(Recorder::start(destination, options.max_size)?);
    let observed = observe_in(settings, mode, Some(tap(&recorder)), Some(Arc::clone(&recorder)));
    let Observed { snapshot, flame } = observed.inspect_err(|_| recorder.abandon())?;
    let recorded = recorder.finish();
    let diagnosis = diagnose(&snapshot);
    if reports {
        output::write(&snapshot, &diagnosis, drawing.as_ref().zip(flame.as_ref()), settings)
            .map_err(CommandError::Write)?;
    }
    let mut remarks = remarks(&name, recorded?, options.max_size, settings.quiet);
    remarks.extend(output::send(&snapshot, settings));
    Ok((output::exit_code(diagnosis.verdict), remarks))
}

fn tap(recorder: &Arc<Recorder>) -> Tap {
    let recorder = Arc::clone(recorder);
    Box::new(move |frame| recorder.push(frame))
}

/// What is wrong with it always; that all is well unless `quiet`.
fn remarks(name: &str, recorded: Recorded, max_bytes: u64, quiet: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    if recorded.full {
        let most = human::size(max_bytes);
        remarks.push(format!("the recording is full (--max-size, {most}): the observation ended early"));
    }
    if recorded.left_out > 0 {
        let records = human::plural(recorded.left_out, "record");
        remarks.push(format!("{records} did not fit: the recording is incomplete"));
    }
    if !quiet {
        let (size, records) = (human::size(recorded.bytes), human::plural(recorded.records, "record"));
        remarks.push(format!("recorded to {name}: {size}, {records}"));
    }
    remarks
}
