//! What guests are made of, made ahead: at the lowest priority, while tests that mostly wait have the machine.

use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result};

use super::command::Selection;
use super::{image, payload};
use crate::progress::step;
use crate::setup;

/// The lowest priority of nice(2).
const LOWEST: libc::c_int = 19;

/// Work in the background; ends before this does.
#[derive(Debug)]
pub(crate) struct Ahead(Option<JoinHandle<Result<()>>>);

impl Ahead {
    /// Begins to make the test binary and the images, which the guests then find in place.
    pub(crate) fn start(selection: Selection) -> Self {
        Self(Some(thread::spawn(move || {
            lower()?;
            setup::vm_tools()?;
            payload::binary()?;
            // An image that cannot be made is its guest's failure, told there.
            selection.suites().iter().for_each(|suite| drop(image::get(*suite, false)));
            Ok(())
        })))
    }
}

impl Drop for Ahead {
    /// Whatever went wrong is met again, and told, by the guests.
    fn drop(&mut self) {
        match self.0.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => step("vm", &format!("not ready ahead: {error:#}")),
            Some(Err(_)) => step("vm", "not ready ahead: a panic"),
            Some(Ok(Ok(()))) | None => {}
        }
    }
}

/// Lowers the priority of this thread and of what it starts (on Linux it belongs to the thread, see setpriority(2)).
fn lower() -> Result<()> {
    // SAFETY: setpriority takes numbers only; 0 is the calling thread.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).context("cannot lower the priority") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority() -> libc::c_int {
        // SAFETY: getpriority takes numbers only.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    /// Only the thread that asked for it, and its children, have the lowest priority.
    #[test]
    fn only_the_thread_is_lowered() {
        let before = priority();
        let (own, child) = thread::spawn(|| {
            lower().unwrap();
            let child = std::process::Command::new("nice").output().unwrap().stdout;
            (priority(), String::from_utf8(child).unwrap().trim().to_owned())
        })
        .join()
        .unwrap();
        assert_eq!((own, child.as_str()), (LOWEST, "19"));
        assert_eq!(priority(), before);
    }
}
