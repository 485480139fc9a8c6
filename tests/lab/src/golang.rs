//! Go's compiler without anything of the machine's configuration, in GOPATH mode.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Map, json};

use crate::{cache, host};

/// What goes into small programs.
const LIBRARY: [&str; 13] = [
    "bufio",
    "bytes",
    "fmt",
    "math/rand",
    "net",
    "os",
    "reflect",
    "runtime",
    "runtime/cgo",
    "strconv",
    "sync",
    "syscall",
    "time",
];
/// Go's compiler is a Go program: with a larger heap it spends less of two processors on collections.
const COMPILER_GOGC: &str = "400";

/// Where the toolchain at `goroot` keeps what it has compiled (`GOCACHE`), also for the next program and the next run: half
/// of the time of a small program is Go's own library. Go looks after what it holds, and several may use it at once.
///
/// # Errors
///
/// Those of the file system.
pub fn compiled(goroot: &Path) -> Result<PathBuf> {
    let toolchain = goroot.file_name().context("a toolchain has a directory")?;
    let dir = cache::root()?.join("go-build").join(toolchain);
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

/// `go build`, in `work`. Programs are linked statically.
pub(crate) fn build(goroot: &Path, gopath: &Path, work: &Path) -> Result<Command> {
    let mut go = Command::new(goroot.join("bin/go"));
    go.arg("build").current_dir(work);
    go.env("GOROOT", goroot).env("GOPATH", gopath).env("GOCACHE", compiled(goroot)?);
    go.env("GOTMPDIR", work).env("GOENV", "off").env("GOFLAGS", "").env("GO111MODULE", "off");
    go.env("CGO_ENABLED", "0").env("GOGC", COMPILER_GOGC);
    Ok(go)
}

/// Compiles what small programs with cgo import of Go's library, so that a test that builds one only has to link it. Without
/// cgo a kubelet has compiled all of it already.
pub(crate) fn compile_library(goroot: &Path) -> Result<()> {
    let work = tempfile::tempdir().context("cannot make a build directory")?;
    let mut go = build(goroot, work.path(), work.path())?;
    go.arg("-buildmode=pie").args(LIBRARY).env("CGO_ENABLED", "1");
    host::run(&mut go).context("a C compiler is needed: apt-get install gcc libc6-dev").map(drop)
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
