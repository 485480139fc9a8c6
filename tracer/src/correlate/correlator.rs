//! [`Correlator`]: takes events and holds what waits; `view` makes snapshots of it.

use std::{collections::VecDeque, mem::take, sync::Arc};

use plegtrace_common::site::MAX_HOOKS;

use super::{
    abandoned,
    ageing::Ageing,
    bus::BusState,
    carriers::Carriers,
    census::CensusState,
    clients::Clients,
    finished::Taken,
    growth::Growth,
    inflight::{Goroutine, Open},
    limits::{Drops, Limits},
    messages::MessageState,
    node::NodeState,
    other_clients::OtherClients,
    outcomes::Outcomes,
    own::OwnCalls,
    parks::Parks,
    pauses::Pauses,
    phases::Phases,
    processes::Follower,
    relist::Relists,
    requests::Requests,
    rows::{Rows, Side},
    snapshot::{ListOutcome, Tally},
    time::TimeTable,
    weights::Memory,
};
use crate::{
    decode::{Call, Event, MonoNs, Step},
    input::{Fact, HookFact, InFlight, Layer},
};

/// All waiting state between events and trees.
#[derive(Debug)]
pub struct Correlator {
    pub(super) limits: Limits,
    pub(super) node: NodeState,
    pub(super) open: Open,
    pub(super) census: CensusState,
    pub(super) own: OwnCalls,
    pub(super) clients: Clients,
    pub(super) relists: Relists,
    /// Where the time of relists went that are complete.
    pub(super) relist_time: TimeTable,
    pub(super) requests: Requests,
    pub(super) parks: Parks,
    /// Finished handlers, as they came.
    pub(super) handlers: VecDeque<Call>,
    pub(super) rows: Rows,
    pub(super) outcomes: Outcomes,
    pub(super) processes: Follower,
    pub(super) phases: Phases,
    pub(super) messages: MessageState,
    pub(super) requests_on_wire: MessageState,
    pub(super) docker: MessageState,
    pub(super) other_clients: OtherClients,
    /// Of these, those that were answered.
    pub(super) carriers: Carriers,
    pub(super) bus: BusState,
    /// Records per hook.
    pub(super) records: Vec<u64>,
    /// Latest end of a call.
    pub(super) newest: MonoNs,
    /// Process and start of the last relist that got its list, among those no longer kept.
    pub(super) forgotten_list: Option<(u32, MonoNs)>,
    pub(super) tally: Tally,
    pub(super) drops: Drops,
    pub(super) growth: Growth,
    pub(super) pauses: Pauses,
    pub(super) taken: Taken,
    pub(super) ageing: Ageing,
    pub(super) memory: Memory,
}

