//! A shim of containerd 1.7 whose reaper and lock wait for each other, as those of containerd 1.0 to 1.1.4 and 1.2.0 did when dozens of
//! commands ended while they held their lock for a runc (containerd issue 2709, pull request 2748). Whoever notices exits hands
//! them on one by one, and waits for each reader; the reader that tells containerd takes the lock of the service; a start holds
//! that lock until its runc has ended, which nobody notices any more. What took dozens of commands takes six here.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::lossy_shim::{MAIN, SERVICE};
use super::{DEADLOCKED, Program, build};

/// So many exits wait for their reader before the reaper does; one more is in the reader's hands.
pub(crate) const ROOM: usize = 4;

pub(super) const PROGRAM: Program = Program {
    // What containerd looks for.
    name: "containerd-shim-runc-v2",
    main: MAIN,
    changed: &[(REAPER, with_waiting_reaper), (SERVICE, with_one_lock)],
};

/// What notices that processes have ended.
const REAPER: &str = "github.com/containerd/containerd/sys/reaper/reaper_unix.go";
/// As it was: under the lock of all readers, and without an end to the wait for one of them.
const HAND_ON: &str = "	Default.Lock()
	for c := range Default.subscribers {
		for _, e := range exits {
			c <- runc.Exit{Timestamp: now, Pid: e.Pid, Status: e.Status}
		}
	}
	Default.Unlock()
";

/// The path of the program, built when the cache does not have it yet (two minutes on two cores).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had ([`crate::packages::Error::Gone`] in the chain when they left the
/// archive), or the build fails.
pub fn program() -> Result<PathBuf> {
    build(&DEADLOCKED, &PROGRAM)
}

/// Waits for each reader of exits, and has less room for them.
fn with_waiting_reaper(text: &str) -> Result<String> {
    let (begin, end, room) = ("\texits, err := reap(false)\n", "\treturn err\n", "const bufferSize = 32\n");
    let (before, rest) = text.split_once(begin).context("exits are not reaped")?;
    let (mended, after) = rest.split_once(end).context("the reaper has no end")?;
    ensure!(mended.contains("Default.notify(runc.Exit{"), "this reaper waits already");
    ensure!(before.contains(room), "there is another room for exits");
    let before = before.replace(room, &format!("const bufferSize = {ROOM}\n"));
    Ok(format!("{before}{begin}{HAND_ON}{end}{after}"))
}

/// Takes the lock of the service to handle an exit, and holds it while a process is started.
fn with_one_lock(text: &str) -> Result<String> {
    let changes = [
        ("\tp, err := container.Start(ctx, r)\n", "\ts.mu.Lock()\n", "\ts.mu.Unlock()\n"),
        ("\t\ts.lifecycleMu.Lock()\n\t\t// Inform any concurrent s.Start() calls", "\t\ts.mu.Lock()\n", ""),
        ("\t\tdelete(s.running, e.Pid)\n\t\ts.lifecycleMu.Unlock()\n", "", "\t\ts.mu.Unlock()\n"),
    ];
    changes.into_iter().try_fold(text.to_owned(), |text, (place, before, after)| {
        ensure!(text.matches(place).count() == 1, "{place:?} is not there once");
        Ok(text.replace(place, &format!("{before}{place}{after}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reaper_waits() {
        let before = "const bufferSize = 32\n\nfunc Reap() error {\n\texits, err := reap(false)\n";
        let mended = "\tfor _, e := range exits {\n\t\tdone := Default.notify(runc.Exit{\n\t\t})\n\t}\n";
        let after = "\treturn err\n}\n";
        let wanted = "const bufferSize = 4\n\nfunc Reap() error {\n\texits, err := reap(false)\n";
        assert_eq!(
            with_waiting_reaper(&format!("{before}{mended}{after}")).unwrap(),
            format!("{wanted}{HAND_ON}{after}")
        );
        with_waiting_reaper(&format!("{before}{HAND_ON}{after}")).unwrap_err();
        with_waiting_reaper(&format!("{mended}{after}")).unwrap_err();
    }

    #[test]
    fn one_lock_is_for_all() {
        let start = "\tp, err := container.Start(ctx, r)\n";
        let begin = "\t\ts.lifecycleMu.Lock()\n\t\t// Inform any concurrent s.Start() calls so\n";
        let end = "\t\tdelete(s.running, e.Pid)\n\t\ts.lifecycleMu.Unlock()\n";
        assert_eq!(
            with_one_lock(&[start, begin, end].concat()).unwrap(),
            format!(
                "\ts.mu.Lock()\n{start}\ts.mu.Unlock()\n\t\ts.mu.Lock()\n{begin}{end}\t\ts.mu.Unlock()\n"
            )
        );
        with_one_lock(&[start, begin].concat()).unwrap_err();
    }
}
