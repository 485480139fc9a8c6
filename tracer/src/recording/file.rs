//! [`Destination`]: where a recording is written to. Private, and never through a symbolic link.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, IsTerminal},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Why there is no recording, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is a file of that name.
    #[error("{0} exists")]
    Exists(PathBuf),
    /// There is something of that name that is no file: a link, a directory, a device.
    #[error("{0} exists and is not a regular file: it is not replaced")]
    NoFile(PathBuf),
    /// The recording was to go to a terminal.
    #[error("a recording is binary: stdout must be a pipe or a file, not a terminal")]
    Terminal,
    /// The file cannot be made.
    #[error("cannot create {path}")]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It cannot be written to its end.
    #[error("cannot write the recording; what was written so far can be read")]
    Write(#[source] io::Error),
    /// Writing does not return.
    #[error("the recording's disk did not answer within {0} s; what was written so far can be read")]
    Hangs(u64),
}

/// Where a recording is written to.
#[derive(Debug)]
pub enum Destination {
    /// A file of its own.
    File {
        /// Its path.
        path: PathBuf,
        /// Open for writing, empty.
        file: File,
    },
    /// Standard output.
    Stdout(File),
}

impl Destination {
    /// Makes the file, which only its owner may read; `-` is standard output. A file that is there is replaced by a new
    /// one when `force` says so: neither the old one nor what a link points to is ever written to.
    ///
    /// # Errors
    ///
    /// Something of that name is there, or the file cannot be made.
    pub fn create(path: &Path, force: bool) -> Result<Self, RecordError> {
        if path == Path::new("-") {
            return Self::stdout();
        }
        let at = |source| RecordError::Create { path: path.to_owned(), source };
        match fs::symlink_metadata(path) {
            Ok(there) if !there.is_file() => return Err(RecordError::NoFile(path.to_owned())),
            Ok(_) if !force => return Err(RecordError::Exists(path.to_owned())),
            Ok(_) => fs::remove_file(path).map_err(at)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(at(error)),
        }
        // Fails when somebody was faster, with whatever.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(at)?;
        Ok(Self::File { path: path.to_owned(), file })
    }

    fn stdout() -> Result<Self, RecordError> {
        let stdout = io::stdout();
        if stdout.is_terminal() {
            return Err(RecordError::Terminal);
        }
        let at = |source| RecordError::Create { path: "-".into(), source };
        Ok(Self::Stdout(stdout.as_fd().try_clone_to_owned().map_err(at)?.into()))
    }

    /// Its name for people.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::Stdout(_) => "stdout".into(),
        }
    }

    /// Does the recording take standard output, so that no report can go there?
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout(_))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A new file is its owner's alone.
    #[test]
    fn files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        Destination::create(&path, false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// What is there stays, unless it is a file and may go; who holds the old one open does not get the new.
    #[test]
    fn nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("r"), dir.path().join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        symlink(&path, &link).unwrap();
        assert!(matches!(Destination::create(&path, false), Err(RecordError::Exists(_))));
        for force in [false, true] {
            assert!(matches!(Destination::create(&link, force), Err(RecordError::NoFile(_))));
            assert!(matches!(Destination::create(dir.path(), force), Err(RecordError::NoFile(_))));
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let mut old = File::open(&path).unwrap();
        Destination::create(&path, true).unwrap();
        assert_eq!(io::read_to_string(&mut old).unwrap(), "old");
        let new = fs::metadata(&path).unwrap();
        assert_eq!((new.len(), new.permissions().mode() & 0o777), (0, 0o600));
    }

    /// A folder that is not there is an error with the path.
    #[test]
    fn errors_have_the_path() {
        let error = Destination::create(Path::new("/nowhere/at/all"), false).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
