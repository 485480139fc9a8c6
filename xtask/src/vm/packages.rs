//! What people install, in guests that do not know it: the Debian package and the tarball of `cargo xtask dist`, from `dpkg -i` over a
//! restart to `dpkg -P`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::payload::File;
use crate::{dist, paths};

/// What a guest does with them.
const SCRIPT: &str = include_str!("packages.sh");

/// Makes the release; the files that guests get of it, and what they do with them.
///
/// # Errors
/// When the release cannot be made.
pub(super) fn made() -> Result<(Vec<File>, String)> {
    dist::run(&dist::Options::default())?;
    let out = paths::target().join("dist");
    let file = |name, end| anyhow::Ok(File { name, from: ending_with(&out, end)? });
    let files = vec![
        file("plegtrace.deb", "_amd64.deb")?,
        file("plegtrace.tar.gz", "-linux.tar.gz")?,
        file("kustomize.tar.gz", "-kustomize.tar.gz")?,
    ];
    Ok((files, SCRIPT.to_owned()))
}

fn ending_with(dir: &Path, end: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths
        .find(|path| path.to_string_lossy().ends_with(end))
        .with_context(|| format!("there is no file *{end} in {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// It is a script for every `sh`, prints a verdict, and powers off.
    #[test]
    fn the_script_is_sound() {
        let path = paths::workspace().join("xtask/src/vm/packages.sh");
        assert!(Command::new("sh").arg("-n").arg(path).status().unwrap().success());
        assert!(SCRIPT.contains("VM-VERDICT $word passed=$passed failed=$failed skipped=0"));
        assert!(SCRIPT.ends_with("systemctl poweroff --force --force\n"));
    }
}
