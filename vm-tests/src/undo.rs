//! What a test does to the machine, and has undone whatever hangs.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Undoes something when it is dropped, or when it has lasted for too long.
#[derive(Debug)]
pub struct Undo {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Undo {
    /// Calls `undo` in a thread of its own, at the latest after `limit`. `what` completes the sentence "... for too long".
    pub fn within(limit: Duration, what: &'static str, undo: impl FnOnce() + Send + 'static) -> Self {
        let (over, dropped) = mpsc::channel();
        let run = move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what} for too long");
            }
            undo();
        };
        Self { over: Some(over), thread: Some(thread::spawn(run)) }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.over = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    fn undo(limit: Duration) -> (Undo, Arc<AtomicBool>) {
        let done = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&done);
        (Undo::within(limit, "it lasted", move || set.store(true, Ordering::SeqCst)), done)
    }

    /// Dropped, it is undone at once; kept, after its time.
    #[test]
    fn it_is_undone_in_any_case() {
        let (undone, done) = undo(Duration::from_secs(1000));
        assert!(!done.load(Ordering::SeqCst));
        drop(undone);
        assert!(done.load(Ordering::SeqCst));
        let (_kept, done) = undo(Duration::ZERO);
        let deadline = Instant::now() + Duration::from_secs(30);
        while !done.load(Ordering::SeqCst) {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }
}
