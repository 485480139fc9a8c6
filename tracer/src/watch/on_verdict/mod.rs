//! [`OnVerdict`]: the command of `--on-verdict`, run by a thread of its own at each event of a stall.
//!
//! Whoever observes never waits: it leaves a document, and takes the place of one that nobody has taken yet. One command runs at
//! a time, not more often than every ten seconds, for thirty at most; then its process group is killed. It gets no shell, no
//! environment but a `PATH`, and none of plegtrace's capabilities.

mod command;
mod run;

use std::{
    ffi::OsString,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub(crate) use command::CommandLine;
pub use command::OnVerdictError;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use serde::{Deserialize, Serialize};

use crate::render::escape;

/// Characters of an error in the state.
const ERROR: usize = 200;

/// What a command may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// From its start to its end.
    run: Duration,
    /// From one start to the next.
    pause: Duration,
    /// From the end of plegtrace to that of a command.
    grace: Duration,
}

const LIMITS: Limits =
    Limits { run: Duration::from_secs(30), pause: Duration::from_secs(10), grace: Duration::from_secs(1) };

/// What came of the command so far, in the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// How often it was started, or should have been.
    pub begun: u64,
    /// It runs now.
    pub running: bool,
    /// How often it could not be started, was killed, or ended with another exit code than 0.
    pub failed: u64,
    /// Events that it was not run for, because a later one came before its turn.
    pub replaced: u64,
    /// Why it failed last, with the beginning of what it wrote to stderr.
    pub last_error: Option<String>,
}

/// Runs the command.
#[derive(Debug)]
pub(crate) struct OnVerdict {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    grace: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    inbox: Mutex<Inbox>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    next: Option<Vec<u8>>,
    closed: Option<Instant>,
    runs: Runs,
}

impl OnVerdict {
    /// Starts the thread; it runs nothing yet.
    ///
    /// # Errors
    ///
    /// There is no such command, or no thread.
    pub(crate) fn start(words: &[OsString]) -> Result<Self, OnVerdictError> {
        Self::with(CommandLine::find(words)?, LIMITS).map_err(OnVerdictError::Thread)
    }

    fn with(command: CommandLine, limits: Limits) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let inbox = Arc::clone(&shared);
        let work = move || serve(&inbox, &command, limits);
        let thread = thread::Builder::new().name("on-verdict".to_owned()).spawn(work)?;
        Ok(Self { shared, thread, grace: limits.grace })
    }

    /// Has the command run with this on its stdin, when its turn comes. Waits for nobody.
    pub(crate) fn tell(&self, document: Vec<u8>) {
        let mut inbox = self.shared.lock();
        if inbox.next.replace(document).is_some() {
            inbox.runs.replaced += 1;
        }
        self.shared.news.notify_one();
    }

    /// What came of it so far.
    pub(crate) fn runs(&self) -> Runs {
        self.shared.lock().runs.clone()
    }
}

/// The last event still gets its run, for a moment.
impl Drop for OnVerdict {
    fn drop(&mut self) {
        self.shared.lock().closed = Some(Instant::now());
        self.shared.news.notify_one();
        // One that runs, one that waits, and both killed.
        let until = Instant::now() + 3 * self.grace;
        while !self.thread.is_finished() {
            if Instant::now() >= until {
                tracing::warn!("the command of --on-verdict has not ended, though it was killed");
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a document, and until `not_before`; `None` when no more will come. The end waits for nothing.
    fn next(&self, not_before: Option<Instant>) -> Option<Vec<u8>> {
        let mut inbox = self.lock();
        loop {
            let pause = not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            let closed = inbox.closed.is_some();
            if (pause.is_zero() && inbox.next.is_some()) || closed {
                let document = inbox.next.take()?;
                inbox.runs.begun += 1;
                inbox.runs.running = true;
                return Some(document);
            }
            inbox = if pause.is_zero() {
                self.news.wait(inbox).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.news.wait_timeout(inbox, pause).unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    fn note(&self, ended: Result<(), String>) {
        let mut inbox = self.lock();
        inbox.runs.running = false;
        if let Err(why) = ended {
            let why = escape::text_to(&why, ERROR);
            inbox.runs.failed += 1;
            tracing::warn!("the command of --on-verdict failed ({} so far): {why}", inbox.runs.failed);
            inbox.runs.last_error = Some(why);
        }
    }
}

fn serve(shared: &Shared, command: &CommandLine, limits: Limits) {
    // Before anything is run: without, a command would have them all.
    let confined = give_up();
    let mut not_before = None;
    while let Some(document) = shared.next(not_before) {
        let begin = Instant::now();
        not_before = Some(begin + limits.pause);
        let deadline = || {
            let closed = shared.lock().closed;
            closed.map_or(begin + limits.run, |at| (at.max(begin) + limits.grace).min(begin + limits.run))
        };
        let ended = match &confined {
            Ok(()) => run::run(command, &document, &deadline),
            Err(error) => Err(format!("not started: capabilities cannot be given up: {error}")),
        };
        shared.note(ended);
    }
}

/// Capabilities belong to threads, and what a thread starts has no more than it.
fn give_up() -> rustix::io::Result<()> {
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

#[cfg(test)]
mod tests;
