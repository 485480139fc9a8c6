//! What this checkout is a checkout of.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{cmd, paths};

/// The commit, with `+` when the checkout differs from it.
///
/// # Errors
/// When there is no git, or this is no checkout.
pub(crate) fn of_checkout() -> Result<String> {
    of(&paths::workspace())
}

fn of(directory: &Path) -> Result<String> {
    let commit = git(directory, &["rev-parse", "HEAD"])?;
    let changes = git(directory, &["status", "--porcelain", "--untracked-files=no"])?;
    Ok(if changes.is_empty() { commit } else { commit + "+" })
}

/// When the commit was made, seconds since 1970.
///
/// # Errors
/// As [`of_checkout`].
pub(crate) fn time() -> Result<String> {
    git(&paths::workspace(), &["log", "-1", "--format=%ct"])
}

/// What git says. It writes nothing: others may use the checkout at the same time.
fn git(directory: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.current_dir(directory).arg("--no-optional-locks").args(arguments);
    Ok(cmd::output(&mut command)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A change of a file that git knows is seen; where there is no commit, there is none to name.
    #[test]
    fn a_changed_checkout_is_marked() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        git(dir, &["init", "--quiet"]).unwrap();
        assert!(of(dir).is_err());
        fs::write(dir.join("file"), "one").unwrap();
        git(dir, &["add", "file"]).unwrap();
        let author = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
        git(dir, &[&author[..], &["commit", "--quiet", "--message", "one"]].concat()).unwrap();
        let clean = of(dir).unwrap();
        assert!(clean.len() >= 40 && clean.bytes().all(|it| it.is_ascii_hexdigit()), "{clean}");
        fs::write(dir.join("file"), "two").unwrap();
        assert_eq!(of(dir).unwrap(), clean.clone() + "+");
        fs::write(dir.join("file"), "one").unwrap();
        fs::write(dir.join("untracked"), "").unwrap();
        assert_eq!(of(dir).unwrap(), clean);
    }
}
