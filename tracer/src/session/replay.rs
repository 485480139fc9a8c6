//! `plegtrace report`: the stream of a recording through the same pipeline.

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::Path,
};

use super::{entry::exit_of, error::SessionError, pipeline::Pipeline, report};
use crate::{
    cli::Settings,
    correlate::Snapshot,
    exit::Exit,
    input::Fact,
    recording::{Damage, Recording, RecordingError},
};

/// What a recording says.
#[derive(Debug)]
pub struct Replayed {
    /// The node as it was reported when the recording was made; losses of the recording are among its losses.
    pub snapshot: Snapshot,
    /// What could not be read.
    pub damage: Damage,
}

/// Reads a recording to its end, or as far as it can be read.
///
/// # Errors
///
/// There is nothing to report: it is no recording, or one of a later format, or it cannot be read at all.
pub fn replay(source: impl Read) -> Result<Replayed, RecordingError> {
    let mut recording = Recording::open(source)?;
    let mut pipeline = Pipeline::new(None);
    let mut latest = 0;
    while recording.next_block(&mut |frame| {
        latest = latest.max(frame.header.ts_ns);
        pipeline.push(&frame);
    }) {}
    let damage = recording.damage().clone();
    // A report is of the moment when observing ended; the last look of the census is younger.
    let now = pipeline.stopped_ns().unwrap_or(latest);
    let counts = damage.losses();
    if !counts.is_empty() {
        pipeline.fact(now, &Fact::Loss { counts });
    }
    Ok(Replayed { snapshot: pipeline.snapshot(now), damage })
}

/// Reports a recording; says what is wrong with it.
///
/// # Errors
///
/// It is none, or the report cannot be written.
pub(crate) fn run(file: &Path, settings: &Settings) -> Result<(Exit, Vec<String>), SessionError> {
    let failed = |source| SessionError::Recording { file: file.to_owned(), source };
    let replayed = if file == Path::new("-") {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Err(failed(RecordingError::Foreign));
        }
        replay(stdin.lock())
    } else {
        let source = File::open(file)
            .map_err(|source| SessionError::OpenRecording { file: file.to_owned(), source })?;
        replay(source)
    };
    let Replayed { snapshot, damage } = replayed.map_err(failed)?;
    report::write(&snapshot, settings).map_err(SessionError::Write)?;
    let remarks = damage.sentences();
    let remark = (!remarks.is_empty()).then(|| format!("{}: {}", file.display(), remarks.join("; ")));
    Ok((exit_of(&snapshot), remark.into_iter().collect()))
}
