//! [`HaltWatch`]: has a daemon stopped since the last time, or a thread of the kubelet begun to wait for the server of a file
//! system, for an agent that permits accesses, or for a thaw? One short file per process, and per thread of the kubelet, so it can be asked every second, where a round of the
//! census, which proves it, is taken only now and then.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    input::{Component, ParkedThreads, ProcessFact, served_by},
    target::read_stat,
};

/// Processes that are watched.
const MAX: usize = 1024;
/// So many times in a row the first thread must be in an uninterruptible sleep. That is what a task in a frozen cgroup of
/// version 1 shows (kernel/freezer.c), but also one that waits for a disk for a moment. Version 2 shows nothing in `stat`.
const ASLEEP: u8 = 2;
/// Threads of a kubelet that are looked at.
const MAX_THREADS: usize = 512;

/// Watches the daemons that the census has found.
#[derive(Debug)]
pub struct HaltWatch {
    proc: PathBuf,
    daemons: BTreeMap<u32, Halt>,
}

/// What the first thread of a daemon did, and those of a kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Halt {
    /// So many times in a row it slept uninterruptibly.
    asleep: u8,
    /// It stood still.
    halted: bool,
    /// It is a kubelet, whose threads are looked at.
    kubelet: bool,
    /// So many times in a row these threads waited for a server.
    waits: BTreeMap<u32, u8>,
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
            let halt = self.daemons.entry(fact.pid).or_default();
            halt.halted |= halted;
            halt.kubelet = fact.component == Component::Kubelet;
            // What the census has found is no news.
            let waits = |park: &&ParkedThreads| {
                park.waits_for_server().is_some() || park.waits_for_permission() || park.waits_for_thaw()
            };
            let waiting = fact.parked.iter().filter(waits);
            halt.waits.extend(waiting.map(|park| (park.tid, ASLEEP)));
        }
    }

    /// Has one of them begun to stand still since the last time, or to wait for a server? Those that have ended are forgotten.
    pub fn is_new(&mut self) -> bool {
        let (proc, mut new) = (&self.proc, false);
        self.daemons.retain(|pid, halt| {
            let dir = proc.join(pid.to_string());
            let Some(stat) = read_stat(&dir) else { return false };
            new |= halt.turns(stat.state);
            new |= halt.kubelet && halt.waits_anew(waiting(&dir));
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

    /// Takes the threads that wait for a server now; has one of them waited for long enough to be worth a look?
    fn waits_anew(&mut self, now: impl Iterator<Item = u32>) -> bool {
        let before = std::mem::take(&mut self.waits);
        let times = |tid: &u32| before.get(tid).copied().unwrap_or(0).saturating_add(1);
        self.waits = now.map(|tid| (tid, times(&tid))).collect();
        self.waits.values().any(|times| *times == ASLEEP)
    }
}

/// Functions of the kernel in which a thread waits for an agent (fanotify), or to write to a file system that is frozen.
const HELD: [&str; 4] =
    ["fanotify_handle_event", "fanotify_get_response", "percpu_rwsem_wait", "__sb_start_write"];

/// The threads of a process that wait for the server of a file system, for an agent, or for a thaw.
fn waiting(dir: &Path) -> impl Iterator<Item = u32> {
    let threads = fs::read_dir(dir.join("task")).into_iter().flatten().flatten().take(MAX_THREADS);
    threads.filter_map(|thread| {
        let place = fs::read_to_string(thread.path().join("wchan")).ok()?;
        let is_held = HELD.contains(&place.trim()) || served_by(place.trim()).is_some();
        if !is_held {
            return None;
        }
        thread.file_name().to_str()?.parse().ok()
    })
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

    /// A thread that waits for a server is new when it has done so twice, and once; one that has gone on is forgotten.
    #[test]
    fn a_thread_that_waits_for_a_server() {
        let mut halt = Halt { kubelet: true, waits: BTreeMap::from([(9, ASLEEP)]), ..Halt::default() };
        let mut turn = |threads: &[u32]| halt.waits_anew(threads.iter().copied());
        let new = [turn(&[9, 7]), turn(&[9, 7]), turn(&[9, 7]), turn(&[9]), turn(&[9, 7])];
        assert_eq!(new, [false, true, false, false, false]);

        let root = tempfile::tempdir().unwrap();
        let places = [
            (7, "request_wait_answer"),
            (8, "futex_do_wait"),
            (9, "rpc_wait_bit_killable\n"),
            (10, "fanotify_handle_event"),
            (11, "percpu_rwsem_wait"),
        ];
        for (tid, place) in places {
            let dir = root.path().join(format!("task/{tid}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("wchan"), place).unwrap();
        }
        let mut found: Vec<u32> = waiting(root.path()).collect();
        found.sort_unstable();
        assert_eq!(found, [7, 9, 10, 11]);
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
