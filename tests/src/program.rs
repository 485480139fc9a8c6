//! The `plegtrace` program as its users run it: started, read, signalled, killed.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use plegtrace_lab::process;

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

/// Where cargo puts what it builds from this checkout.
#[must_use]
pub fn target_dir() -> PathBuf {
    let own = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    own.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target"))
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
}

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
        let readers = [read(out), read(err)];
        Ok(Running { child, readers: Some(readers) })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
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

    /// Waits for its end for at most `limit`.
    ///
    /// # Errors
    ///
    /// It did not end.
    pub fn finish(mut self, limit: Duration) -> Result<Ended> {
        let status = process::wait(&mut self.child, limit)?;
        let Some([out, err]) = self.readers.take() else { bail!("its output was read before") };
        let text = |reader: JoinHandle<String>| {
            reader.join().map_err(|_| anyhow::anyhow!("the reader of its output panicked"))
        };
        Ok(Ended { status, stdout: text(out)?, stderr: text(err)? })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(mut pipe: impl std::io::Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
