//! Answers of one or several children → facts. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem::take,
};

use crate::{
    census::protocol::{Answer, Asked, Job},
    input::{
        Answerers, CensusFact, ContainerFact, Downloads, EndedInit, Fact, GoroutinesFact, KubeletConnections,
        Liveness, PluginFact, Pressure, ProcessFact, RuntimeSays, Scarce, SeccompFact, Unanswered,
        Unkillable, Unwritten, VersionFact,
    },
    target::CommandLines,
};

/// Entries of the list of those who did not answer; what is beyond is counted in the last one.
const MAX_UNANSWERED: usize = 256;

/// Processes that SIGKILL does not end, of a round.
const MAX_UNKILLABLE: usize = 64;
/// Containers of a round.
const MAX_CONTAINERS: usize = 4096;

/// What was told so far in one round.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) processes: BTreeMap<u32, ProcessFact>,
    pub(super) finished: BTreeSet<u32>,
    pub(super) arguments: CommandLines,
    pub(super) search_path: Option<String>,
    pub(super) calls: HashMap<Asked, Liveness>,
    goroutines: BTreeMap<u32, GoroutinesFact>,
    containers: Vec<ContainerFact>,
    pressure: Option<Pressure>,
    unwritten: Option<Unwritten>,
    versions: BTreeMap<u32, Option<VersionFact>>,
    says: Option<RuntimeSays>,
    ended: Vec<EndedInit>,
    /// By process: a second child looks again.
    unkillable: BTreeMap<u32, Unkillable>,
    answerers: Option<Answerers>,
    pub(super) scarce: Option<Scarce>,
    downloads: BTreeMap<u32, Downloads>,
    kubelet_connections: BTreeMap<u32, KubeletConnections>,
    plugins: Vec<PluginFact>,
    pub(super) seccomp: Option<SeccompFact>,
    pub(super) unanswered: Vec<Unanswered>,
    unanswered_more: usize,
    left_out: u32,
    /// Not all processes were told of to the end.
    pub(super) cut: bool,
    /// Told of by an earlier child and not to the end: those that a later one does not tell of again have ended.
    before: BTreeMap<u32, ProcessFact>,
}

