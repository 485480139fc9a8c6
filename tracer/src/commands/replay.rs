//! `plegtrace report`: the stream of a recording through the same pipeline.

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::Path,
};

use super::{
    CommandError,
    output::{self, Drawing},
};
use crate::{
    cli::Settings,
    correlate::Snapshot,
    diagnose::diagnose,
    engine::Pipeline,
    exit::Exit,
    flame::Flame,
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
    /// Where the time of relists and requests went; `None` unless asked for.
    pub flame: Option<Flame>,
}

/// Reads a recording to its end, or as far as it can be read.
///
/// # Errors
///
/// There is nothing to report: it is no recording, or one of a later format, or it cannot be read at all.
pub fn replay(source: impl Read) -> Result<Replayed, RecordingError> {
    replay_with(source, None)
}

/// Like [`replay`], and adds up where the time of relists and requests went.
///
/// # Errors
///
/// As those of [`replay`].
pub fn replay_and_fold(source: impl Read) -> Result<Replayed, RecordingError> {
    replay_with(source, Some(Flame::default()))
}

fn replay_with(source: impl Read, mut flame: Option<Flame>) -> Result<Replayed, RecordingError> {
    let mut recording = Recording::open(source)?;
    let mut pipeline = Pipeline::new(None);
    let mut latest = 0;
    while recording.next_block(&mut |frame| {
        latest = latest.max(frame.header.ts_ns);
        pipeline.push(&frame);
    }) {
        if let Some(flame) = flame.as_mut() {
            pipeline.collect(flame, false);
        }
    }
    let damage = recording.damage().clone();
    // A report is of the moment when observing ended; the last look of the census is younger.
    let now = pipeline.stopped_ns().unwrap_or(latest);
    let counts = damage.losses();
    if !counts.is_empty() {
        pipeline.fact(now, Fact::Loss { counts });
    }
    let snapshot = pipeline.snapshot(now);
    if let Some(flame) = flame.as_mut() {
        pipeline.collect(flame, true);
        flame.add_open(&snapshot);
    }
    Ok(Replayed { snapshot, damage, flame })
}

/// Reports a recording; says what is wrong with it.
///
/// # Errors
///
/// It is none, or the report cannot be written.
pub(crate) fn run(file: &Path, settings: &Settings) -> Result<(Exit, Vec<String>), CommandError> {
    let drawing = Drawing::prepare(settings)?;
    let replay_it =
        |source: Box<dyn Read>| if drawing.is_some() { replay_and_fold(source) } else { replay(source) };
    let failed = |source| CommandError::Recording { file: file.to_owned(), source };
    let replayed = if file == Path::new("-") {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Err(failed(RecordingError::Foreign));
        }
        replay_it(Box::new(stdin.lock()))
    } else {
        let source = File::open(file)
            .map_err(|source| CommandError::OpenRecording { file: file.to_owned(), source })?;
        replay_it(Box::new(source))
    };
    let Replayed { snapshot, damage, flame } = replayed.map_err(failed)?;
    let diagnosis = diagnose(&snapshot);
    let flame = drawing.as_ref().zip(flame.as_ref());
    output::write(&snapshot, &diagnosis, flame, settings).map_err(CommandError::Write)?;
    let remarks = damage.sentences();
    let remark = (!remarks.is_empty()).then(|| format!("{}: {}", file.display(), remarks.join("; ")));
    let remarks = remark.into_iter().chain(output::send(&snapshot, settings)).collect();
    Ok((output::exit_code(diagnosis.verdict), remarks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        diagnose::Doubt,
        input::{Start, Stop, StopWhy, frame_fact},
        recording::Encoder,
    };

    fn file(facts: &[(u64, Fact)], end: bool) -> Vec<u8> {
        let mut encoder = Encoder::new();
        let mut bytes = Encoder::header();
        for (at, fact) in facts {
            assert_eq!(encoder.push(&frame_fact(*at, fact).bytes), None);
        }
        bytes.extend(encoder.block().unwrap_or_default());
        if end {
            bytes.extend(encoder.end());
        }
        bytes
    }

    fn stream() -> [(u64, Fact); 3] {
        let late = Fact::Census(crate::input::CensusFact::default());
        [(5, Fact::Start(Start::default())), (9, late), (7, Fact::Stop(Stop { why: StopWhy::Enough }))]
    }

    /// The report is of the moment when observing ended, though the last look at the node came after it.
    #[test]
    fn the_moment_is_that_of_the_end() {
        let replayed = replay(file(&stream(), true).as_slice()).unwrap();
        assert_eq!((replayed.snapshot.now.0, replayed.snapshot.tally.facts), (7, 3));
        assert_eq!(replayed.snapshot.losses, []);
    }

    /// Without an end it is the last moment there is, and the cut is a loss that forbids "healthy".
    #[test]
    fn a_cut_is_a_loss() {
        let replayed = replay(file(&stream()[..2], false).as_slice()).unwrap();
        assert_eq!(replayed.snapshot.now.0, 9);
        assert_eq!(
            replayed.snapshot.real_losses().map(|loss| loss.reason.as_str()).collect::<Vec<_>>(),
            ["cut"]
        );
        let why = diagnose(&replayed.snapshot).doubts;
        assert!(why.iter().any(|doubt| matches!(doubt, Doubt::Lost { count: 1, .. })), "{why:?}");
    }
}
