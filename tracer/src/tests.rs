//! What tests of several modules need.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes a script that can be run at once. By another process: what this one has had open for writing, a child of another thread may have
/// open until it executes its own program, and so long the script cannot be executed (ETXTBSY).
pub(crate) fn write_script(path: &Path, text: &str) {
    let source = path.with_extension("text");
    fs::write(&source, text).unwrap();
    assert!(Command::new("install").args(["-m", "755"]).args([&source, path]).status().unwrap().success());
}
