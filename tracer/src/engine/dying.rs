//! [`Dying`]: daemons whose exit the kernel has reported, and that `/proc` still lists.
//!
//! The kernel reports an exit before the threads and the memory of the process are gone, which takes a second on a busy node.
//! Until then `/proc` lists it, and it must not be mistaken for its successor.

use std::collections::HashSet;

use crate::target::Process;

/// Those that have ended, by pid and start: a number is used again.
#[derive(Debug, Default)]
pub(super) struct Dying {
    all: HashSet<(u32, u64)>,
}

impl Dying {
    /// The process of this number, one of those found last, has ended.
    pub(super) fn note(&mut self, pid: u32, found: &[Process]) {
        let ended = found.iter().filter(|process| process.pid == pid);
        self.all.extend(ended.map(|process| (process.pid, process.started_ns)));
    }

    /// Takes them out of what is found now, and forgets those that are gone.
    pub(super) fn leave_out(&mut self, found: &mut Vec<Process>) {
        let there =
            |ended: &(u32, u64)| found.iter().any(|process| (process.pid, process.started_ns) == *ended);
        self.all.retain(there);
        found.retain(|process| !self.all.contains(&(process.pid, process.started_ns)));
    }
}

#[cfg(test)]
mod tests {
    use plegtrace_common::role::Role;

    use super::*;
    use crate::target::CommandFacts;

    fn kubelet(pid: u32, started_ns: u64) -> Process {
        Process {
            pid,
            parent: 1,
            role: Role::Kubelet,
            multi_call: None,
            comm: "kubelet".to_owned(),
            exe: None,
            exe_deleted: false,
            args: Vec::new(),
            state: 'S',
            started_ns,
            host_namespace: Some(true),
            pid_namespace: None,
            owner: None,
            holds_socket: None,
            facts: CommandFacts::default(),
        }
    }

    /// Who has ended is left out for as long as it is there, its successor is not, be it of the same number.
    #[test]
    fn who_has_ended_is_not_its_successor() {
        let (old, new) = (kubelet(7, 100), kubelet(9, 200));
        let mut dying = Dying::default();
        dying.note(7, std::slice::from_ref(&old));
        for _ in 0..2 {
            let mut found = vec![old.clone(), new.clone()];
            dying.leave_out(&mut found);
            assert_eq!(found, std::slice::from_ref(&new));
        }
        let mut found = vec![kubelet(7, 300), new.clone()];
        dying.leave_out(&mut found);
        assert_eq!(found.len(), 2, "another process of that number");
        assert!(dying.all.is_empty(), "it is gone");
        dying.note(8, &[new]);
        assert!(dying.all.is_empty(), "nobody of that number was found");
    }
}
