//! [`Drainer`]: the thread that takes records out of the ring buffer. It waits for nothing else, so whatever the rest of
//! plegtrace waits for (a file on a slow disk, a probe that takes its time to come off), the ring has room.
//!
//! What it took lies in a queue with a bound in bytes. What does not fit is dropped and counted.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::kernel::{Records, Ring};

/// Bytes of records that may wait: half a minute of 2,000 RPC/s, each with its parks on both sides.
const QUEUE_BYTES: usize = 24 << 20;
/// From one pass to the next while little happens.
const CALM: Duration = Duration::from_millis(100);
/// The same while much does: a pass that found an eighth of the ring full halves the pause.
const BUSY: Duration = Duration::from_millis(5);

/// A source of records.
pub(super) trait Source: Send + 'static {
    /// Takes what is there now.
    fn drain(&mut self) -> Records;
    /// How many bytes it holds before it loses something.
    fn capacity(&self) -> usize;
}

impl Source for Ring {
    fn drain(&mut self) -> Records {
        Ring::drain(self)
    }

    fn capacity(&self) -> usize {
        Ring::capacity(self)
    }
}

/// The thread and what it has taken out.
pub(super) struct Drainer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread is to wake up.
    wake: Condvar,
    /// The thread has done a pass.
    passed: Condvar,
}

#[derive(Default)]
struct State {
    /// What each pass has found.
    chunks: VecDeque<Records>,
    queued_bytes: usize,
    /// Records that did not fit into the queue.
    dropped: u64,
    /// Passes that were asked for.
    asked: u64,
    /// The latest of them that is done.
    done: u64,
    stop: bool,
    /// The thread has ended.
    over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drainer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub(super) fn start(source: impl Source) -> io::Result<Self> {
        Self::with_bound(source, QUEUE_BYTES)
    }

    fn with_bound(mut source: impl Source, bound: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let run = move || {
            let ended = Ended(&of_thread);
            run(&mut source, ended.0, bound);
        };
        let thread = thread::Builder::new().name("drain".to_owned()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What has been taken out since the last time, oldest first.
    pub(super) fn take(&self) -> VecDeque<Records> {
        take(&mut self.shared.lock())
    }

    /// The same after one more pass: every record that was committed before this call is among them, or was handed over
    /// before.
    pub(super) fn take_all(&self) -> VecDeque<Records> {
        let mut state = self.shared.lock();
        state.asked += 1;
        let asked = state.asked;
        self.shared.wake.notify_one();
        while state.done < asked && !state.over {
            state = self.shared.passed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        take(&mut state)
    }

    /// Records that did not fit into the queue, since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.lock().dropped
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Says that the thread has ended, also when it panics: nobody waits for it then.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.passed.notify_all();
    }
}

fn take(state: &mut State) -> VecDeque<Records> {
    state.queued_bytes = 0;
    std::mem::take(&mut state.chunks)
}

fn run(source: &mut impl Source, shared: &Shared, bound: usize) {
    let mut pause = CALM;
    loop {
        let Some(asked) = wait(shared, pause) else { return };
        let chunk = source.drain();
        pause = next_pause(pause, chunk.bytes(), source.capacity());
        let mut state = shared.lock();
        if state.queued_bytes + chunk.bytes() > bound {
            state.dropped += chunk.count() as u64;
        } else if chunk.count() > 0 {
            state.queued_bytes += chunk.bytes();
            state.chunks.push_back(chunk);
        }
        state.done = asked;
        drop(state);
        shared.passed.notify_all();
    }
}

/// Waits for the next pass; gives the latest that was asked for, `None` when there is to be no other.
fn wait(shared: &Shared, pause: Duration) -> Option<u64> {
    let idle = |state: &mut State| !state.stop && state.asked == state.done;
    let (state, _) =
        shared.wake.wait_timeout_while(shared.lock(), pause, idle).unwrap_or_else(PoisonError::into_inner);
    (!state.stop).then_some(state.asked)
}

/// Shorter after a pass that found much, longer after one that found little.
fn next_pause(pause: Duration, found: usize, capacity: usize) -> Duration {
    if found > capacity / 8 {
        (pause / 2).max(BUSY)
    } else if found < capacity / 32 {
        (pause * 2).min(CALM)
    } else {
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// Records of one byte, as many as the test has sent.
    struct Fake(Receiver<u8>);

    impl Source for Fake {
        fn drain(&mut self) -> Records {
            let mut records = Records::default();
            self.0.try_iter().for_each(|record| records.push(&[record]));
            records
        }

        fn capacity(&self) -> usize {
            64
        }
    }

    fn drainer(bound: usize) -> (SyncSender<u8>, Drainer) {
        let (records, source) = sync_channel(1000);
        (records, Drainer::with_bound(Fake(source), bound).unwrap())
    }

    fn bytes(chunks: VecDeque<Records>) -> Vec<u8> {
        chunks.into_iter().flat_map(Records::into_each).flatten().collect()
    }

    /// What was there before the question is in the answer, in order, and nothing comes twice.
    #[test]
    fn all_that_was_there() {
        let (records, drainer) = drainer(100);
        (0..50).for_each(|n| records.send(n).unwrap());
        assert_eq!(bytes(drainer.take_all()), (0..50).collect::<Vec<u8>>());
        records.send(7).unwrap();
        let mut rest = bytes(drainer.take());
        rest.extend(bytes(drainer.take_all()));
        assert_eq!((rest, drainer.dropped()), (vec![7], 0));
    }

    /// Records are taken out while nobody asks for them; those beyond the bound are dropped and counted, and what comes
    /// after the queue was emptied is kept again.
    #[test]
    fn what_does_not_fit_is_counted() {
        let (records, drainer) = drainer(10);
        for round in 0..3 {
            (0..8).for_each(|n| records.send(round * 10 + n).unwrap());
            // A pass that nobody takes the records of.
            let mut state = drainer.shared.lock();
            state.asked += 1;
            let asked = state.asked;
            drainer.shared.wake.notify_one();
            while state.done < asked {
                state = drainer.shared.passed.wait(state).unwrap();
            }
        }
        let kept = bytes(drainer.take_all());
        assert_eq!(kept.len() as u64 + drainer.dropped(), 24, "{kept:?}");
        assert!((1..=10).contains(&kept.len()), "{kept:?}");
        records.send(99).unwrap();
        assert_eq!(bytes(drainer.take_all()), [99]);
    }

    /// Nobody waits for a thread that has panicked.
    #[test]
    fn a_thread_that_ended() {
        struct Broken;
        impl Source for Broken {
            fn drain(&mut self) -> Records {
                panic!("this source is broken")
            }
            fn capacity(&self) -> usize {
                1
            }
        }
        let drainer = Drainer::start(Broken).unwrap();
        assert!(drainer.take_all().is_empty());
        assert!(drainer.take_all().is_empty());
    }

    /// The fuller the ring is found, the sooner it is looked at again, within bounds.
    #[test]
    fn pauses_follow_the_load() {
        let after = |found: &[usize]| found.iter().fold(CALM, |pause, n| next_pause(pause, *n, 1000));
        assert_eq!(after(&[0, 0]), CALM);
        assert_eq!(after(&[500]), CALM / 2);
        assert_eq!(after(&[500; 20]), BUSY);
        assert_eq!(after(&[500, 60]), CALM / 2, "in between it stays");
        assert_eq!(after(&[500, 500, 0, 0]), CALM);
    }
}
