//! Recordings of the fault matrix, each with what is known of its fault, in `tests/golden/faults`: what was lived through once is replayed.
//! `cargo xtask bless --record --matrix` makes them anew; one is kept only when its live report was right.
//!
//! They are packed once more than a recording is: the looks at a node repeat each other over more than the 32 KiB that DEFLATE sees.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context as _, Result, ensure};
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use clap::ValueEnum as _;
use plegtrace::input::next_frame;
use plegtrace::recording::Encoder;
use plegtrace_lab::fault::{Facts, Kind};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::stream::Stream;
use super::{Case, Injected, Observer};
use crate::recordings;

/// What a packed recording in the repository may weigh, bytes.
const MOST: usize = 512 << 10;
/// Brotli looks back over this power of two, bytes: over all of a recording.
const WINDOW: i32 = 23;

/// Set to `1`: the matrix keeps what it observes.
const KEEP: &str = "PLEGTRACE_KEEP_FAULTS";

/// What is written beside a recording.
#[derive(Serialize, Deserialize)]
struct Note {
    observer: Observer,
    victims: Vec<u32>,
    culprits: Vec<u32>,
    pod: String,
    ids: Vec<String>,
    injected: Injected,
    tester: u32,
}

/// Where the recordings lie.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/faults")
}

fn stem(kind: Kind, observer: Observer) -> String {
    let when = match observer {
        Observer::Early => "early",
        Observer::Late => "late",
    };
    format!("{}-{when}", kind.name())
}

fn note_of(recording: &Path) -> PathBuf {
    recording.with_extension("").with_extension("json")
}

/// The recording of a fault as this observer met it; there may be none.
#[must_use]
pub fn file(kind: Kind, observer: Observer) -> PathBuf {
    folder().join(stem(kind, observer) + ".records.br")
}

/// Where a recording is written while its observer observes, in a directory of its own, which goes with this: also when the fault was
/// over too early, or the test panics.
#[derive(Debug)]
pub struct Draft {
    file: PathBuf,
    _dir: TempDir,
}

impl Draft {
    fn new(kind: Kind, observer: Observer) -> io::Result<Self> {
        let dir = TempDir::with_prefix("plegtrace-fault-")?;
        Ok(Self { file: dir.path().join(stem(kind, observer)), _dir: dir })
    }

    /// The file, which is not made yet.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}

/// Where this observer's recording is to be written while it observes; `None`: nobody wants to keep it.
///
/// # Panics
///
/// No directory can be made for it.
#[must_use]
pub fn wanted(kind: Kind, observer: Observer) -> Option<Draft> {
    let is_wanted = std::env::var(KEEP).is_ok_and(|value| value == "1");
    is_wanted.then(|| Draft::new(kind, observer).expect("a directory for a recording"))
}

/// Keeps a recording whose report was right, without the name of the kernel's build.
///
/// # Errors
///
/// It cannot be read or written, is too large, or names a home directory.
pub fn keep(case: &Case, recording: &Path) -> Result<()> {
    fs::create_dir_all(folder()).context("cannot make the folder of recordings")?;
    recordings::anonymise(recording, fs::read_to_string("/proc/sys/kernel/osrelease")?.trim())?;
    recordings::has_no_home(recording)?;
    let packed = pack(recording)?;
    let length = packed.len();
    ensure!(length <= MOST, "the recording of {:?} has {length} bytes, {MOST} are allowed", case.kind);
    let to = file(case.kind, case.observer);
    fs::write(&to, packed).with_context(|| format!("cannot write {}", to.display()))?;
    fs::remove_file(recording)?;
    let Facts { victims, culprits, pod, ids, path: _ } = case.facts.clone();
    let (observer, injected, tester) = (case.observer, case.injected, case.tester);
    let note = Note { observer, victims, culprits, pod, ids, injected, tester };
    let text = serde_json::to_string(&note)? + "\n";
    fs::write(note_of(&to), text).context("cannot write the note beside a recording")
}

/// The records of a recording, one after the other, packed.
fn pack(recording: &Path) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    Stream::open(recording)?.frames().iter().for_each(|frame| all.extend_from_slice(&frame.bytes));
    let mut packed = Vec::new();
    let params =
        BrotliEncoderParams { lgwin: WINDOW, size_hint: all.len(), ..BrotliEncoderParams::default() };
    brotli::BrotliCompress(&mut all.as_slice(), &mut packed, &params)?;
    Ok(packed)
}

/// What [`keep`] has packed, as a recording of today's format.
///
/// # Errors
///
/// It cannot be read, or is not what was packed.
pub fn recording(file: &Path) -> Result<Vec<u8>> {
    let source = fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let mut records = Vec::new();
    brotli::BrotliDecompress(&mut std::io::BufReader::new(source), &mut records)?;
    let (mut encoder, mut whole, mut rest) = (Encoder::new(), Encoder::header(), Bytes::from(records));
    while !rest.is_empty() {
        let frame = next_frame(&mut rest).with_context(|| format!("{} is damaged", file.display()))?;
        whole.extend(encoder.push(&frame.bytes).into_iter().flatten());
    }
    whole.extend(encoder.block().into_iter().flatten());
    whole.extend(encoder.end());
    Ok(whole)
}

/// All that were kept, in the order of their names.
///
/// # Errors
///
/// The folder, or a note in it, cannot be read, or is about a fault that the lab does not have.
pub fn all() -> Result<Vec<(Case, PathBuf)>> {
    let entries = fs::read_dir(folder()).context("there are no recordings")?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    files.retain(|path| path.to_string_lossy().ends_with(".records.br"));
    files.sort();
    let case = |path: PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.trim_end_matches(".records.br");
        let fault = name.rsplit_once('-').map_or(name, |(fault, _)| fault);
        let kind = Kind::from_str(fault, false).map_err(anyhow::Error::msg)?;
        let text = fs::read_to_string(note_of(&path))
            .with_context(|| format!("there is no note beside {}", path.display()))?;
        let Note { observer, victims, culprits, pod, ids, injected, tester } = serde_json::from_str(&text)?;
        let facts = Facts { victims, culprits, pod, ids, path: None };
        Ok((Case { kind, observer, facts, injected, tester }, path))
    };
    files.into_iter().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing of a recording is left behind when nobody keeps it, not even after a panic.
    #[test]
    fn a_draft_goes() {
        let kind = *Kind::all().first().unwrap();
        let draft = Draft::new(kind, Observer::Early).unwrap();
        let dir = draft.file().parent().unwrap().to_owned();
        fs::write(draft.file(), "half a recording").unwrap();
        let panicked = std::thread::spawn(move || {
            let _draft = draft;
            panic!("as a wrong report does");
        });
        assert!(panicked.join().is_err() && !dir.exists());
    }
}
