//! Steps of processes → spans from exec to exit, open ones included.
//!
//! A span is a program in a process: it begins with its `execve` and ends with the next one, or with the process. Of
//! processes that have ended only figures stay. The kernel's map of watched processes is read like that of open calls
//! (map first, then the ring buffer), so it corrects what lost records would leave behind; because the kernel changes
//! the map a moment before it writes the record, a span is given up only when two readings in a row contradict it.

mod finished;
mod kind;
mod run;
mod snapshot;
mod span;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use plegtrace_common::{rec::PROCESS_AGAIN, role::Role};

pub use kind::{OciRuntime, ProcessKind};
pub use snapshot::{EndedProcess, OpenProcess, ProcessEnd, ProcessRow, Processes, WorkloadProcess};

pub(super) use self::run::Run;
use self::{finished::Finished, run::Runs, span::Span};
use super::{generations::Generations, limits::Limits, needed::Needed, thresholds::HOOK_NS};
use crate::{
    decode::{MonoNs, Process, Step},
    input::{CommandFact, ProcessesFact, WatchedFact},
};

/// Ends remembered to recognise their processes in a later reading.
const ENDED: usize = 16_384;
/// Longest chain of parents that is followed.
const PARENTS: usize = 8;
/// So many readings in a row prove that a span is over.
const PROOF: u8 = 2;

/// All watched processes.
#[derive(Debug)]
pub(super) struct Follower {
    spans: HashMap<u32, Span>,
    ended: Generations<u32, MonoNs>,
    finished: Finished,
    runs: Runs,
    read_at: Option<MonoNs>,
    complete: bool,
    ended_unseen: u64,
    dropped: u64,
}

impl Follower {
    pub(super) fn new() -> Self {
        Self {
            spans: HashMap::new(),
            ended: Generations::new(ENDED),
            finished: Finished::default(),
            runs: Runs::default(),
            read_at: None,
            complete: true,
            ended_unseen: 0,
            dropped: 0,
        }
    }

    /// A process was born, became another program, or ended.
    pub(super) fn step(&mut self, process: &Process, limits: &Limits) {
        match process.step {
            Step::Fork => self.fork(process, limits),
            Step::Exec => self.exec(process, limits),
            Step::Exit(status) => self.exit(process, status, limits),
        }
    }

    fn fork(&mut self, process: &Process, limits: &Limits) {
        let mut span = Span::new(process);
        let maker = process.creator.and_then(|pid| self.spans.get(&pid));
        if let Some(maker) = maker.or_else(|| self.spans.get(&process.parent?)) {
            span.inherit(maker);
        }
        self.insert(span, limits);
    }

    fn exec(&mut self, process: &Process, limits: &Limits) {
        let at = process.meta.at;
        let Some(span) = self.spans.get_mut(&process.meta.tgid) else {
            return self.insert(Span::new(process), limits);
        };
        if process.flags & PROCESS_AGAIN != 0 || span.runs(process) {
            return span.goes_on(process);
        }
        let before = span.clone();
        span.replace(process);
        if process.role == Role::Workload {
            self.begun(before.works_for, at);
            self.over(&before, at, ProcessEnd::BecameWorkload, limits);
        } else if before.executed() {
            self.over(&before, at, ProcessEnd::Replaced, limits);
        }
    }

    /// A process has become a command or workload. When it is not known for which runc, it may be that of each that ran then.
    fn begun(&mut self, works_for: Option<u32>, at: MonoNs) {
        let is_its = |span: &&mut Span| match works_for {
            Some(pid) => span.pid == pid,
            None => span.role == Role::Runc && span.start.is_some_and(|start| start <= at),
        };
        self.spans.values_mut().filter(is_its).for_each(|span| span.has_begun = true);
    }

    fn exit(&mut self, process: &Process, status: u32, limits: &Limits) {
        let (pid, at) = (process.meta.tgid, process.meta.at);
        let ended = self.ended.entry(pid);
        *ended = at.max(*ended);
        let known = self.spans.remove(&pid).filter(|span| span.start == process.since);
        let span = known.unwrap_or_else(|| Span::new(process));
        self.over(&span, at, ProcessEnd::of_status(status), limits);
    }

