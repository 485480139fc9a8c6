//! [`Life`]: the births, programs and ends of processes in a [`Story`], with the kernel's map of them.

use plegtrace::input::{Command, CommandFact, Fact, ProcessesFact, WatchedFact};
use plegtrace_common::{
    follow::after_fork,
    key::Watched,
    kind::RecKind,
    rec::{PROCESS_AGAIN, ProcessRec},
    role::Role,
};
use zerocopy::FromZeros as _;

use crate::story::{Story, at, header};

/// Sentences about processes.
pub trait Life {
    /// A process was there before the probes.
    fn found(&mut self, pid: u32, role: Role) -> &mut Self;
    /// A watched process makes another.
    fn fork(&mut self, creator: u32, pid: u32, ns: u64) -> &mut Self;
    /// A process becomes another program.
    fn exec(&mut self, pid: u32, role: Role, flags: u32, ns: u64) -> &mut Self;
    /// What its program was told to do.
    fn told(&mut self, pid: u32, command: &Command) -> &mut Self;
    /// A process that only the map knows: its records were lost.
    fn keep_in_map_only(&mut self, pid: u32, parent: u32, role: Role, flags: u32, ns: u64) -> &mut Self;
    /// The map forgets a process without a record.
    fn drop_from_map(&mut self, pid: u32) -> &mut Self;
    /// The map is read, and the ring drained after it.
    fn read_processes(&mut self, ns: u64) -> &mut Self;
    /// The map is read; `tell` says when the reading comes into the stream.
    fn with_reading(&mut self, ns: u64, tell: impl FnOnce(&mut Self, Fact)) -> &mut Self;
    /// A reading comes into the stream.
    fn fact_of(&mut self, reading: Fact) -> &mut Self;
}

impl Life for Story {
    fn found(&mut self, pid: u32, role: Role) -> &mut Self {
        self.watched.insert(pid, Watched::found(role));
        self
    }

    fn fork(&mut self, creator: u32, pid: u32, ns: u64) -> &mut Self {
        let maker = self.watched.get(&creator).copied().expect("only watched processes have children here");
        let born = after_fork(&maker, creator, at(ns).0);
        self.watched.insert(pid, born);
        let mut rec = record(RecKind::Fork, pid, ns, &born);
        (rec.creator, rec.old_role) = (creator, maker.role);
        self.push(rec.header, &rec)
    }

    fn exec(&mut self, pid: u32, role: Role, flags: u32, ns: u64) -> &mut Self {
        let old = self.watched.get(&pid).copied().unwrap_or(Watched::found(Role::None));
        let since_ns = if flags & PROCESS_AGAIN == 0 { at(ns).0 } else { old.since_ns };
        let new = Watched { role: role as u32, flags, since_ns, ..old };
        self.watched.insert(pid, new);
        let mut rec = record(RecKind::Exec, pid, ns, &new);
        rec.old_role = old.role;
        self.push(rec.header, &rec)
    }

    fn told(&mut self, pid: u32, command: &Command) -> &mut Self {
        let since_ns = self.watched[&pid].since_ns;
        let fact = CommandFact { pid, since_ns, unread: false, command: command.clone() };
        self.fact(since_ns - at(0).0, &Fact::Command(fact))
    }

    fn keep_in_map_only(&mut self, pid: u32, parent: u32, role: Role, flags: u32, ns: u64) -> &mut Self {
        let parent_role = self.watched.get(&parent).map_or(0, |parent| parent.role);
        let entry = Watched { role: role as u32, parent_role, since_ns: at(ns).0, parent, flags };
        self.watched.insert(pid, entry);
        self
    }

    fn drop_from_map(&mut self, pid: u32) -> &mut Self {
        self.watched.remove(&pid);
        self
    }

    fn read_processes(&mut self, ns: u64) -> &mut Self {
        self.with_reading(ns, |story, reading| {
            story.fact_of(reading);
        })
    }

    fn with_reading(&mut self, ns: u64, tell: impl FnOnce(&mut Self, Fact)) -> &mut Self {
        let entry = |(pid, watched): (&u32, &Watched)| WatchedFact {
            pid: *pid,
            role: watched.role,
            parent_role: watched.parent_role,
            since_ns: watched.since_ns,
            parent: watched.parent,
            flags: watched.flags,
            known: None,
        };
        let processes = self.watched.iter().map(entry).collect();
        tell(self, Fact::Processes(ProcessesFact { at_ns: at(ns).0, processes, complete: true }));
        self
    }

    fn fact_of(&mut self, reading: Fact) -> &mut Self {
        self.fact(0, &reading)
    }
}

fn record(kind: RecKind, pid: u32, ns: u64, watched: &Watched) -> ProcessRec {
    let mut rec = ProcessRec::new_zeroed();
    rec.header = header(kind, size_of::<ProcessRec>(), ns, pid);
    (rec.parent, rec.role, rec.parent_role) = (watched.parent, watched.role, watched.parent_role);
    (rec.since_ns, rec.flags) = (watched.since_ns, watched.flags);
    rec
}
