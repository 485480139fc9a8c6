//! Go's compiler without anything of the machine's configuration, in GOPATH mode.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Map, json};

/// `go build`, in and with a cache in `work`. Programs are linked statically.
pub(crate) fn build(goroot: &Path, gopath: &Path, work: &Path) -> Command {
    let mut go = Command::new(goroot.join("bin/go"));
    go.arg("build").current_dir(work);
    go.env("GOROOT", goroot).env("GOPATH", gopath).env("GOCACHE", work.join("cache"));
    go.env("GOTMPDIR", work).env("GOENV", "off").env("GOFLAGS", "").env("GO111MODULE", "off");
    go.env("CGO_ENABLED", "0");
    go
}

/// The file for `-overlay` that tells Go which texts to take in the place of which files; these stay as they are, and need not
/// exist.
pub(crate) fn overlay(texts: &[(PathBuf, String)], work: &Path) -> Result<PathBuf> {
    let mut replaced = Map::new();
    for (number, (place, text)) in texts.iter().enumerate() {
        let own = work.join(format!("{number}.go"));
        fs::write(&own, text).with_context(|| format!("cannot write {}", own.display()))?;
        replaced.insert(place.display().to_string(), json!(own));
    }
    let overlay = work.join("overlay.json");
    fs::write(&overlay, json!({ "Replace": replaced }).to_string()).context("cannot write the overlay")?;
    Ok(overlay)
}