    /// A program ended, or its process.
    fn over(&mut self, span: &Span, at: MonoNs, how: ProcessEnd, limits: &Limits) {
        self.finished.add(span, at, how, limits);
        let parent = span.parent.and_then(|pid| self.spans.get(&pid));
        if let Some(run) = Run::of_program(span, parent, Some((at, how))) {
            self.runs.add(run, limits.ended_processes);
        }
    }

    fn insert(&mut self, span: Span, limits: &Limits) {
        if self.spans.len() >= limits.processes && !self.spans.contains_key(&span.pid) {
            self.dropped += 1;
            return;
        }
        self.spans.insert(span.pid, span);
    }

    /// What a process was told to do.
    pub(super) fn command(&mut self, fact: CommandFact) {
        let start = (fact.since_ns != 0).then_some(MonoNs(fact.since_ns));
        if let Some(span) = self.spans.get_mut(&fact.pid).filter(|span| span.start == start) {
            span.told(fact);
        }
    }

    /// The kernel's map was read; an older reading is ignored.
    pub(super) fn reading(&mut self, fact: &ProcessesFact, limits: &Limits) {
        let at = MonoNs(fact.at_ns);
        if self.read_at.is_some_and(|last| last > at) {
            return;
        }
        (self.read_at, self.complete) = (Some(at), fact.complete);
        let listed: HashMap<u32, &WatchedFact> =
            fact.processes.iter().map(|entry| (entry.pid, entry)).collect();
        self.check(&listed, at);
        for entry in &fact.processes {
            let over = self.ended.touch(&entry.pid).is_some_and(|end| entry.since_ns <= end.0);
            if !over && !self.spans.contains_key(&entry.pid) {
                let found = Span::found(entry, at);
                if found.role == Role::Workload {
                    self.begun(found.works_for, found.start.unwrap_or(at));
                }
                self.insert(found, limits);
            }
        }
    }

    /// Gives spans up that the map has contradicted often enough.
    fn check(&mut self, listed: &HashMap<u32, &WatchedFact>, at: MonoNs) {
        let (complete, mut lost) = (self.complete, 0);
        self.spans.retain(|pid, span| {
            let entry = listed.get(pid).copied();
            let agrees = entry.map_or(!complete, |entry| span.is(entry));
            span.contradicted = if agrees || span.seen > at { 0 } else { span.contradicted + 1 };
            if span.contradicted < PROOF {
                return true;
            }
            lost += u64::from(span.kind().is_short_lived());
            false
        });
        self.ended_unseen += lost;
    }

    /// Everything at `now`; `since` is when the probes were on.
    pub(super) fn snapshot(&self, now: MonoNs, since: Option<MonoNs>) -> Processes {
        let mut open: Vec<OpenProcess> =
            self.spans.values().filter_map(|span| self.open(span, now, since)).collect();
        open.sort_by_key(|process| (process.start, process.pid));
        let living = self.spans.values().filter(|span| span.role == Role::Workload);
        let mut workloads: Vec<WorkloadProcess> = living.map(finished::workload).collect();
        workloads.sort_by_key(|process| (process.start, process.pid));
        Processes {
            read_at: self.read_at,
            complete: self.complete,
            open,
            rows: self.finished.rows(),
            slowest: self.finished.slowest.clone(),
            failed: self.finished.failed.iter().cloned().collect(),
            workloads,
            workloads_ended: self.finished.workloads.iter().cloned().collect(),
            ended_unseen: self.ended_unseen,
        }
    }

    fn open(&self, span: &Span, now: MonoNs, since: Option<MonoNs>) -> Option<OpenProcess> {
        let kind = span.kind();
        if !kind.is_short_lived() && kind != ProcessKind::Starting {
            return None;
        }
        let age_ns = now.since(span.start.or(since).unwrap_or(now));
        let late = is_late(span, age_ns) && !self.waits_for_hook(span, now, since);
        Some(OpenProcess {
            pid: span.pid,
            start: span.start,
            age_ns,
            at_least: span.start.is_none(),
            comm: span.comm.clone(),
            container: span.container.clone(),
            bundle: span.bundle.clone(),
            under: span.under.clone().filter(|_| matches!(kind, ProcessKind::RuncInit { .. })),
            parent: span.parent,
            parents: self.parents(span),
            phases: Vec::new(),
            late_after_ns: span.late_after_ns(),
            late,
            kind,
        })
    }

