//! What a process that others wait for is doing: `stat`, `status`, `cgroup` and `wchan` of `/proc`, and whether its
//! cgroup is frozen. The kernel answers them without a
//! lock of that process (fs/proc/array.c, `get_wchan`), so nothing here waits for it.

use std::{fs, path::Path};

use procfs::{process::Process, ticks_per_second};

use super::systemd_work;
use crate::input::{BusPeerFact, SystemdWork};

/// Ancestors that are looked at.
const MAX_ANCESTORS: usize = 64;

/// The process as it is now; `None` when it is gone.
pub(super) fn look(pid: u32) -> Option<BusPeerFact> {
    let process = of(pid)?;
    let stat = process.stat().ok()?;
    let ticks = u128::from(stat.utime) + u128::from(stat.stime);
    let ran_ns = ticks * 1_000_000_000 / u128::from(ticks_per_second().max(1));
    let wchan = process.wchan().unwrap_or_default();
    Some(BusPeerFact {
        pid,
        comm: stat.comm,
        state: stat.state,
        // A process that runs waits in no function: "0".
        frozen: is_frozen(&process),
        wchan: if wchan.trim() == "0" { String::new() } else { wchan.trim().to_owned() },
        ran_ns: u64::try_from(ran_ns).unwrap_or(u64::MAX),
        ..BusPeerFact::default()
    })
}

/// What gives it work, if it is systemd.
pub(super) fn work(pid: u32) -> SystemdWork {
    systemd_work::look(&Path::new("/proc").join(pid.to_string()))
}

/// Is a cgroup frozen in which the process is? Where control groups are mounted elsewhere than systemd does, it is not known.
fn is_frozen(process: &Process) -> bool {
    let groups = process.cgroups().map(|groups| groups.0).unwrap_or_default();
    groups.iter().any(|group| {
        let says = |dir: &str, file: &str, wanted: &str| {
            let text = fs::read_to_string(format!("/sys/fs/cgroup{dir}{}/{file}", group.pathname));
            text.is_ok_and(|text| text.lines().any(|line| line == wanted))
        };
        match group.hierarchy {
            0 => ["", "/unified"].iter().any(|dir| says(dir, "cgroup.events", "frozen 1")),
            _ if group.controllers.iter().any(|name| name == "freezer") => {
                says("/freezer", "freezer.state", "FROZEN")
            }
            _ => false,
        }
    })
}

/// The kernel's name of a process; empty when it is gone.
pub(super) fn comm(pid: u32) -> String {
    of(pid).and_then(|process| process.stat().ok()).map(|stat| stat.comm).unwrap_or_default()
}

/// The first process of the PID namespace in which a process lives: its nearest ancestor there with the number 1.
pub(super) fn init_of(pid: u32) -> Option<u32> {
    let mut status = of(pid)?.status().ok()?;
    let depth = status.nspid.as_ref()?.len();
    for _ in 0..MAX_ANCESTORS {
        let numbers = status.nspid.as_ref()?;
        if numbers.len() != depth {
            // Somebody outside put it there.
            return None;
        }
        if numbers.last() == Some(&1) {
            return u32::try_from(status.pid).ok();
        }
        status = of(u32::try_from(status.ppid).ok()?)?.status().ok()?;
    }
    None
}

fn of(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// We are there, and not stopped; the first process of our namespace is its own; who is not there is not told.
    #[test]
    fn ourselves_and_the_first_process() {
        let us = look(std::process::id()).unwrap();
        assert_eq!((us.pid, us.is_init, us.unread), (std::process::id(), false, None));
        assert!(matches!(us.state, 'R' | 'S' | 'D') && us.wchan != "0", "{us:?}");
        assert!(!us.frozen && !us.comm.is_empty() && !comm(us.pid).is_empty());
        let init = init_of(us.pid).unwrap();
        assert_eq!(init_of(init), Some(init));
        assert!(look(u32::MAX).is_none() && comm(u32::MAX).is_empty());
    }
}
