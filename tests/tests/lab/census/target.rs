//! [`WaitingProgram`]: the program that waits as it is told.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use plegtrace_lab::process::wait_for;

use super::{HELPER, LIMIT};

/// A program that waits; killed when dropped.
pub(super) struct WaitingProgram {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(super) dir: tempfile::TempDir,
}

impl WaitingProgram {
    /// Starts the helper under the name of a component.
    pub(super) fn start(name: &str, words: &[&str]) -> WaitingProgram {
        let dir = tempfile::tempdir().unwrap();
        WaitingProgram::start_in(dir, name, words)
    }

    pub(super) fn start_in(dir: tempfile::TempDir, name: &str, words: &[&str]) -> WaitingProgram {
        fs::copy(HELPER, dir.path().join(name)).unwrap();
        WaitingProgram::run(dir, name, words)
    }

    /// Starts what is there under this name.
    pub(super) fn run(dir: tempfile::TempDir, name: &str, words: &[&str]) -> WaitingProgram {
        let mut child = spawn(&dir.path().join(name), words);
        let out = BufReader::new(child.stdout.take().unwrap());
        WaitingProgram { child, out, dir }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(super) fn wait_until_ready(mut self) -> WaitingProgram {
        assert_eq!(self.line(), "ready");
        self
    }

    /// Reads the pid of its child.
    pub(super) fn child(&mut self) -> u32 {
        self.line().parse().unwrap()
    }

    /// Waits until the kernel function it sleeps in has this in its name.
    pub(super) fn wait_in(self, function: &str) -> WaitingProgram {
        let path = format!("/proc/{}/wchan", self.pid());
        wait_for(function, LIMIT, || Ok(fs::read_to_string(&path)?.contains(function).then_some(())))
            .unwrap();
        self
    }
}

impl Drop for WaitingProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a copy. While another test starts one, that child has our copy open for writing until it runs.
fn spawn(program: &Path, words: &[&str]) -> Child {
    wait_for("a program that can be run", LIMIT, || {
        match Command::new(program).args(words).stdout(Stdio::piped()).spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => Ok(None),
            other => Ok(Some(other?)),
        }
    })
    .unwrap()
}
