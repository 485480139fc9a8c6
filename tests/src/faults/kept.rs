//! Recordings of the fault matrix, each with what is known of its fault, in `tests/golden/faults`: what was lived through once is replayed.
//! `cargo xtask bless --record --matrix` makes them anew; one is kept only when its live report was right.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use plegtrace_lab::fault::{Facts, Kind};
use serde::{Deserialize, Serialize};

use super::{Case, Injected, Observer};
use crate::packed::{self, Draft, SUFFIX};

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
    folder().join(stem(kind, observer) + SUFFIX)
}

/// Where this observer's recording is to be written while it observes; `None`: nobody wants to keep it.
///
/// # Panics
///
/// No directory can be made for it.
#[must_use]
pub fn wanted(kind: Kind, observer: Observer) -> Option<Draft> {
    Draft::wanted(&stem(kind, observer))
}

/// Keeps a recording whose report was right, without the name of the kernel's build.
///
/// # Errors
///
/// As for [`packed::keep`], or the note cannot be written.
pub fn keep(case: &Case, recording: &Path) -> Result<()> {
    let to = file(case.kind, case.observer);
    packed::keep(recording, &to)?;
    let Facts { victims, culprits, pod, ids, path: _ } = case.facts.clone();
    let (observer, injected, tester) = (case.observer, case.injected, case.tester);
    let note = Note { observer, victims, culprits, pod, ids, injected, tester };
    let text = serde_json::to_string(&note)? + "\n";
    fs::write(note_of(&to), text).context("cannot write the note beside a recording")
}

/// All that were kept, in the order of their names.
///
/// # Errors
///
/// The folder, or a note in it, cannot be read, or is about a fault that the lab does not have.
pub fn all() -> Result<Vec<(Case, PathBuf)>> {
    let files = packed::in_folder(&folder())?;
    let case = |path: PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.trim_end_matches(SUFFIX);
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
