//! [`Kept`]: what the child keeps from one order to the next, because reading it again would cost more: programs whose
//! function tables were read, and a socket that it could not open any more.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    census::{
        goroutines::{GoroutineError, Reader},
        own,
    },
    input::Component,
    target::sock_diag::Link,
};

/// A reader that was not used for so many orders about goroutines is dropped, and with it the open file.
const UNUSED: u32 = 3;
/// Readers that are kept: a kubelet, a runtime, two shims and eight runc, and those before an upgrade. All processes that run the same
/// file share what was read of it.
const MAX_READERS: usize = 16;
/// A child with more resident memory than this ends after its order, bytes.
const MAX_RESIDENT: u64 = 56 << 20;

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct Kept {
    readers: Vec<(Reader, u32)>,
    link: Option<Link>,
    /// When there was enough of everything that the node can run out of.
    plenty: Option<Instant>,
    /// A runtime that did not answer when it was asked for its status.
    mute: Option<u32>,
}

impl Kept {
    /// Would one more question for its status hang in this runtime?
    pub(super) fn is_mute(&self, runtime: u32) -> bool {
        self.mute == Some(runtime)
    }

    /// One does.
    pub(super) fn is_mute_now(&mut self, runtime: u32) {
        self.mute = Some(runtime);
    }

    /// Was there enough of everything, so lately?
    pub(super) fn has_plenty(&self, lately: Duration) -> bool {
        self.plenty.is_some_and(|at| at.elapsed() < lately)
    }

    /// A look at what the node can run out of is over.
    pub(super) fn looked_for_plenty(&mut self, is_plenty: bool) {
        self.plenty = is_plenty.then(Instant::now);
    }

    /// The socket by which the kernel is asked for sockets. To be opened before [`super::sandbox::confine`].
    ///
    /// # Errors
    ///
    /// As [`Link::open`].
    pub(super) fn link(&mut self) -> io::Result<&mut Link> {
        if self.link.is_none() {
            self.link = Some(Link::open()?);
        }
        self.link.as_mut().ok_or(io::ErrorKind::NotFound.into())
    }

    /// An order about goroutines begins. Asks nobody who could be slow to answer.
    pub(super) fn grow_older(&mut self) {
        self.readers.iter_mut().for_each(|(_, unused)| *unused += 1);
        self.readers.retain(|(reader, unused)| *unused <= UNUSED && reader.lives());
    }

    /// The reader of a process that still runs the program that was read.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`].
    pub(super) fn reader(&mut self, pid: u32, component: Component) -> Result<&Reader, GoroutineError> {
        let known = |(reader, _): &(Reader, u32)| reader.is_for(pid, component) && reader.is_current();
        let place = match self.readers.iter().position(known) {
            Some(place) => place,
            None => {
                let mut programs = self.readers.iter().map(|(reader, _)| reader.program());
                let reader = match programs.find(|program| program.is_run_by(pid)) {
                    Some(program) => Reader::with_program(pid, component, Arc::clone(program))?,
                    None => Reader::open(pid, component)?,
                };
                if self.readers.len() == MAX_READERS {
                    self.readers.remove(0);
                }
                self.readers.push((reader, 0));
                self.readers.len() - 1
            }
        };
        self.readers[place].1 = 0;
        Ok(&self.readers[place].0)
    }

    /// Gives memory back between two orders. `false` when the child is too large all the same, or spent.
    #[must_use]
    pub(super) fn tidy_up(&self) -> bool {
        // SAFETY: malloc_trim has no preconditions.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0);
        }
        own::own_memory().0 <= MAX_RESIDENT && self.link.as_ref().is_none_or(|link| !link.is_spent)
    }
}
