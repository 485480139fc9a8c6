//! [`Known`]: which executables were analysed, who runs them, and where they stand in the plan.

use std::collections::HashMap;

use crate::{input::Component, target::FileId};

/// One file in one state, under one role.
pub(super) type Key = (FileId, Component);

/// The process of a file that none runs all the time.
const NOBODY: u32 = 0;

/// Executables by file, with what was read of each.
#[derive(Debug)]
pub(crate) struct Known<T> {
    programs: HashMap<Key, Program<T>>,
}

#[derive(Debug)]
struct Program<T> {
    /// Who runs it.
    pids: Vec<u32>,
    /// Its place in the plan's `binaries`; `None` when it has no sites.
    place: Option<usize>,
    read: T,
}

/// What a process that was looked at means for the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Its file is new: its sites are to be planned.
    New,
    /// Others run the same file: uprobes belong to the inode, so there is nothing to do.
    Another,
    /// The file was planned for processes that have ended: its probes are to be put on again.
    Again(Option<usize>),
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { programs: HashMap::new() }
    }
}

impl<T> Known<T> {
    /// What was read from the file that a process runs.
    pub(crate) fn of_pid(&self, component: Component, pid: u32) -> Option<&T> {
        let runs = |(key, program): &(&Key, &Program<T>)| key.1 == component && program.pids.contains(&pid);
        self.programs.iter().find(runs).map(|(_, program)| &program.read)
    }

    /// What was read from the file at this place of the plan.
    pub(crate) fn at(&self, place: usize) -> Option<&T> {
        self.programs.values().find(|program| program.place == Some(place)).map(|program| &program.read)
    }

    /// Takes what was read from the file of a process.
    pub(crate) fn take(&mut self, key: Key, pid: u32, read: T) -> Taken {
        let Some(program) = self.programs.get_mut(&key) else {
            self.programs.insert(key, Program { pids: vec![pid], place: None, read });
            return Taken::New;
        };
        let again = program.pids.is_empty();
        if !program.pids.contains(&pid) {
            program.pids.push(pid);
        }
        if !again {
            return Taken::Another;
        }
        program.read = read;
        Taken::Again(program.place)
    }

    /// Tells the place in the plan of what is new.
    pub(crate) fn planned(&mut self, key: &Key, place: usize) {
        if let Some(program) = self.programs.get_mut(key) {
            program.place = Some(place);
        }
    }

    /// The places of other states of this file. They can be there when it was written to, or touched, while it ran.
    pub(crate) fn other_states(&self, key: &Key) -> Vec<usize> {
        let file = |key: &Key| (key.0.dev, key.0.ino, key.1);
        let others = self.programs.iter().filter(|(other, _)| *other != key && file(other) == file(key));
        others.filter_map(|(_, program)| program.place).collect()
    }

    /// Forgets processes that are gone; gives the places of what nobody runs any more. What was read stays: stacks that
    /// were seen in it want names.
    pub(crate) fn keep(&mut self, lives: impl Fn(u32, Component) -> bool) -> Vec<usize> {
        let mut ended = Vec::new();
        for ((_, component), program) in &mut self.programs {
            let ran = !program.pids.is_empty();
            program.pids.retain(|pid| *pid == NOBODY || lives(*pid, *component));
            ended.extend(program.place.filter(|_| ran && program.pids.is_empty()));
        }
        ended
    }

    /// Does a process run this file?
    pub(crate) fn is_run(&self, key: &Key) -> bool {
        self.programs.get(key).is_some_and(|program| !program.pids.is_empty())
    }

    /// What was read from this file.
    pub(crate) fn read(&self, key: &Key) -> Option<&T> {
        self.programs.get(key).map(|program| &program.read)
    }

    /// Forgets this file.
    pub(crate) fn forget_file(&mut self, key: &Key) {
        self.programs.remove(key);
    }

    /// Forgets the file at a place of the plan.
    pub(crate) fn forget(&mut self, place: usize) {
        self.programs.retain(|_, program| program.place != Some(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(ino: u64, mtime_ns: i128) -> Key {
        (FileId { dev: 1, ino, size: 9, mtime_ns, content: 0 }, Component::Kubelet)
    }

    /// A kubelet that is in the plan at place 3.
    fn kubelet(pid: u32) -> Known<&'static str> {
        let mut known = Known::default();
        assert_eq!(known.take(key(7, 0), pid, "first"), Taken::New);
        known.planned(&key(7, 0), 3);
        known
    }

    /// Whoever starts from the same file after all others have ended has its probes put on again; what was read first is
    /// not kept for it.
    #[test]
    fn successors_are_probed_again() {
        let mut known = kubelet(10);
        assert!(known.keep(|_, _| true).is_empty());
        assert_eq!(known.keep(|pid, _| pid != 10), [3]);
        assert!(known.keep(|_, _| false).is_empty(), "told once");
        assert_eq!((known.of_pid(Component::Kubelet, 10), known.at(3)), (None, Some(&"first")));
        assert_eq!(known.take(key(7, 0), 11, "second"), Taken::Again(Some(3)));
        assert_eq!((known.of_pid(Component::Kubelet, 11), known.at(3)), (Some(&"second"), Some(&"second")));
    }

    /// A file keeps its probes for as long as one process runs it, and every process of it is known.
    #[test]
    fn processes_of_one_file() {
        let mut known = kubelet(10);
        assert_eq!(known.take(key(7, 0), 11, "second"), Taken::Another);
        assert!([10, 11].iter().all(|pid| known.of_pid(Component::Kubelet, *pid).is_some()));
        assert!(known.of_pid(Component::Containerd, 10).is_none());
        assert!(known.keep(|pid, _| pid == 11).is_empty());
        assert!(known.of_pid(Component::Kubelet, 10).is_none());
        assert_eq!(known.keep(|_, _| false), [3]);
    }

    /// A file that was written to is a new one, in the place of the old one.
    #[test]
    fn written_files_are_new() {
        let mut known = kubelet(10);
        assert_eq!(known.take(key(7, 1), 11, "written"), Taken::New);
        assert_eq!((known.other_states(&key(7, 1)), known.other_states(&key(8, 0))), (vec![3], vec![]));
        known.forget(3);
        assert!(known.other_states(&key(7, 1)).is_empty() && known.at(3).is_none());
    }

    /// A file that no process runs all the time does not end with any.
    #[test]
    fn files_without_a_process_stay() {
        let mut known = kubelet(NOBODY);
        assert!(known.keep(|_, _| false).is_empty());
        assert_eq!(known.take(key(7, 0), NOBODY, "again"), Taken::Another);
    }
}
