//! Keeps the logs of a lab whose test has failed: the lab's directory is gone a moment later, and with it what tells "the
//! kubelet was late" from "we were late".

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Where they go; without it nothing is kept.
const VARIABLE: &str = "PLEGTRACE_TEST_LOGS";
/// Of each log its end.
const MOST: u64 = 2 << 20;

/// Copies the ends of the logs of the lab in `dir` into a directory named after `name` and `id` below
/// `$PLEGTRACE_TEST_LOGS`, if that is set, and says so on stderr: unbuffered, because the test harness keeps what the print
/// macros say. What cannot be copied is said and left: the test has failed already, of something else.
pub(crate) fn keep(dir: &Path, id: &str, name: &str) -> Option<PathBuf> {
    let below = std::env::var_os(VARIABLE).filter(|value| !value.is_empty())?;
    let into = Path::new(&below).join(format!("{}-{id}", name.replace("::", "-").replace('/', "-")));
    let said = match copy_all(dir, &into) {
        Ok(0) => return None,
        Ok(_) => format!("LOGS {}", into.display()),
        Err(error) => format!("LOGS of {} are lost: {error:#}", dir.display()),
    };
    // Without a stderr there is nobody to tell.
    let _ = writeln!(std::io::stderr().lock(), "{said}");
    Some(into)
}

/// The name of the running test: that of its thread.
pub(crate) fn test_name() -> String {
    std::thread::current().name().unwrap_or("unnamed").to_owned()
}

/// Only what lies in `dir` itself: below it are file systems that a fault may have made hang.
fn copy_all(dir: &Path, into: &Path) -> Result<usize> {
    let mut copied = 0;
    for entry in fs::read_dir(dir).context("cannot list the lab's directory")? {
        let entry = entry.context("cannot list the lab's directory")?;
        let path = entry.path();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
        copy_end(&path, &into.join(entry.file_name()))?;
        copied += 1;
    }
    Ok(copied)
}

fn copy_end(from: &Path, to: &Path) -> Result<()> {
    let copy = || {
        let mut log = File::open(from)?;
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
        std::io::copy(&mut log.take(MOST), &mut File::create(to)?)
    };
    copy().with_context(|| format!("cannot copy {} to {}", from.display(), to.display())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_logs_are_copied_and_nothing_else() {
        let (lab, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut long = vec![b'a'; MOST as usize];
        long.extend(b"the end");
        fs::write(lab.path().join("kubelet.log"), &long).unwrap();
        fs::write(lab.path().join("containerd.log"), "short").unwrap();
        fs::write(lab.path().join("config.toml"), "no log").unwrap();
        fs::create_dir(lab.path().join("a directory.log")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", lab.path().join("a link.log")).unwrap();
        let into = kept.path().join("matrix-it-0123abcd");
        assert_eq!(copy_all(lab.path(), &into).unwrap(), 2);
        let end = fs::read(into.join("kubelet.log")).unwrap();
        assert_eq!(end.len(), MOST as usize);
        assert!(end.ends_with(b"the end"));
        assert_eq!(fs::read_to_string(into.join("containerd.log")).unwrap(), "short");
        assert_eq!(fs::read_dir(&into).unwrap().count(), 2);
    }

    #[test]
    fn a_lab_without_logs_leaves_no_directory() {
        let (lab, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_eq!(copy_all(lab.path(), &kept.path().join("it")).unwrap(), 0);
        assert!(!kept.path().join("it").exists());
    }

    #[test]
    fn a_test_has_a_name() {
        assert!(!test_name().is_empty());
    }
}
