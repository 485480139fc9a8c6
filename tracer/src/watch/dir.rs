//! [`Dir`]: a private directory whose files are replaced as a whole, so that whoever reads never sees half of one.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// Why there is no directory to write to.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// It cannot be made or written to.
    #[error("cannot write to {path}")]
    Write {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another one writes there.
    #[error("another plegtrace watch writes to {0}")]
    Taken(PathBuf),
    /// It is not ours alone: files in it are replaced and removed.
    #[error("{path} {why}: give plegtrace watch a directory of its own (--dir)")]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// A directory of our own, as long as this lives.
#[derive(Debug)]
pub(super) struct Dir {
    path: PathBuf,
    /// Held as long as we write.
    _lock: File,
}

impl Dir {
    /// Makes it, which only its owner may enter, unless it is there.
    ///
    /// # Errors
    ///
    /// It cannot be made, belongs to another plegtrace that runs, or others may write to it.
    pub(super) fn take(path: &Path) -> Result<Self, DirError> {
        let failed = |source| DirError::Write { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let about = fs::metadata(path).map_err(failed)?;
        if let Some(why) = foreign(about.uid(), about.mode()) {
            return Err(DirError::Foreign { path: path.to_owned(), why });
        }
        let lock = options().write(true).create(true).truncate(false).open(path.join("lock"));
        let lock = lock.map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(DirError::Taken(path.to_owned())),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// A directory in it, which is made if it is not there, and no link to another place.
    ///
    /// # Errors
    ///
    /// It cannot be made, or something else has its name.
    pub(super) fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.path(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let about = fs::symlink_metadata(&folder)?;
        let is_ours = about.is_dir() && foreign(about.uid(), about.mode()).is_none();
        let why = || format!("{name} is no directory of ours: nothing is kept or removed there");
        is_ours.then_some(folder).ok_or_else(|| io::Error::new(io::ErrorKind::NotADirectory, why()))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Replaces a file as a whole.
    pub(super) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let fresh = self.path(&format!("{name}.new"));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        options().write(true).create_new(true).open(&fresh)?.write_all(bytes)?;
        fs::rename(&fresh, self.path(name))
    }
}

/// Why what is in a directory of this owner and mode is not ours alone; `None` when it is.
fn foreign(owner: u32, mode: u32) -> Option<&'static str> {
    if owner != rustix::process::geteuid().as_raw() {
        return Some("belongs to another user");
    }
    (mode & 0o022 != 0).then_some("may be written to by other users")
}

/// Only the owner may read, and nothing is written through a link.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Private, replaced as a whole, never through a link, and never two writers.
    #[test]
    fn a_directory_of_our_own() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b");
        let dir = Dir::take(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(matches!(Dir::take(&path), Err(DirError::Taken(_))));
        let victim = temp.path().join("victim");
        fs::write(&victim, "old").unwrap();
        std::os::unix::fs::symlink(&victim, path.join("x.new")).unwrap();
        std::os::unix::fs::symlink(&victim, path.join("x")).unwrap();
        dir.replace("x", b"1").unwrap();
        dir.replace("x", b"22").unwrap();
        assert_eq!(
            (fs::read_to_string(path.join("x")).unwrap(), fs::read_to_string(&victim).unwrap()),
            ("22".into(), "old".into())
        );
        assert_eq!(fs::metadata(path.join("x")).unwrap().permissions().mode() & 0o777, 0o600);
        drop(dir);
        Dir::take(&path).unwrap();
    }
}
