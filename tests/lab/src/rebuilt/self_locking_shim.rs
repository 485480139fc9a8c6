//! A shim of containerd 1.7 that waits for itself: before 1.7.8 it took, to handle an exit, the lock that it holds while it creates a
//! container, also when it came upon the exit of that container's first process in the middle of this (containerd pull request 9104).

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::lossy_shim::{MAIN, SERVICE};
use super::{Program, SELF_LOCKING, build};

pub(super) const PROGRAM: Program = Program {
    // What containerd looks for.
    name: "containerd-shim-runc-v2",
    main: MAIN,
    changed: &[(SERVICE, with_lock)],
};

const HANDLER: &str =
    "func (s *service) handleProcessExit(e runcC.Exit, c *runc.Container, p process.Process) {\n";

/// The path of the program, built when the cache does not have it yet (two minutes on two cores).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had ([`crate::packages::Error::Gone`] in the chain when they left the
/// archive), or the build fails.
pub fn program() -> Result<PathBuf> {
    build(&SELF_LOCKING, &PROGRAM)
}

/// Takes the lock where an exit is handled.
fn with_lock(text: &str) -> Result<String> {
    ensure!(text.matches(HANDLER).count() == 1, "the handler of exits is not there");
    ensure!(
        text.contains("\thandleStarted(container, proc)\n"),
        "a create does not handle the exit of its process"
    );
    Ok(text.replace(HANDLER, &format!("{HANDLER}\ts.mu.Lock()\n\tdefer s.mu.Unlock()\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_taken() {
        let text = format!("\thandleStarted(container, proc)\n{HANDLER}\tp.SetExited(e.Status)\n");
        let wanted = "process.Process) {\n\ts.mu.Lock()\n\tdefer s.mu.Unlock()\n\tp.SetExited(";
        assert!(with_lock(&text).unwrap().contains(wanted));
        with_lock(HANDLER).unwrap_err();
        with_lock("\thandleStarted(container, proc)\n").unwrap_err();
    }
}