impl Merged {
    /// Takes one answer.
    pub(super) fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Hello(_) | Answer::Unconfined { .. } | Answer::Asking { .. } | Answer::Done => {}
            Answer::Found { left_out } => {
                self.left_out = left_out;
                let (finished, before) =
                    take(&mut self.processes).into_iter().partition(|(pid, _)| self.finished.contains(pid));
                (self.processes, self.before) = (finished, before);
            }
            Answer::Process(fact) => self.process(*fact),
            Answer::Threads { pid, threads, stopped, parked } => {
                if let Some(fact) = self.processes.get_mut(&pid) {
                    (fact.threads, fact.stopped, fact.parked) = (threads, stopped, parked);
                }
            }
            Answer::Command { pid, command } => {
                self.processes.entry(pid).and_modify(|fact| fact.command = Some(command));
            }
            Answer::Freezer { pid, freezer } => {
                self.processes.entry(pid).and_modify(|fact| fact.freezer = Some(freezer));
            }
            Answer::CpuGroup { pid, dir } => {
                self.processes.entry(pid).and_modify(|fact| fact.cpu_group = Some(dir));
            }
            Answer::TaskLimit { pid, limit } => {
                self.processes.entry(pid).and_modify(|fact| fact.task_limit = Some(limit));
            }
            Answer::Disk { pid, disk } => {
                self.processes.entry(pid).and_modify(|fact| fact.disk = Some(disk));
            }
            Answer::Container { pid, container } => {
                self.processes.entry(pid).and_modify(|fact| fact.container = Some(container));
            }
            Answer::Gone { pid } => {
                self.processes.remove(&pid);
                self.finished.insert(pid);
            }
            Answer::Refused(refused) => self.refuse(refused),
            Answer::Finished { pid } => {
                self.finished.insert(pid);
            }
            Answer::Version { pid, fact } => {
                self.versions.insert(pid, fact);
            }
            Answer::Pressure(pressure) => self.pressure = Some(pressure),
            Answer::Unwritten(unwritten) => self.unwritten = Some(unwritten),
            Answer::Containers { containers, ended } => {
                (self.containers, self.ended) = (containers, ended);
            }
            Answer::Unkillable(found) => {
                self.unkillable.insert(found.pid, *found);
            }
            Answer::Answerers(found) => self.answerers = Some(found),
            Answer::Scarce(found) => self.scarce = Some(found),
            Answer::Downloads(found) => drop(self.downloads.insert(found.pid, found)),
            Answer::KubeletConnections(found) => {
                drop(self.kubelet_connections.insert(found.pid, found));
            }
            Answer::Plugins(found) => self.plugins = found,
            Answer::Goroutines(fact) => {
                self.goroutines.insert(fact.pid, fact);
            }
            Answer::Runtime(says) => self.says = Some(says),
            Answer::Arguments { pid, arguments } => {
                self.arguments.insert(pid, arguments);
            }
            Answer::SearchPath { path } => self.search_path = Some(path),
            Answer::Call { of, is } => drop(self.calls.insert(of, is)),
        }
    }

    /// Of whom everything was told that is wanted here.
    pub(super) fn told(&self, what: &Job) -> Vec<u32> {
        match what {
            Job::Processes => self.finished.iter().copied().collect(),
            Job::Goroutines(_) => self.goroutines.keys().copied().collect(),
            Job::Versions(_) => self.versions.keys().copied().collect(),
            Job::Runtime(_) | Job::SearchPath(_) | Job::Calls(_) => Vec::new(),
            Job::Arguments(_) => self.arguments.keys().copied().collect(),
        }
    }

    /// A question without an answer.
    pub(super) fn refuse(&mut self, refused: Unanswered) {
        if self.unanswered.contains(&refused) {
            return;
        }
        if self.unanswered.len() < MAX_UNANSWERED {
            self.unanswered.push(refused);
        } else {
            self.unanswered_more += 1;
        }
    }

    /// A second child looks at everybody again who was not told of to the end; what the first one found out stays.
    fn process(&mut self, mut fact: ProcessFact) {
        if let Some(old) = self.before.remove(&fact.pid).filter(|old| old.is_same_process(&fact)) {
            if fact.parked.is_empty() {
                (fact.parked, fact.stopped) = (old.parked, old.stopped);
            }
            fact.command = fact.command.or(old.command);
            fact.freezer = fact.freezer.or(old.freezer);
            fact.container = fact.container.or(old.container);
            fact.cpu_group = fact.cpu_group.or(old.cpu_group);
            fact.task_limit = fact.task_limit.or(old.task_limit);
            fact.disk = fact.disk.or(old.disk);
        }
        self.processes.insert(fact.pid, fact);
    }

    /// The goroutines of a process that were read in this round.
    pub(super) fn goroutines_of(&self, pid: u32) -> Option<&GoroutinesFact> {
        self.goroutines.get(&pid)
    }

    /// The runtime's own names go before those of bundles.
    fn names(&mut self) {
        let Some(says) = &self.says else { return };
        let named: BTreeMap<&str, &ContainerFact> =
            says.containers.iter().map(|said| (said.container.id.as_str(), &said.container)).collect();
        let of_processes = self.processes.values_mut().filter_map(|fact| fact.container.as_mut());
        let of_processes =
            of_processes.chain(self.unkillable.values_mut().filter_map(|found| found.container.as_mut()));
        let mut listed = BTreeSet::new();
        for container in &mut self.containers {
            listed.insert(container.id.clone());
            if let Some(name) = named.get(container.id.as_str()) {
                *container = (*name).clone();
            }
        }
        for container in of_processes {
            if let Some(name) = named.get(container.id.as_str()) {
                *container = (*name).clone();
            }
        }
        let room = MAX_CONTAINERS.saturating_sub(self.containers.len());
        let more = named.into_values().filter(|container| !listed.contains(&container.id));
        self.containers.extend(more.take(room).cloned());
        self.containers.sort_by(|a, b| a.id.cmp(&b.id));
    }

    /// The facts of the round, in order: processes, goroutines, the round itself.
    pub(super) fn facts(mut self, began_ns: u64, ended_ns: u64) -> Vec<Fact> {
        if self.unanswered_more > 0 {
            let what = format!("{} more questions", self.unanswered_more);
            let why = "only the first of them are listed".to_owned();
            self.unanswered.push(Unanswered { pid: 0, comm: String::new(), what, why });
        }
        self.names();
        let unfinished = self.processes.keys().filter(|pid| !self.finished.contains(pid)).count();
        let round = CensusFact {
            began_ns,
            ended_ns,
            processes: u32::try_from(self.processes.len()).unwrap_or(u32::MAX),
            cut: self.cut,
            unanswered: self.unanswered,
            left_out: u32::try_from(unfinished).unwrap_or(u32::MAX).saturating_add(self.left_out),
            containers: self.containers,
            pressure: self.pressure,
            unwritten: self.unwritten,
            versions: self.versions.into_values().flatten().collect(),
            says: self.says,
            ended: self.ended,
            unkillable: self.unkillable.into_values().take(MAX_UNKILLABLE).collect(),
            answerers: self.answerers,
            scarce: self.scarce,
            plugins: self.plugins,
            seccomp: self.seccomp,
            downloads: self.downloads.into_values().collect(),
            kubelet_connections: self.kubelet_connections.into_values().collect(),
        };
        let processes = self.processes.into_values().map(Fact::Process);
        let goroutines = self.goroutines.into_values().map(Fact::Goroutines);
        processes.chain(goroutines).chain([Fact::Census(round)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Command, Component, ParkedThreads, RuntimeState};

    fn process(pid: u32, started_ns: u64) -> ProcessFact {
        ProcessFact {
            at_ns: 1,
            pid,
            parent: 1,
            started_ns: Some(started_ns),
            component: Component::Shim,
            comm: "shim".into(),
            command: None,
            state: 'S',
            threads: 1,
            stopped: 0,
            freezer: None,
            parked: Vec::new(),
            sockets: Vec::new(),
            pipes: Vec::new(),
            container: None,
            by_hand: None,
            detached: false,
            cpu_group: None,
            task_limit: None,
            disk: None,
        }
    }

    fn merge(answers: Vec<Answer>) -> Vec<Fact> {
        let mut merged = Merged::default();
        answers.into_iter().for_each(|answer| merged.take(answer));
        merged.facts(5, 9)
    }

    fn threads(pid: u32) -> Answer {
        let park = ParkedThreads {
            threads: 1,
            tid: pid,
            state: 'S',
            syscall: None,
            kernel_stack: Vec::new(),
            user_function: None,
        };
        Answer::Threads { pid, threads: 1, stopped: 0, parked: vec![park] }
    }

    /// A child that was killed leaves what it told; the next one adds to it, unless the number has a new owner.
    #[test]
    fn two_children() {
        let command = Answer::Command { pid: 7, command: Command::Other { program: "x".into() } };
        let found = || Answer::Found { left_out: 1 };
        let first = |pid| Answer::Process(Box::new(process(pid, 100)));
        // The ninth has ended before the second child came.
        let told = [found(), first(7), first(8), first(9), threads(7)];
        let facts = merge([&told[..], &[found(), first(7), first(8), command.clone()]].concat());
        let [Fact::Process(seven), Fact::Process(_), Fact::Census(round)] = facts.as_slice() else {
            panic!("{facts:?}")
        };
        assert_eq!((seven.parked.len(), seven.command.is_some()), (1, true));
        // Nobody was told to its end, and one was too many from the start.
        assert_eq!((round.processes, round.left_out, round.began_ns, round.ended_ns), (2, 3, 5, 9));
        let reused = Answer::Process(Box::new(process(7, 20_000_000)));
        let facts = merge(vec![found(), first(7), threads(7), command, found(), reused]);
        let Fact::Process(seven) = &facts[0] else { panic!("{facts:?}") };
        assert_eq!((seven.parked.len(), seven.command.is_some()), (0, false));
    }

    /// The runtime's names go before those of bundles, and it knows containers that no bundle tells of.
    #[test]
    fn names_of_the_runtime() {
        let container = |id: &str, source: &str| ContainerFact {
            id: id.to_owned(),
            source: source.to_owned(),
            ..ContainerFact::default()
        };
        let state = |id: &str| RuntimeState {
            container: ContainerFact { pod: Some("p".into()), ..container(id, "cri") },
            state: "running".into(),
            runs: true,
        };
        let of = ProcessFact { container: Some(container("c1", "bundle")), ..process(7, 1) };
        let facts = merge(vec![
            Answer::Found { left_out: 0 },
            Answer::Process(Box::new(of)),
            Answer::Finished { pid: 7 },
            Answer::Containers {
                containers: vec![container("c1", "bundle"), container("c3", "bundle")],
                ended: vec![],
            },
            Answer::Runtime(RuntimeSays {
                containers: vec![state("c2"), state("c1")],
                ..RuntimeSays::default()
            }),
        ]);
        let [Fact::Process(seven), Fact::Census(round)] = facts.as_slice() else { panic!("{facts:?}") };
        assert_eq!(seven.container.as_ref().unwrap().source, "cri");
        let told: Vec<(&str, &str)> =
            round.containers.iter().map(|one| (one.id.as_str(), one.source.as_str())).collect();
        assert_eq!(told, [("c1", "cri"), ("c2", "cri"), ("c3", "bundle")]);
    }

    /// Who ended in between is no fact, and nothing is missing.
    #[test]
    fn gone() {
        let facts = merge(vec![
            Answer::Found { left_out: 0 },
            Answer::Process(Box::new(process(7, 1))),
            Answer::Gone { pid: 7 },
            threads(7),
            Answer::Done,
        ]);
        let [Fact::Census(round)] = facts.as_slice() else { panic!("{facts:?}") };
        assert_eq!((round.processes, round.left_out), (0, 0));
    }

    /// The list of refusals is bounded, says so, and has nobody twice.
    #[test]
    fn refusals() {
        let refused =
            |pid| Answer::Refused(Unanswered { pid, comm: "x".into(), what: "y".into(), why: "z".into() });
        let facts = merge((0..300).chain(0..10).map(refused).collect());
        let Some(Fact::Census(round)) = facts.last() else { panic!() };
        assert_eq!(round.unanswered.len(), MAX_UNANSWERED + 1);
        assert_eq!(round.unanswered[MAX_UNANSWERED].what, "44 more questions");
    }
}