    /// Is a process of the node open longer than its kind ever needs?
    pub(super) fn any_late(&self, now: MonoNs, since: Option<MonoNs>) -> bool {
        let late = |span: &Span| {
            is_late(span, now.since(span.start.or(since).unwrap_or(now)))
                && !self.waits_for_hook(span, now, since)
        };
        self.spans.values().any(late)
    }

    /// Does a runc, or its init, wait for a hook that takes its time and may?
    fn waits_for_hook(&self, span: &Span, now: MonoNs, since: Option<MonoNs>) -> bool {
        let runc = match span.kind() {
            ProcessKind::Runc { .. } => Some(span.pid),
            ProcessKind::RuncInit { .. } => span.parent,
            _ => None,
        };
        let may_last = |hook: &Span| {
            let age_ns = now.since(hook.start.or(since).unwrap_or(now));
            matches!(hook.kind(), ProcessKind::Hook { .. })
                && hook.late_after_ns().is_some_and(|limit| limit > HOOK_NS && age_ns <= limit)
        };
        runc.is_some() && self.spans.values().any(|hook| hook.parent == runc && may_last(hook))
    }

    /// How long until a process is open longer than its kind ever needs. Whose it is does not matter: the census tells.
    pub(super) fn until_late(&self, now: MonoNs, since: Option<MonoNs>) -> Option<u64> {
        let left = |span: &Span| {
            let limit = span.late_after_ns()?;
            limit.checked_sub(now.since(span.start.or(since).unwrap_or(now)))
        };
        self.spans.values().filter_map(left).min()
    }

    fn parents(&self, span: &Span) -> Vec<(u32, ProcessKind)> {
        let mut parents = Vec::new();
        let mut next = span.parent;
        while let Some(parent) = next.and_then(|pid| self.spans.get(&pid)).filter(|_| parents.len() < PARENTS)
        {
            parents.push((parent.pid, parent.kind()));
            next = parent.parent.filter(|pid| *pid != parent.pid);
        }
        parents
    }

    /// The programs of short-lived processes that run, and the last of those that have ended, by start.
    pub(super) fn runs(&self) -> Vec<Arc<Run>> {
        let parent = |span: &Span| self.spans.get(&span.parent?);
        let open =
            self.spans.values().filter_map(|span| Run::of_program(span, parent(span), None).map(Arc::new));
        let mut runs: Vec<Arc<Run>> = self.runs.kept().cloned().chain(open).collect();
        runs.sort_by_key(|run| (run.start, run.pid));
        runs
    }

    /// The last reading, with what has come since, and all that is known of each process.
    pub(super) fn retold(&self) -> Option<ProcessesFact> {
        let at_ns = self.read_at?.0;
        let mut processes: Vec<WatchedFact> = self.spans.values().map(Span::retold).collect();
        processes.sort_by_key(|process| process.pid);
        Some(ProcessesFact { at_ns, processes, complete: self.complete })
    }

    /// When the last watched process with this number ended, as far as that is remembered.
    pub(super) fn ended_at(&self, pid: u32) -> Option<MonoNs> {
        self.ended.get(&pid).copied()
    }

    /// When the processes were read last.
    pub(super) fn read_at(&self) -> Option<MonoNs> {
        self.read_at
    }

    /// Forgets ends that no reading has shown for long.
    pub(super) fn forget_old(&mut self) {
        self.ended.turn();
    }

    /// Gives up programs that are not needed: none that started one which still runs.
    pub(super) fn age(&mut self, needed: &Needed) {
        let parents: HashSet<u32> = self.spans.values().filter_map(|span| span.parent).collect();
        self.runs.age(|run, end| parents.contains(&run.pid) || needed.wants(run.start, end));
    }

    /// What is told of the processes that run takes so much, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.spans.values().map(Span::bytes).sum()
    }

    /// How many ended programs are kept.
    pub(super) fn kept_runs(&self) -> usize {
        self.runs.kept().count()
    }

    /// Programs that have ended so far.
    pub(super) fn ended_runs(&self) -> u64 {
        self.runs.count
    }

    /// Of these, how many are no longer kept.
    pub(super) fn evicted_runs(&self) -> u64 {
        self.runs.evicted()
    }

    /// Processes that did not fit.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Processes that are in no row because there were too many kinds.
    pub(super) fn uncounted(&self) -> u64 {
        self.finished.dropped
    }
}

fn is_late(span: &Span, age_ns: u64) -> bool {
    span.is_of_the_node() && span.late_after_ns().is_some_and(|limit| age_ns > limit)
}
