//! The children of the census: one that is kept for the next question, those at work, and those that could not be killed.

use std::{
    io,
    path::{Path, PathBuf},
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::worker::Worker;
use crate::census::{clock, own, protocol::Step};

/// A killed process that is not gone after this hangs in the kernel.
pub(super) const DYING: Duration = Duration::from_millis(150);
/// Children that cannot be killed before no more are started.
const MAX_LEFT_BEHIND: usize = 4;

/// What a child was asking when it was killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) pid: u32,
    pub(super) step: Step,
    /// The process is in another pid namespace than the node's own.
    pub(super) elsewhere: bool,
}

/// A killed child that has not ended, and what it was asking, if that is known.
#[derive(Debug)]
struct LeftBehind {
    child: Child,
    question: Option<Question>,
}

/// They belong to the process, not to a round: whoever starts or ends another child looks whether they have ended since.
#[derive(Debug)]
struct Pool {
    /// Waits for its next order, with what it has read before.
    idle: Option<(PathBuf, Worker)>,
    /// All that live and are not left behind.
    alive: Vec<u32>,
    left_behind: Vec<LeftBehind>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: None, alive: Vec::new(), left_behind: Vec::new() });

fn pool() -> MutexGuard<'static, Pool> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    pool.left_behind.retain_mut(|left| matches!(left.child.try_wait(), Ok(None)));
    pool
}

/// Pids of all children: none of them is looked at.
pub(super) fn pids() -> Vec<u32> {
    let pool = pool();
    pool.alive.iter().copied().chain(pool.left_behind.iter().map(|left| left.child.id())).collect()
}

/// What those that could not be killed were asking: it would hang another reader as well.
pub(super) fn questions_left_behind() -> Vec<Question> {
    pool().left_behind.iter().filter_map(|left| left.question).collect()
}

/// The child that waits for an order, if it still does.
pub(super) fn take_idle(program: &Path) -> Option<Worker> {
    let (of, mut worker) = pool().idle.take()?;
    if of == program && worker.waits_for_an_order() {
        return Some(worker);
    }
    end(worker, None);
    None
}

/// Starts a child.
///
/// # Errors
///
/// It cannot be started until then, or too many before it cannot be killed.
pub(super) fn start(program: &Path, until: Instant) -> io::Result<Worker> {
    if pool().left_behind.len() >= MAX_LEFT_BEHIND {
        return Err(io::Error::other(format!("{MAX_LEFT_BEHIND} readers hang in the kernel already")));
    }
    let worker = Worker::start(program, until)?;
    pool().alive.push(worker.pid());
    Ok(worker)
}

/// Keeps a child that has said everything. Of two the older one stays: it has read more.
pub(super) fn keep(program: &Path, worker: Worker) {
    let mut pool = pool();
    let other = match pool.idle.take() {
        Some((of, kept)) if of == program && kept.number() < worker.number() => {
            pool.idle = Some((of, kept));
            Some(worker)
        }
        kept => {
            pool.idle = Some((program.to_owned(), worker));
            kept.map(|(_, worker)| worker)
        }
    };
    drop(pool);
    if let Some(other) = other {
        end(other, None);
    }
}

/// Kills a child. `false` when it hangs in the kernel, over this question: it is left behind then, and ends when the
/// kernel lets it.
pub(super) fn end(worker: Worker, question: Option<Question>) -> bool {
    let mut child = worker.into_child();
    let _ = child.kill();
    let until = Instant::now() + DYING;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
            Ok(None) => {
                let mut pool = pool();
                pool.alive.retain(|pid| *pid != child.id());
                pool.left_behind.push(LeftBehind { child, question });
                return false;
            }
            _ => {
                pool().alive.retain(|pid| *pid != child.id());
                return true;
            }
        }
    }
}

/// Ends the child that waits for an order: there will be none.
pub fn end_idle() {
    let idle = pool().idle.take();
    if let Some((_, worker)) = idle {
        end(worker, None);
    }
}

/// What the children use that live now; those that have ended are in `getrusage(RUSAGE_CHILDREN)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory of the largest at its highest, bytes.
    pub peak_bytes: u64,
}

/// What the children use that live now.
#[must_use]
pub fn usage() -> Usage {
    let mut usage = Usage::default();
    for pid in pids() {
        usage.cpu_ns += clock::cpu_ns(pid);
        usage.peak_bytes = usage.peak_bytes.max(own::peak_memory(pid));
    }
    usage
}
