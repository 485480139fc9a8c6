//! The `plegtrace` program as its users run it: started, read, signalled, killed.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use plegtrace_lab::{host, process};

/// The program under test: `$PLEGTRACE_BIN`, else the release build, else the debug build of this checkout.
///
/// # Errors
///
/// There is none.
pub fn path() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("PLEGTRACE_BIN") {
        return Ok(path.into());
    }
    let target = target_dir();
    let builds = ["release", "debug"].map(|profile| target.join(profile).join("plegtrace"));
    let found = builds.into_iter().find(|path| path.exists());
    found.context("there is no plegtrace to test; build it with: cargo xtask build --release")
}

/// Copies a program, for anybody to run. By another process: what this one has had open for writing, a child of another thread may have
/// open until it executes its own program, and so long the copy cannot be executed (ETXTBSY).
///
/// # Errors
///
/// It cannot be read, or there is no room.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    host::run(Command::new("install").args(["-m", "755"]).args([from, to])).map(drop)
}

/// Where cargo puts what it builds from this checkout.
#[must_use]
pub fn target_dir() -> PathBuf {
    let own = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    own.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target"))
}

/// Has a program that `command` will start end (SIGINT) with the thread that starts it.
pub fn end_with_parent(command: &mut Command) {
    // SAFETY: prctl with constants is async-signal-safe and has no pointers.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// The report.
    pub stdout: String,
    /// Progress and errors.
    pub stderr: String,
}

/// A running plegtrace; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    readers: Option<[JoinHandle<String>; 2]>,
    /// What it has said on stderr so far.
    said: Said,
}

type Said = Arc<Mutex<Vec<u8>>>;

impl Running {
    /// Starts `plegtrace ARGUMENTS`.
    ///
    /// # Errors
    ///
    /// There is no program, or it cannot be started.
    pub fn start(arguments: &[&str]) -> Result<Running> {
        let program = path()?;
        Running::spawn(Command::new(&program).args(arguments))
            .with_context(|| format!("cannot start {}", program.display()))
    }

    /// Starts a command that runs plegtrace in its own way.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn spawn(command: &mut Command) -> Result<Running> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let out = child.stdout.take().context("stdout is a pipe")?;
        let err = child.stderr.take().context("stderr is a pipe")?;
        // Both are read at once: a full pipe would hold it up.
        let said = Said::default();
        let readers = [read(out, &Said::default()), read(err, &said)];
        Ok(Running { child, readers: Some(readers), said })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said on stderr so far.
    #[must_use]
    pub fn said(&self) -> String {
        text(&self.said)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// It is gone.
    pub fn signal(&self, signal: i32) -> Result<()> {
        process::signal(self.pid(), signal)
    }

    /// Has it ended?
    ///
    /// # Errors
    ///
    /// It cannot be asked.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().context("cannot wait for plegtrace")?.is_some())
    }

    /// Waits until it says that its probes are on. Not to be used with `-q`.
    ///
    /// # Errors
    ///
    /// It did not say so within `limit`, or it has ended.
    pub fn wait_until_armed(&mut self, limit: Duration) -> Result<()> {
        self.wait_until_said("armed: ", limit)
    }

    /// Waits until it announces a step whose text begins so. Not to be used with `-q`.
    ///
    /// # Errors
    ///
    /// It did not say so within `limit`, or it has ended.
    pub fn wait_until_said(&mut self, step: &str, limit: Duration) -> Result<()> {
        let line = format!("plegtrace: {step}");
        process::wait_for(&format!("{line:?} on stderr"), limit, || {
            let said = text(&self.said);
            ensure!(said.contains(&line) || !self.has_ended()?, "plegtrace ended early: {said}");
            Ok(said.contains(&line).then_some(()))
        })
    }

    /// Waits for its end for at most `limit`.
    ///
    /// # Errors
    ///
    /// It did not end.
    pub fn finish(mut self, limit: Duration) -> Result<Ended> {
        let status = process::wait(&mut self.child, limit)?;
        let Some([out, err]) = self.readers.take() else { bail!("its output was read before") };
        let whole = |reader: JoinHandle<String>| {
            reader.join().map_err(|_| anyhow::anyhow!("the reader of its output panicked"))
        };
        Ok(Ended { status, stdout: whole(out)?, stderr: whole(err)? })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a pipe to its end; what has come so far is in `said`.
fn read(mut pipe: impl std::io::Read + Send + 'static, said: &Said) -> JoinHandle<String> {
    let said = Arc::clone(said);
    std::thread::spawn(move || {
        let mut piece = [0; 8192];
        while let Ok(length @ 1..) = pipe.read(&mut piece) {
            said.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&piece[..length]);
        }
        text(&said)
    })
}

fn text(said: &Said) -> String {
    String::from_utf8_lossy(&said.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// Of the program that these tests are.
    const COPIES: usize = 20;

    /// While other tests start programs all the time.
    #[test]
    fn a_copy_can_be_executed_at_once() {
        let done = AtomicBool::new(false);
        let others = || {
            while !done.load(Ordering::Relaxed) {
                Command::new("true").status().unwrap();
            }
        };
        let dir = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let outcomes: Vec<_> = thread::scope(|scope| {
            scope.spawn(others);
            scope.spawn(others);
            let outcomes = (0..COPIES).map(|n| {
                let to = dir.path().join(n.to_string());
                copy(&own, &to)?;
                Ok(Command::new(&to).arg("--list").stdout(Stdio::null()).status()?)
            });
            let outcomes = outcomes.collect();
            done.store(true, Ordering::Relaxed);
            outcomes
        });
        let failed: Vec<&Result<ExitStatus>> =
            outcomes.iter().filter(|one| !one.as_ref().is_ok_and(ExitStatus::success)).collect();
        assert!(failed.is_empty(), "{} of {COPIES}: {failed:?}", failed.len());
    }
}
