//! [`CommandLine`]: a program and its arguments, found before it is needed.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

/// Where programs are looked for, and what they get as `PATH`: nobody's environment decides what runs.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why the command of `--on-verdict` would not run.
#[derive(Debug, thiserror::Error)]
pub enum OnVerdictError {
    /// There is no such program.
    #[error("--on-verdict: no executable {} (searched: {searched})", .program.display())]
    NoProgram {
        /// As it was typed.
        program: PathBuf,
        /// Where it was looked for.
        searched: String,
    },
    /// No thread to run it.
    #[error("cannot start the thread that runs the command of --on-verdict")]
    Thread(#[source] io::Error),
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
}

impl CommandLine {
    /// Finds the program: a path as it is, relative to where plegtrace was started; a name in the usual directories.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be executed.
    pub(crate) fn find(words: &[OsString]) -> Result<Self, OnVerdictError> {
        let (program, arguments) = words
            .split_first()
            .map_or_else(Default::default, |(program, rest)| (PathBuf::from(program), rest.to_vec()));
        let is_path = program.components().count() != 1 || program.is_absolute();
        let directories = if is_path { "" } else { PATH };
        let found = directories
            .split(':')
            .map(|directory| Path::new(directory).join(&program))
            .find(|path| runs(path));
        // It is started in /, whatever the working directory was.
        match found.and_then(|path| std::path::absolute(path).ok()) {
            Some(program) => Ok(Self { program, arguments }),
            None => Err(OnVerdictError::NoProgram {
                searched: if is_path { "that path alone".to_owned() } else { PATH.to_owned() },
                program,
            }),
        }
    }
}

fn runs(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}
