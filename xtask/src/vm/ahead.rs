//! What guests are made of, made ahead: at the lowest priority, while tests that mostly wait have the machine.

use anyhow::{Context as _, Result};

use super::command::Selection;
use super::image;
use crate::build::Statics;
use crate::progress::step;
use crate::setup;

/// The lowest priority of nice(2).
const LOWEST: libc::c_int = 19;

/// Makes the test binary and the images, which the guests then find in place; whatever goes wrong is met again, and
/// told, by the guests.
pub(crate) fn ahead(selection: &Selection) {
    let made = || -> Result<()> {
        setup::vm_tools()?;
        Statics::build()?;
        // An image that cannot be made is its guest's failure, told there.
        selection.suites().iter().for_each(|suite| drop(image::get(*suite, false)));
        Ok(())
    };
    if let Err(error) = made() {
        step("vm", &format!("not ready ahead: {error:#}"));
    }
}

/// Lowers the priority of this thread and of what it starts (on Linux it belongs to the thread, see setpriority(2)).
pub(crate) fn lower() -> Result<()> {
    // SAFETY: setpriority takes numbers only; 0 is the calling thread.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).context("cannot lower the priority") }
}

#[cfg(test)]
mod tests {
    use std::thread;

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
