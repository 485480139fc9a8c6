//! A call that is in flight while its maker does other things: what a fault holds up.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::watch;

use super::client::{Client, Error};

/// A call in flight in a thread of its own; cancelled when dropped.
#[derive(Debug)]
pub struct Call {
    method: &'static str,
    answer: Receiver<Result<(), Error>>,
    early: Option<Result<(), Error>>,
    cancel: watch::Sender<bool>,
}

impl Call {
    /// Starts `work`, which makes one call of `method` with the client that it is given.
    ///
    /// # Errors
    ///
    /// When its thread cannot be started.
    pub fn start(
        client: &Client,
        method: &'static str,
        work: impl FnOnce(&Client) -> Result<(), Error> + Send + 'static,
    ) -> Result<Call> {
        let (cancel, cancelled) = watch::channel(false);
        let (sender, answer) = mpsc::channel();
        let client = client.cancelled_by(cancelled);
        let thread = std::thread::Builder::new().name("lab-call".to_owned());
        let start = thread.spawn(move || {
            // Nobody listens any more when the call was dropped.
            let _ = sender.send(work(&client));
        });
        start.with_context(|| format!("cannot start a thread for {method}"))?;
        Ok(Call { method, answer, early: None, cancel })
    }

    /// The method's name.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Whether there is no answer yet.
    pub fn is_pending(&mut self) -> bool {
        if self.early.is_none() {
            self.early = self.answer.try_recv().ok();
        }
        self.early.is_none()
    }

    /// Waits for the answer, for at most `limit`: the outer error is that there is none, the inner one is the answer.
    ///
    /// # Errors
    ///
    /// When there is no answer within the limit.
    pub fn wait(&mut self, limit: Duration) -> Result<Result<(), Error>> {
        if let Some(early) = &self.early {
            return Ok(early.clone());
        }
        let answer = self.answer.recv_timeout(limit);
        let answer = answer.with_context(|| format!("no answer of {} within {limit:?}", self.method))?;
        Ok(self.early.insert(answer).clone())
    }

    /// Gives the call up: the runtime sees its stream reset.
    pub fn cancel(&self) {
        // Nobody listens when it has ended.
        let _ = self.cancel.send(true);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.cancel();
    }
}
