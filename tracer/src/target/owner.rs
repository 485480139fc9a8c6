//! Who runs a process. Any user of the node can start a program called `containerd`; the node's own components are root's.
//!
//! The owner of the directory `/proc/PID` does not tell: it is root where a process may not be dumped, which each process
//! decides for itself (proc(5), `PR_SET_DUMPABLE` in prctl(2)). `status` does, and waits for nothing.

use std::{fs::File, path::Path};

use super::process::read_whole;

/// Bytes of `status` that are read: the line is one of the first ten.
const MAX_STATUS: u64 = 4096;

/// User id of root.
const ROOT: u32 = 0;

/// The user of the process whose directory in `/proc` this is, as our user namespace numbers it; 0 only for a process that
/// root has started and that still is root. `None` when that cannot be told.
pub(crate) fn owner(dir: &Path) -> Option<u32> {
    let text = read_whole(File::open(dir.join("status")).ok()?, MAX_STATUS).ok()?;
    parse(&String::from_utf8_lossy(&text))
}

/// "Uid:", then the real, the effective, the saved and the file system's user id. Whoever executes a program that is root's by its mode
/// (setuid) stays its real user.
fn parse(status: &str) -> Option<u32> {
    // The name of the process comes before it, with its line ends escaped.
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut ids = line.split_ascii_whitespace().map(str::parse::<u32>);
    let (real, effective) = (ids.next()?.ok()?, ids.next()?.ok()?);
    Some(if real == ROOT { effective } else { real })
}

/// Is this somebody else than root?
pub(crate) fn is_somebody_else(owner: Option<u32>) -> bool {
    owner.is_some_and(|owner| owner != ROOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root has started it, and it is root's.
    #[test]
    fn owners() {
        let status =
            |ids: &str| format!("Name:\tUid:\\n0\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t{ids}\n");
        assert_eq!(parse(&status("0\t0\t0\t0")), Some(0));
        assert_eq!(parse(&status("1000\t0\t0\t0")), Some(1000), "a program that is root's by its mode");
        assert_eq!(parse(&status("0\t65534\t0\t65534")), Some(65534));
        assert_eq!((parse(&status("")), parse("Name:\tx\n"), parse("")), (None, None, None));
        assert!(is_somebody_else(Some(1)) && !is_somebody_else(Some(0)) && !is_somebody_else(None));
    }

    /// This very process has the owner that its directory has, as long as it may be dumped.
    #[test]
    fn own_process() {
        use std::os::unix::fs::MetadataExt as _;
        let us = Path::new("/proc/self");
        assert_eq!(owner(us), Some(std::fs::metadata(us).unwrap().uid()));
        assert_eq!(owner(Path::new("/proc/0")), None);
    }
}
