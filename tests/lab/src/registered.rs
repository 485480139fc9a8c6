//! A program of ours that registers at a daemon, and says so in its first line.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// What it writes once the daemon knows it.
const REGISTERED: &str = "registered";

/// A running one; it ends when it is dropped, or with the thread that started it.
#[derive(Debug)]
pub(crate) struct Registered {
    child: Child,
}

impl Registered {
    /// Starts `command`, a `what`, and waits until it is known.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or does not register.
    pub(crate) fn start(mut command: Command, what: &str) -> Result<Registered> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().with_context(|| format!("cannot run the {what}"))?;
        let mut plugin = Registered { child };
        let output = plugin.child.stdout.take().with_context(|| format!("the {what} has no output"))?;
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .with_context(|| format!("cannot read from the {what}"))?;
        ensure!(line.trim_end() == REGISTERED, "the {what} does not register: {line:?}");
        Ok(plugin)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
