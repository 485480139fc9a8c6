//! Who maps a file that is to be probed, and does one of them hold up whoever attaches?
//!
//! To put a breakpoint into a file, and to take it out, the kernel takes a lock of the whole node (`dup_mmap_sem`), which
//! every fork needs, and with it waits for the memory lock of each process that maps the file, one after the other
//! (`register_for_each_vma`, kernel/events/uprobes.c). If one of these processes is stuck with its memory lock held, as
//! in a page fault on a disk that does not answer, every fork of the node hangs until it moves.
//!
//! So we look first, and only at what does not wait for that lock itself:
//!
//! | read | waits for |
//! |---|---|
//! | the directories `/proc` and `task`, the links `exe` and `ns/mnt` | nothing |
//! | `stat`, `status`, `wchan` | nothing |
//! | `stack`, `syscall` | the lock of an `execve` that is exchanging the memory (`exec_update_lock`) |
//! | `maps`, `smaps`, `map_files`, `cmdline`, `environ`, `mem` | the memory lock: never read here |
//!
//! What may wait can be interrupted only by the death of the process, so the look is done by a thread of its own that has a
//! deadline. It cannot keep us from ending.
//!
//! Mappers are found by the link `exe` and the mount namespace, which is exact for programs that run. Who maps the file
//! as data (a debugger) is not found, because only `maps` would tell; nor is a child in the moment between its
//! `unshare` and its `execve`; nor who reads the memory of a mapper from outside and is stuck, as long as no thread of
//! the mapper waits for it.

mod holder;
mod look;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

pub use holder::{Holder, Inside};

/// One look may take so long.
const LOOK: Duration = Duration::from_secs(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The processes that run one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappers {
    /// The file as `/proc/PID/exe` shows it.
    exe: PathBuf,
    /// Mount namespaces in which that path means this file.
    namespaces: BTreeSet<u32>,
}

/// Why probes should not be put on or taken off now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hazard {
    /// A thread does not move and may hold the memory lock of its process.
    #[error("{0}; it may hold the lock of its memory, for which every fork on this node would wait with us")]
    Held(Holder),
    /// The look itself was late.
    #[error("the threads that run it could not be inspected within {} s", LOOK.as_secs())]
    Late,
    /// The look failed.
    #[error("the threads that run it cannot be inspected: {0}")]
    Failed(String),
}

/// Looks that are under way: one that is late goes on in its thread, and there may be only so many of them.
static LOOKS: AtomicUsize = AtomicUsize::new(0);
const MAX_LOOKS: usize = 4;

/// A look that counts until it ends.
struct Place(&'static AtomicUsize);

impl Place {
    fn take(looks: &'static AtomicUsize) -> Option<Self> {
        let more = |looks: usize| (looks < MAX_LOOKS).then_some(looks + 1);
        looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(looks))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Mappers {
    /// Those of the file at `path`, which leads to an open file; `pid` runs it, 0: nobody in particular.
    #[must_use]
    pub fn of_file(pid: u32, path: &Path) -> Self {
        let exe = std::fs::read_link(path).unwrap_or_else(|_| path.to_path_buf());
        Self { exe, namespaces: look::namespaces(pid) }
    }

    /// Waits until nobody holds the lock for long; not at all when nobody holds it now.
    ///
    /// # Errors
    ///
    /// A thread did not move for all of `patience`.
    pub fn wait_until_free(&self, patience: Duration) -> Result<(), Hazard> {
        let began = Instant::now();
        let mut stuck = self.look()?;
        while !stuck.is_empty() {
            if began.elapsed() >= patience
                && let Some(holder) = stuck.first()
            {
                return Err(Hazard::Held(holder.clone()));
            }
            thread::sleep(PAUSE);
            stuck = holder::unmoved(&stuck, &self.look()?);
        }
        Ok(())
    }

    /// Does nobody hold the lock at this moment?
    ///
    /// # Errors
    ///
    /// A thread may hold it.
    pub fn is_free(&self) -> Result<(), Hazard> {
        self.wait_until_free(Duration::ZERO)
    }

    /// Every thread that may hold the lock now.
    fn look(&self) -> Result<Vec<Holder>, Hazard> {
        let place = Place::take(&LOOKS).ok_or(Hazard::Late)?;
        let (say, heard) = channel();
        let mappers = self.clone();
        let run = move || {
            let _place = place;
            drop(say.send(look::holders(Path::new("/proc"), &mappers)));
        };
        let failed = |error: std::io::Error| Hazard::Failed(error.to_string());
        thread::Builder::new().name("mappers".to_owned()).spawn(run).map_err(failed)?;
        match heard.recv_timeout(LOOK) {
            Ok(found) => found.map_err(failed),
            Err(RecvTimeoutError::Timeout) => Err(Hazard::Late),
            Err(RecvTimeoutError::Disconnected) => Err(Hazard::Failed("the look failed".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks that do not come back are not followed by more and more threads; those that end make room.
    #[test]
    fn late_looks_are_bounded() {
        static OWN: AtomicUsize = AtomicUsize::new(0);
        let taken: Vec<Place> = std::iter::from_fn(|| Place::take(&OWN)).take(2 * MAX_LOOKS).collect();
        assert_eq!(taken.len(), MAX_LOOKS);
        drop(taken);
        assert!(Place::take(&OWN).is_some());
    }
}
