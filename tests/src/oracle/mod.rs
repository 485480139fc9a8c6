//! [`Oracle`]: what a stream says by itself, read record by record, and what of a verdict contradicts it. It keeps facts that nobody can
//! argue about, and shares nothing with those who judge: neither their state, nor their thresholds, nor their rules.

mod claims;

use std::collections::{BTreeMap, BTreeSet};

use plegtrace::{
    decode::{CallResult, Event, Process, Step, decode},
    input::{
        Armed, CensusFact, Command, Component, Fact, Frame, HookFact, InFlight, Layer, ProcessFact,
        ProcessesFact, RefusedFact, RuntimeCondition,
    },
};
use plegtrace_common::role::Role;

/// What the records so far say.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    hooks: BTreeMap<u32, HookFact>,
    armed: Option<Armed>,
    refused: Vec<RefusedFact>,
    /// Kubelet, runtimes and shims that have not gone.
    targets: BTreeMap<u32, Component>,
    /// Ends of calls of the kubelet, and of handlers, by method: moment and result.
    calls: BTreeMap<(Layer, String), Vec<(u64, CallResult)>>,
    /// The errors of each method in the runtime's words, and when they were written.
    words: BTreeMap<String, Vec<(u64, String)>>,
    /// Processes in which a relist has ended.
    relists: BTreeSet<u32>,
    /// The open calls, as they were read last.
    open: Option<InFlight>,
    /// The last answer to `Status`.
    conditions: Vec<RuntimeCondition>,
    /// Programs that run, by process: since when, and as what they were started.
    children: BTreeMap<u32, (u64, Command)>,
    /// Processes of the round that is being told, and of the last whole one.
    coming: BTreeMap<u32, ProcessFact>,
    found: BTreeMap<u32, ProcessFact>,
    /// Processes that a person has started.
    by_hand: BTreeSet<u32>,
    /// First processes of containers.
    workloads: BTreeSet<u32>,
    /// Every process that a record is of, or that a fact names.
    named: BTreeSet<u32>,
    sees_programs: bool,
    sees_requests: bool,
    sees_bus: bool,
}

impl Oracle {
    /// Reads a record. One that cannot be decoded says nothing.
    pub fn read(&mut self, frame: &Frame) {
        match decode(frame) {
            Ok(Event::Fact { fact, .. }) => self.fact(*fact),
            Ok(Event::Call(call)) => {
                self.named.insert(call.tgid);
                let Some(hook) = self.hooks.get(&call.hook).filter(|_| !call.unwound()) else { return };
                match hook.layer {
                    Layer::Relist => drop(self.relists.insert(call.tgid)),
                    Layer::KubeletCall | Layer::Handler if !hook.long_lived => {
                        let ends = self.calls.entry((hook.layer, hook.operation.clone())).or_default();
                        ends.push((call.end.0, call.result()));
                    }
                    _ => {}
                }
            }
            Ok(Event::Process(process)) => self.process(&process),
            Ok(Event::Request(_)) => self.sees_requests = true,
            _ => {}
        }
    }

    fn process(&mut self, process: &Process) {
        let (pid, at) = (process.meta.tgid, process.meta.at.0);
        self.named.insert(pid);
        self.sees_programs = true;
        if process.step == Step::Exec && process.role == Role::Workload {
            self.workloads.insert(pid);
        }
        let is_over = match process.step {
            Step::Fork => false,
            Step::Exec | Step::Exit(_) => self.children.get(&pid).is_some_and(|(since, _)| *since < at),
        };
        if is_over {
            self.children.remove(&pid);
        }
        if matches!(process.step, Step::Exit(_)) {
            self.targets.remove(&pid);
            self.workloads.remove(&pid);
            self.by_hand.remove(&pid);
        }
    }

    fn fact(&mut self, fact: Fact) {
        self.name(&fact);
        match fact {
            Fact::Hook(hook) => drop(self.hooks.insert(hook.index, hook)),
            Fact::Armed(armed) => self.armed = Some(armed),
            Fact::Refused(refused) => self.refused.push(refused),
            Fact::Admitted(admitted) => self.refused.retain(|refused| *refused != admitted),
            Fact::Target(target) => drop(self.targets.insert(target.pid, target.component)),
            Fact::TargetGone(gone) => drop(self.targets.remove(&gone.pid)),
            Fact::InFlight(open) => self.open = Some(open),
            Fact::Command(command) => {
                self.children.insert(command.pid, (command.since_ns, command.command));
            }
            Fact::Processes(reading) => self.programs(&reading),
            Fact::Process(process) => drop(self.coming.insert(process.pid, process)),
            Fact::Census(round) => self.round(round),
            Fact::BusCalls(reading) => self.sees_bus = reading.complete,
            Fact::Errors(fact) => {
                for one in fact.errors {
                    self.words.entry(one.method).or_default().push((one.at_ns, one.words));
                }
            }
            _ => {}
        }
    }

    fn programs(&mut self, reading: &ProcessesFact) {
        self.sees_programs = true;
        let runs = |pid: u32, since: u64| {
            reading.processes.iter().any(|entry| entry.pid == pid && entry.since_ns == since)
        };
        let is_whole = reading.complete;
        self.children.retain(|pid, (since, _)| runs(*pid, *since) || !is_whole || *since >= reading.at_ns);
        let workload = |entry: &&plegtrace::input::WatchedFact| Role::from_u32(entry.role) == Role::Workload;
        self.workloads.extend(reading.processes.iter().filter(workload).map(|entry| entry.pid));
    }

    fn round(&mut self, round: CensusFact) {
        if let Some(says) = round.says.filter(|says| !says.conditions.is_empty()) {
            self.conditions = says.conditions;
        }
        let told = std::mem::take(&mut self.coming);
        if round.cut {
            return;
        }
        let by_hand = |process: &&ProcessFact| process.by_hand.is_some();
        self.by_hand = told.values().filter(by_hand).map(|process| process.pid).collect();
        self.found = told;
    }

    /// Takes the processes that a fact names: whatever it calls them, a number is one.
    fn name(&mut self, fact: &Fact) {
        if matches!(fact, Fact::Counters { .. } | Fact::Hook(_) | Fact::Symbols(_) | Fact::Loss { .. }) {
            return;
        }
        let mut rest = vec![serde_json::to_value(fact).expect("a fact is a document")];
        while let Some(value) = rest.pop() {
            match value {
                serde_json::Value::Array(all) => rest.extend(all),
                serde_json::Value::Object(all) => rest.extend(all.into_iter().map(|(_, value)| value)),
                serde_json::Value::Number(number) => {
                    self.named.extend(number.as_u64().and_then(|number| u32::try_from(number).ok()));
                }
                _ => {}
            }
        }
    }
}
