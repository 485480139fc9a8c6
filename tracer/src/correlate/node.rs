//! [`NodeState`]: the facts about the node, each in its latest version.

use std::{collections::BTreeMap, sync::Arc};

use plegtrace_common::site::MAX_HOOKS;

use super::{
    cpu::CpuState,
    limits::Limits,
    quiet::Quiet,
    traced::{TracedProcess, TracedState},
};
use crate::{
    decode::{MonoNs, Process, Step},
    input::{
        Armed, Component, Cost, Fact, HookCounters, HookFact, Layer, ListeningFact, LossCount, Presence,
        RefusedFact, Start, Stop, TargetFact, TargetGone, Weight,
    },
};

/// What user space has told about the node so far.
#[derive(Debug, Default)]
pub(super) struct NodeState {
    pub(super) start: Start,
    pub(super) began: Option<MonoNs>,
    pub(super) targets: BTreeMap<u32, TracedProcess>,
    pub(super) presences: Vec<Presence>,
    /// Where somebody listens.
    pub(super) listening: Option<ListeningFact>,
    pub(super) hooks: BTreeMap<u32, Arc<HookFact>>,
    pub(super) refused: Vec<RefusedFact>,
    pub(super) armed: Option<Armed>,
    pub(super) armed_at: Option<MonoNs>,
    /// From when on relists are seen, by probes that are on now, and by which hooks.
    pub(super) relists_since: Option<MonoNs>,
    /// Since when a kubelet is known that came while relists were seen: what was seen before is of another one.
    pub(super) successor_since: Option<MonoNs>,
    pub(super) relists_on: Vec<u32>,
    pub(super) quiet: Quiet,
    pub(super) counters: BTreeMap<u32, HookCounters>,
    pub(super) losses: BTreeMap<(String, String), LossCount>,
    pub(super) cost: Option<Cost>,
    pub(super) cpu: CpuState,
    pub(super) stop: Option<Stop>,
    pub(super) dropped: u64,
}

impl NodeState {
    /// Takes a fact; in-flight facts and commands are not its business.
    pub(super) fn push(&mut self, at: MonoNs, fact: Fact, limits: &Limits) {
        self.began.get_or_insert(at);
        match fact {
            Fact::Start(start) => self.start = start,
            Fact::Target(target) => self.target(at, target, limits),
            Fact::Presence(presence) => {
                if !self.presences.contains(&presence) {
                    self.dropped += push_bounded(&mut self.presences, presence, limits.facts);
                }
            }
            Fact::Listening(listening) => self.listening = Some(listening),
            Fact::Hook(hook) if hook.index < MAX_HOOKS => {
                if hook.layer == Layer::Relist {
                    // It may stand for another program now.
                    self.relists_on.clear();
                }
                self.hooks.insert(hook.index, Arc::new(hook));
                self.probes_changed(at);
            }
            Fact::Hook(_) => self.dropped += 1,
            Fact::Refused(refused) => {
                if !self.refused.contains(&refused) {
                    self.dropped += push_bounded(&mut self.refused, refused, limits.facts);
                }
                self.probes_changed(at);
            }
            Fact::Admitted(admitted) => {
                self.refused.retain(|refused| *refused != admitted);
                self.probes_changed(at);
            }
            Fact::Armed(mut armed) => {
                if let Some(hooks) = &mut armed.hooks {
                    hooks.retain(|hook| *hook < MAX_HOOKS);
                    hooks.sort_unstable();
                    hooks.dedup();
                }
                self.armed_at.get_or_insert(at);
                self.armed = Some(armed);
                self.probes_changed(at);
            }
            Fact::Counters { hooks } => {
                let known = hooks.into_iter().filter(|counters| counters.hook < MAX_HOOKS);
                self.counters.extend(known.map(|counters| (counters.hook, counters)));
                self.relists_counted(at);
            }
            Fact::Loss { counts } => counts.into_iter().for_each(|count| self.loss(count, limits)),
            Fact::Cost(cost) => self.cost = Some(cost),
            Fact::Cpu(fact) => self.cpu.push(fact),
            Fact::TargetGone(TargetGone { pid, how, .. }) => self.gone(at, pid, how),
            Fact::Stop(stop) => self.stop = Some(stop),
            Fact::InFlight(_)
            | Fact::Messages(_)
            | Fact::Requests(_)
            | Fact::Names(_)
            | Fact::Errors(_)
            | Fact::BusCalls(_)
            | Fact::DockerRequests(_)
            | Fact::OtherClients(_)
            | Fact::Symbols(_)
            | Fact::Processes(_)
            | Fact::Command(_)
            | Fact::Process(_)
            | Fact::Goroutines(_)
            | Fact::Census(_) => {}
        }
    }

