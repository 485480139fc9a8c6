//! A daemon of the lab: a command that is started, may be killed and started again, and ends with the lab.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};

use crate::scratch::Scratch;

/// A daemon; its clones are the same one.
#[derive(Clone, Debug)]
pub struct Daemon {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    command: Command,
    child: Child,
    log: PathBuf,
    is_closed: bool,
}

impl Daemon {
    /// Starts `command` in the lab of `scratch`, with its output in `log`.
    ///
    /// # Errors
    ///
    /// When the log or the process cannot be made.
    pub(crate) fn start(scratch: &Scratch, mut command: Command, log: &Path) -> Result<Daemon> {
        let child = scratch.spawn(&mut command, log)?;
        Ok(Daemon {
            inner: Arc::new(Mutex::new(Inner { command, child, log: log.to_owned(), is_closed: false })),
        })
    }

    /// Its process; after a kill the one that was.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.lock().child.id()
    }

    /// How it ended, unless it runs.
    ///
    /// # Errors
    ///
    /// When it cannot be waited for.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        self.lock().child.try_wait().context("cannot wait for a daemon")
    }

    /// Ends it (SIGKILL) and reaps it, as an init system would. Its children live on.
    ///
    /// # Errors
    ///
    /// When it cannot be signalled or waited for.
    pub fn kill(&self) -> Result<()> {
        let mut inner = self.lock();
        inner.child.kill().context("cannot kill a daemon")?;
        inner.child.wait().context("cannot wait for a killed daemon").map(drop)
    }

    /// Starts it again after [`Daemon::kill`], with the same command line and log.
    ///
    /// # Errors
    ///
    /// When it runs still, its lab has ended, or the process cannot be made.
    pub fn restart(&self) -> Result<()> {
        self.lock().start_again()
    }

    /// The same with another program in its place, as after an upgrade: this start and all later ones run `program` with
    /// the arguments and the environment of the first one.
    ///
    /// # Errors
    ///
    /// As for [`Daemon::restart`].
    pub fn restart_from(&self, program: &Path) -> Result<()> {
        let mut inner = self.lock();
        inner.command = inner.command_of(program)?;
        inner.start_again()
    }

    /// Ends it for good.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        // The zombie is reaped here; the lab's teardown does all the rest.
        let _ = inner.child.kill();
        let _ = inner.child.wait();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A test that panicked elsewhere must still be able to end its daemons.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn start_again(&mut self) -> Result<()> {
        ensure!(!self.is_closed, "the lab has ended");
        let status = self.child.try_wait().context("cannot wait for a daemon")?;
        ensure!(status.is_some(), "the daemon runs still");
        self.child = self.command.spawn().context("cannot start a daemon again")?;
        Ok(())
    }

    /// What starts `program` as [`Scratch::spawn`] has started this daemon; its log goes on.
    fn command_of(&self, program: &Path) -> Result<Command> {
        let log = File::options().append(true).open(&self.log).context("cannot open the log of a daemon")?;
        let mut command = Command::new(program);
        command.args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(dir) = self.command.get_current_dir() {
            command.current_dir(dir);
        }
        let err = log.try_clone().context("cannot share the log file")?;
        command.stdin(Stdio::null()).stdout(log).stderr(err).process_group(0);
        Ok(command)
    }
}
