//! [`HaltWatch`]: has a daemon stopped since the last time? One short file per process, so it can be asked every second, where a
//! round of the census, which proves it, is taken only now and then.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    input::{Component, ProcessFact},
    target::read_stat,
};

/// Processes that are watched.
const MAX: usize = 1024;
/// So many times in a row the first thread must be in an uninterruptible sleep. That is what a task in a frozen cgroup of
/// version 1 shows (kernel/freezer.c), but also one that waits for a disk for a moment. Version 2 shows nothing in `stat`.
const ASLEEP: u8 = 2;

/// Watches the daemons that the census has found.
#[derive(Debug)]
pub struct HaltWatch {
    proc: PathBuf,
    daemons: BTreeMap<u32, Halt>,
}

/// What the first thread of a daemon did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Halt {
    /// So many times in a row it slept uninterruptibly.
    asleep: u8,
    /// It stood still.
    halted: bool,
}

impl Default for HaltWatch {
    fn default() -> Self {
        Self { proc: PathBuf::from("/proc"), daemons: BTreeMap::new() }
    }
}

impl HaltWatch {
    /// A process that the census has found: it is watched from now on when it serves others.
    pub fn found(&mut self, fact: &ProcessFact) {
        let serves = !matches!(fact.component, Component::Runc | Component::Helper) && fact.by_hand.is_none();
        if serves && (self.daemons.len() < MAX || self.daemons.contains_key(&fact.pid)) {
            let halted = fact.threads > 0 && fact.stopped == fact.threads
                || fact.freezer.as_ref().is_some_and(|freezer| freezer.state == "FROZEN");
            self.daemons.entry(fact.pid).or_default().halted |= halted;
        }
    }

    /// Has one of them begun to stand still since the last time? Those that have ended are forgotten.
    pub fn is_new(&mut self) -> bool {
        let (proc, mut new) = (&self.proc, false);
        self.daemons.retain(|pid, halt| {
            let Some(stat) = read_stat(&proc.join(pid.to_string())) else { return false };
            new |= halt.turns(stat.state);
            true
        });
        new
    }
}

impl Halt {
    /// Takes the state of now; has it begun to stand still?
    fn turns(&mut self, state: char) -> bool {
        self.asleep = if state == 'D' { self.asleep.saturating_add(1) } else { 0 };
        let halted = matches!(state, 'T' | 't') || self.asleep >= ASLEEP;
        let new = halted && !self.halted;
        self.halted = halted || state == 'D' && self.halted;
        new
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A stop is new once, and again after it went on; a sleep counts when it lasts.
    #[test]
    fn what_stops_is_new_once() {
        let mut halt = Halt::default();
        let new: Vec<bool> = "STTSTDSDDD".chars().map(|state| halt.turns(state)).collect();
        let wanted = [false, true, false, false, true, false, false, false, true, false];
        assert_eq!(new, wanted);
    }

    /// What the census found halted is no news; a process that has ended is watched no longer.
    #[test]
    fn only_daemons_and_only_news() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = HaltWatch { proc: root.path().to_owned(), ..HaltWatch::default() };
        let stat = |pid: u32, state: char| {
            let rest = ["0"; 15].join(" ");
            fs::create_dir_all(root.path().join(pid.to_string())).unwrap();
            fs::write(
                root.path().join(format!("{pid}/stat")),
                format!("{pid} (a) b) {state} 1 {rest} 4 0 99"),
            )
            .unwrap();
        };
        let fact = |pid, component, stopped| {
            let text = serde_json::json!({
                "at_ns": 1, "pid": pid, "parent": 1, "started_ns": 1, "component": component, "comm": "x",
                "state": "S", "threads": 2, "stopped": stopped,
                "parked": [], "sockets": [], "pipes": [],
            });
            serde_json::from_value::<ProcessFact>(text).unwrap()
        };
        for (pid, component, stopped) in [(7, "shim", 0), (8, "shim", 2), (9, "helper", 0)] {
            watch.found(&fact(pid, component, stopped));
            stat(pid, if stopped > 0 { 'T' } else { 'S' });
        }
        assert!(!watch.is_new(), "one was halted already");
        stat(9, 'T');
        assert!(!watch.is_new(), "a helper is not watched");
        stat(7, 'T');
        assert!(watch.is_new());
        fs::remove_dir_all(root.path().join("7")).unwrap();
        assert!(!watch.is_new());
        assert_eq!(watch.daemons.keys().collect::<Vec<_>>(), [&8]);
    }
}
