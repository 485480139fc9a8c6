//! Recordings of nodes on which nothing is wrong, however busy they are, in `tests/golden/quiet`: replayed, nobody is accused.
//! `cargo xtask bless --record --quiet` makes them anew, from live tests that were right.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::packed::{self, SUFFIX};

/// What each is a recording of.
pub const WORKS: [&str; 8] =
    ["idle", "hogs", "slow-probes", "image", "operator", "pods", "pods-go", "operator-with-debuggers"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/quiet")
}

/// Keeps the recording of a node that did this.
///
/// # Errors
///
/// As for [`packed::keep`].
///
/// # Panics
///
/// There is no such work.
pub fn keep(work: &str, recording: &Path) -> Result<()> {
    assert!(WORKS.contains(&work), "{work}: no recording has this name");
    packed::keep(recording, &folder().join(format!("{work}{SUFFIX}")))
}

/// All that were kept, by what the node did.
///
/// # Errors
///
/// The folder cannot be read.
pub fn all() -> Result<Vec<(String, PathBuf)>> {
    let name = |file: PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()).context("a name that is no text")?;
        Ok((name.trim_end_matches(SUFFIX).to_owned(), file))
    };
    packed::in_folder(&folder())?.into_iter().map(name).collect()
}