impl Default for Correlator {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Correlator {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            node: NodeState::default(),
            open: Open::new(),
            census: CensusState::default(),
            own: OwnCalls::default(),
            clients: Clients::default(),
            relists: Relists::default(),
            relist_time: TimeTable::default(),
            requests: Requests::default(),
            parks: Parks::default(),
            handlers: VecDeque::new(),
            rows: Rows::default(),
            outcomes: Outcomes::default(),
            processes: Follower::new(),
            phases: Phases::default(),
            messages: MessageState::default(),
            requests_on_wire: MessageState::default(),
            docker: MessageState::default(),
            other_clients: OtherClients::default(),
            carriers: Carriers::default(),
            bus: BusState::default(),
            records: vec![0; MAX_HOOKS as usize],
            newest: MonoNs::default(),
            forgotten_list: None,
            tally: Tally::default(),
            drops: Drops::default(),
            growth: Growth::default(),
            pauses: Pauses::default(),
            taken: Taken::default(),
            ageing: Ageing::default(),
            memory: Memory::default(),
        }
    }

    /// Takes one event.
    pub fn push(&mut self, event: Event) {
        self.tally.events += 1;
        match event {
            Event::Call(call) => self.call(call),
            Event::Park(park) => {
                self.tally.parks += 1;
                self.parks.park(&park, &self.limits);
                self.requests.park();
                self.keep_slow_requests_if_due();
            }
            Event::Process(process) => {
                self.tally.processes += 1;
                self.pauses.lived(process.meta.at);
                self.node.process(&process);
                self.open.process(&process);
                self.processes.step(&process, &self.limits);
                if matches!(process.step, Step::Exit(_)) {
                    self.census.ended(process.meta.tgid, process.meta.at);
                }
                self.keep_slow_requests_if_due();
            }
            Event::Message(message) => self.messages.message(message, &self.limits),
            Event::Request(request) if request.of_other => self.other_clients.request(request, &self.limits),
            Event::Request(request) => {
                self.carriers.add(&request, self.limits.recent_calls);
                self.requests_on_wire.request(request, &self.limits);
            }
            Event::Docker(request) => self.docker.message(request.message, &self.limits),
            Event::BusCall(call) => self.bus.call(call, &self.limits),
            Event::Fact { at, fact } => {
                self.tally.facts += 1;
                self.fact(at, *fact);
            }
        }
    }

    /// Counts a record that could not be decoded.
    pub fn undecoded(&mut self) {
        self.drops.undecoded += 1;
    }

    fn fact(&mut self, at: MonoNs, fact: Fact) {
        if !self.has_room_for(&fact) {
            self.drops.heavy_facts += 1;
            return;
        }
        match fact {
            Fact::InFlight(reading) => return self.in_flight(reading),
            Fact::Messages(reading) => return self.messages.reading(reading, &self.limits),
            Fact::Requests(reading) => return self.requests_on_wire.reading(reading, &self.limits),
            Fact::Names(names) => return self.requests_on_wire.learn(names, &self.limits),
            Fact::Errors(errors) => return self.outcomes.said(errors),
            Fact::DockerRequests(reading) => return self.docker.reading(reading, &self.limits),
            Fact::OtherClients(reading) => return self.other_clients.reading(reading, &self.limits),
            Fact::BusCalls(reading) => return self.bus.reading(reading, &self.limits),
            Fact::Symbols(symbols) => return self.parks.symbols(symbols, &self.limits),
            Fact::Process(process) => return self.census.process(process, &self.limits),
            Fact::Goroutines(goroutines) => return self.census.goroutines(goroutines, &self.limits),
            Fact::Census(round) => {
                round.says.iter().for_each(|says| self.own.add(&says.calls));
                return self.census.round(round, &|pid| self.processes.ended_at(pid));
            }
            Fact::Processes(reading) => return self.processes.reading(&reading, &self.limits),
            Fact::Command(command) => return self.processes.command(command),
            Fact::TargetGone(ref gone) => self.open.exit(gone.pid, at),
            Fact::Hook(ref hook) => self.hook(hook),
            Fact::Cpu(ref reading) => self.pauses.read(reading),
            _ => {}
        }
        let counts = matches!(fact, Fact::Loss { .. });
        self.node.push(at, fact, &self.limits);
        if counts {
            self.growth.note(at, self.losses(0, 0).iter(), &self.limits);
            self.expire(at);
        }
    }

    /// Addresses in stacks of parks that have no name yet, by the index of the hook that tells the executable.
    pub fn unnamed(&self) -> impl Iterator<Item = (u32, Vec<u64>)> {
        self.parks.unnamed()
    }

    /// A hook is announced, for the first time or once more. What its index stood for before is forgotten where it is not
    /// the same.
    fn hook(&mut self, hook: &HookFact) {
        if self.node.hooks.get(&hook.index).is_some_and(|known| **known != *hook) {
            let handlers = self.handlers.iter().filter(|call| call.hook == hook.index);
            handlers.for_each(|call| self.taken.gone(call));
            self.rows.forget_hook(hook.index);
            self.parks.forget_hook(hook.index);
            self.handlers.retain(|call| call.hook != hook.index);
            self.clients.forget_hook(hook.index);
            self.relists.forget_hook(hook.index);
            self.node.counters.remove(&hook.index);
            if let Some(records) = self.records.get_mut(hook.index as usize) {
                *records = 0;
            }
        }
    }

    fn in_flight(&mut self, mut reading: InFlight) {
        self.parks.reading(&mut reading, &self.limits);
        self.phases.reading(&mut reading, &self.node, &self.limits);
        self.open.snapshot(reading, &self.limits);
        abandoned::remember(&mut self.open, &self.clients, &self.handlers, &self.node.hooks);
        for goroutine in self.open_relists().into_iter().chain(self.inside(Layer::PodRelist)) {
            self.relists.follow(goroutine);
        }
    }

    /// Goroutines that are inside a relist.
    pub(super) fn open_relists(&self) -> Vec<Goroutine> {
        self.inside(Layer::Relist)
    }

    /// Goroutines on which a call of this layer is open.
    pub(super) fn inside(&self, layer: Layer) -> Vec<Goroutine> {
        let relists = self.open.entries().filter(|entry| {
            let hook = self.node.hooks.get(&entry.fact.hook);
            entry.is_open() && hook.is_some_and(|hook| hook.layer == layer)
        });
        let mut found: Vec<Goroutine> = relists.map(|entry| (entry.fact.tgid, entry.fact.goid)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn call(&mut self, call: Call) {
        self.tally.calls += 1;
        self.pauses.lived(call.end);
        let phase = self.node.hooks.get(&call.hook).filter(|hook| hook.layer == Layer::RuncPhase);
        if let Some(hook) = phase {
            self.records[call.hook as usize] += 1;
            return self.phases.call(&call, hook, &mut self.rows, &self.limits);
        }
        self.tally.unwound += u64::from(call.unwound());
        self.tally.restarted += u64::from(call.restarted());
        self.open.call(&call);
        let Some(hook) = self.node.hooks.get(&call.hook).map(Arc::clone) else {
            self.drops.unknown_hook += 1;
            return;
        };
        self.records[call.hook as usize] += 1;
        let Some(side) = Side::of_layer(hook.layer) else {
            self.tally.marks += 1;
            return;
        };
        let bare = hook.layer == Layer::KubeletClient;
        if call.unwound() || !bare {
            self.rows.add(&call, &hook, side, self.limits.rows);
        }
        if call.unwound() {
            return;
        }
        self.outcomes.add(&call, &hook);
        self.newest = self.newest.max(call.end);
        let is_root = matches!(hook.layer, Layer::Relist | Layer::PodRelist | Layer::Handler);
        if is_root || matches!(hook.layer, Layer::KubeletCall | Layer::KubeletClient) {
            self.taken.late(&call);
            if !hook.long_lived {
                self.ageing.call(&call);
            }
        }
        match hook.layer {
            Layer::Relist => self.relist(call),
            Layer::PodRelist => self.pod_relist(call),
            Layer::Handler => self.handler(call),
            Layer::KubeletCall | Layer::KubeletClient => {
                self.client(call, hook.layer);
                self.relists.part(call, &self.limits, &mut self.drops);
            }
            _ => self.relists.part(call, &self.limits, &mut self.drops),
        }
        self.forget_relists();
    }

    fn relist(&mut self, call: Call) {
        self.relists.relist(call, &self.limits, &mut self.drops);
        self.spend_relists();
    }

    fn pod_relist(&mut self, call: Call) {
        self.relists.pod_relist(call, &self.limits);
        if self.relists.pods_are_full(&self.limits) {
            self.keep_slow_requests(self.newest);
            for gone in self.relists.evict_pods() {
                self.taken.gone(&gone.call);
            }
        }
    }

    fn handler(&mut self, call: Call) {
        self.handlers.push_back(call);
        self.requests.call();
        self.keep_slow_requests_if_due();
        if self.handlers.len() > self.limits.recent_calls
            && let Some(gone) = self.handlers.pop_front()
        {
            self.requests.forgotten.add(&gone);
            self.taken.gone(&gone);
        }
    }

    fn client(&mut self, call: Call, layer: Layer) {
        self.requests.call();
        self.keep_slow_requests_if_due();
        let late = self.clients.insert(call, layer);
        self.settle_clients(self.newest, late);
    }

    /// Decides the rows of the client calls for which no partner can come any more, and of one that came `late`.
    pub(super) fn settle_clients(&mut self, now: MonoNs, late: Option<Call>) {
        let mut bare: Vec<Call> = late.into_iter().collect();
        let taken = &mut self.taken;
        self.clients.settle(
            now.minus(self.limits.reorder_ns),
            self.limits.recent_calls,
            |call| bare.push(*call),
            |gone| taken.gone(gone),
        );
        for call in bare {
            if self.inside_open_call(&call) {
                self.clients.covered += 1;
            } else if let Some(hook) = self.node.hooks.get(&call.hook) {
                self.rows.add(&call, hook, Side::Bare, self.limits.rows);
            }
        }
    }

    /// Does a bare client call lie in a counted call that is still open?
    pub(super) fn inside_open_call(&self, call: &Call) -> bool {
        self.open.on((call.tgid, call.goid)).any(|entry| {
            let hook = self.node.hooks.get(&entry.fact.hook);
            hook.is_some_and(|hook| hook.layer == Layer::KubeletCall) && entry.start() <= call.start
        })
    }

    /// Keeps of relists that made room when the last list was.
    fn forget_relists(&mut self) {
        let evicted = take(&mut self.relists.evicted);
        self.spend(&evicted);
        for done in evicted {
            self.taken.gone(&done.call);
            let relist = self.finished_relist(&done.call, &done.parts, self.newest);
            if relist.is_some_and(|relist| relist.list == ListOutcome::Ok) {
                let last = (done.call.tgid, done.call.start);
                self.forgotten_list = self.forgotten_list.into_iter().chain([last]).max_by_key(|(_, at)| *at);
            }
        }
    }
}