    /// A watched process that ended is gone even before user space says so.
    pub(super) fn process(&mut self, process: &Process) {
        if let Step::Exit(status) = process.step {
            let how = match (status & 0x7f, status >> 8) {
                (0, code) => format!("exited with code {code}"),
                (signal, _) => format!("killed by signal {signal}"),
            };
            self.exited(process.meta.at, process.meta.tgid, how);
        }
    }

    /// Forgets targets that went before `until`, and says which; the last of a component that has no living one stays: it
    /// tells how that went.
    pub(super) fn forget_gone(&mut self, until: MonoNs) -> Vec<u32> {
        let gone_at = |target: &TracedProcess| match target.state {
            TracedState::Gone { at, .. } => Some(at),
            TracedState::Live => None,
        };
        let has_younger = |target: &TracedProcess, at: MonoNs| {
            self.targets.values().any(|other| {
                other.fact.component == target.fact.component && gone_at(other).is_none_or(|other| other > at)
            })
        };
        let old = self
            .targets
            .values()
            .filter(|target| gone_at(target).is_some_and(|at| at < until && has_younger(target, at)));
        let old: Vec<u32> = old.map(|target| target.fact.pid).collect();
        self.targets.retain(|pid, _| !old.contains(pid));
        old
    }

    /// Does this process count when it comes to relists? Where a kubelet runs, no other one does.
    pub(super) fn is_kubelet_of_now(&self, pid: u32) -> bool {
        let kubelets = self.targets.values().filter(|target| {
            target.fact.component == Component::Kubelet && target.state == TracedState::Live
        });
        let mut live = kubelets.map(|target| target.fact.pid).peekable();
        live.peek().is_none() || live.any(|known| known == pid)
    }

    fn target(&mut self, at: MonoNs, fact: TargetFact, limits: &Limits) {
        let known = self.targets.get(&fact.pid).is_some_and(|target| target.state == TracedState::Live);
        if fact.component == Component::Kubelet && !known && self.relists_since.is_some() {
            self.successor_since = Some(at);
        }
        if self.targets.len() >= limits.facts && !self.targets.contains_key(&fact.pid) {
            let gone = self.targets.values().find(|target| target.state != TracedState::Live);
            let Some(gone) = gone.map(|target| target.fact.pid) else {
                self.dropped += 1;
                return;
            };
            self.targets.remove(&gone);
        }
        self.targets.insert(fact.pid, TracedProcess { fact, seen: at, state: TracedState::Live });
    }

    /// User space does not find it any more. What the kernel told of its end stays: it knows how.
    fn gone(&mut self, at: MonoNs, pid: u32, how: String) {
        if let Some(target) = self.targets.get_mut(&pid).filter(|target| target.state == TracedState::Live) {
            target.state = TracedState::Gone { at, how };
        }
    }

    /// Is this process one of the node's that runs?
    pub(super) fn is_live(&self, pid: u32) -> bool {
        self.targets.get(&pid).is_some_and(|target| target.state == TracedState::Live)
    }

    /// A process ended; an old record is about another one with its number.
    fn exited(&mut self, at: MonoNs, pid: u32, how: String) {
        if self.targets.get(&pid).is_some_and(|target| target.seen <= at) {
            self.gone(at, pid, how);
        }
    }

    fn loss(&mut self, count: LossCount, limits: &Limits) {
        let key = (count.stage.clone(), count.reason.clone());
        if self.losses.len() < limits.facts || self.losses.contains_key(&key) {
            self.losses.insert(key, count);
        } else {
            self.dropped += 1;
        }
    }

    /// What the facts that are kept take, bytes.
    pub(super) fn bytes(&self) -> usize {
        let hooks = self.hooks.values().map(|hook| Weight::of(&**hook).bytes).sum::<usize>();
        let targets = self.targets.values().map(|target| match &target.state {
            TracedState::Live => Weight::of(&target.fact).bytes,
            TracedState::Gone { how, .. } => Weight::of(&target.fact).bytes + how.len(),
        });
        let lists = Weight::sum(&self.presences)
            + Weight::sum(&self.refused)
            + Weight::sum(&self.armed)
            + Weight::sum(self.counters.values());
        // When each loss grew last is kept by its name.
        lists + hooks + targets.sum::<usize>() + 2 * Weight::sum(self.losses.values()) + self.cpu.bytes()
    }

    /// Does a kubelet hook see the client side of this operation?
    pub(super) fn sees_client_of(&self, operation: &str) -> bool {
        let client = |layer| matches!(layer, Layer::KubeletCall | Layer::KubeletClient);
        self.hooks.values().any(|hook| client(hook.layer) && hook.operation == operation)
    }

    /// The moment from which calls are seen.
    pub(super) fn observing_since(&self) -> Option<MonoNs> {
        self.armed_at
    }
}

/// 1 when there was no room.
fn push_bounded<T>(list: &mut Vec<T>, item: T, bound: usize) -> u64 {
    if list.len() >= bound {
        return 1;
    }
    list.push(item);
    0
}
