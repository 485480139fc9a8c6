//! [`Correlator::preamble`]: what the stream says once, said again. Put before the records of a window, it makes them a
//! stream of its own, which is reported as if the observation had begun with the window.
//!
//! Ages that rest on two looks of the census begin anew: the window is the first that such a report knows of. Of a call
//! that was open when the window began, what had already ended inside it is not in the window.

use std::collections::BTreeMap;

use super::{correlator::Correlator, inflight::OpenEntry, traced::TracedState};
use crate::{
    decode::MonoNs,
    input::{Fact, InFlight, OpenCallFact, SymbolFact, SymbolsFact, TargetGone},
};

impl Correlator {
    /// All that a stream which begins at `now` must know of what was before, in the order in which it must be told, each
    /// with the moment that it is of. `now` is not before the last event.
    ///
    /// Bounded as this state is; it does not grow with the number of records that were pushed.
    #[must_use]
    pub fn preamble(&self, now: MonoNs) -> Vec<(MonoNs, Fact)> {
        let mut told = vec![(now, Fact::Start(self.node.start.clone()))];
        self.tell_node(now, &mut told);
        self.tell_symbols(now, &mut told);
        self.tell_sums(now, &mut told);
        if let Some(reading) = self.processes.retold() {
            told.push((MonoNs(reading.at_ns), Fact::Processes(reading)));
        }
        if let Some(reading) = self.last_reading() {
            told.push((MonoNs(reading.at_ns), Fact::InFlight(reading)));
        }
        if let Some(reading) = self.messages.retold() {
            told.push((MonoNs(reading.at_ns), Fact::Messages(reading)));
        }
        if let Some(names) = self.requests_on_wire.learnt() {
            told.push((now, Fact::Names(names)));
        }
        if let Some(reading) = self.requests_on_wire.retold() {
            told.push((MonoNs(reading.at_ns), Fact::Requests(reading)));
        }
        if let Some(reading) = self.docker.retold() {
            told.push((MonoNs(reading.at_ns), Fact::DockerRequests(reading)));
        }
        if let Some(reading) = self.other_clients.retold() {
            told.push((MonoNs(reading.requests.at_ns), Fact::OtherClients(reading)));
        }
        if let Some(reading) = self.bus.retold() {
            told.push((MonoNs(reading.at_ns), Fact::BusCalls(reading)));
        }
        self.census.retell(&mut |at, fact| told.push((at, fact)));
        told.extend(self.node.stop.map(|stop| (now, Fact::Stop(stop))));
        told
    }

    /// Who is there, and what is probed. Probes count from `now` on: the window knows nothing of the time before.
    fn tell_node(&self, now: MonoNs, told: &mut Vec<(MonoNs, Fact)>) {
        let node = &self.node;
        told.extend(node.presences.iter().map(|presence| (now, Fact::Presence(presence.clone()))));
        let listening = node.listening.iter();
        told.extend(listening.map(|fact| (now, Fact::Listening(fact.clone()))));
        for target in node.targets.values() {
            let fact = &target.fact;
            told.push((target.seen, Fact::Target(fact.clone())));
            if let TracedState::Gone { at, how } = &target.state {
                let gone = TargetGone { component: fact.component, pid: fact.pid, how: how.clone() };
                told.push((*at, Fact::TargetGone(gone)));
            }
        }
        told.extend(node.hooks.values().map(|hook| (now, Fact::Hook((**hook).clone()))));
        told.extend(node.refused.iter().map(|refused| (now, Fact::Refused(refused.clone()))));
        told.extend(node.armed.iter().map(|armed| (now, Fact::Armed(armed.clone()))));
    }

    fn tell_symbols(&self, now: MonoNs, told: &mut Vec<(MonoNs, Fact)>) {
        let mut names: BTreeMap<u32, Vec<SymbolFact>> = BTreeMap::new();
        for (hook, offset, name) in self.parks.names() {
            names.entry(hook).or_default().push(SymbolFact { offset, name: name.to_owned() });
        }
        for (hook, mut names) in names {
            names.sort_by_key(|symbol| symbol.offset);
            told.push((now, Fact::Symbols(SymbolsFact { hook, names })));
        }
    }

    /// Sums since the start. A loss is told with the moment at which it last grew: it is none of the window's.
    fn tell_sums(&self, now: MonoNs, told: &mut Vec<(MonoNs, Fact)>) {
        let node = &self.node;
        for loss in node.losses.values() {
            told.push((self.growth.last(loss, now), Fact::Loss { counts: vec![loss.clone()] }));
        }
        if !node.counters.is_empty() {
            told.push((now, Fact::Counters { hooks: node.counters.values().cloned().collect() }));
        }
        told.extend(node.cost.map(|cost| (now, Fact::Cost(cost))));
        told.extend(node.cpu.readings().map(|fact| (MonoNs(fact.at_ns), Fact::Cpu(fact.clone()))));
    }

    /// The last reading of what is open, without what has ended since.
    fn last_reading(&self) -> Option<InFlight> {
        let at = self.open.read_at?;
        let calls = self.open.entries().filter(|entry| entry.is_open()).map(|entry: &OpenEntry| &entry.fact);
        let mut calls: Vec<OpenCallFact> = calls.chain(self.phases.open()).cloned().collect();
        calls.sort_by_key(|call| (call.start_ns, call.tgid, call.goid, call.hook, call.depth));
        let mut parkers: Vec<_> = self.parks.parkers().cloned().collect();
        parkers.sort_by_key(|parker| (parker.tgid, parker.goid));
        Some(InFlight { at_ns: at.0, calls, complete: self.open.complete, parkers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{correlate::Limits, decode::Event, input::LossCount};

    fn lost(at: u64, count: u64) -> Event {
        let (stage, reason) = ("kernel".to_owned(), "ring_full".to_owned());
        let loss = LossCount { stage, reason, sentence: String::new(), count, is_loss: true };
        Event::Fact { at: MonoNs(at), fact: Box::new(Fact::Loss { counts: vec![loss] }) }
    }

    /// What was lost before the window is told, and is no loss of the window; what is lost in it is.
    #[test]
    fn losses_stay_where_they_were() {
        let mut whole = Correlator::new(Limits::default());
        whole.push(lost(10, 3));
        whole.push(lost(50, 3));
        let mut window = Correlator::new(Limits::default());
        for (at, fact) in whole.preamble(MonoNs(60)) {
            window.push(Event::Fact { at, fact: Box::new(fact) });
        }
        let of_window = |window: &Correlator| {
            let snapshot = window.snapshot(MonoNs(200));
            (snapshot.losses[0].count, snapshot.lost_at[0])
        };
        window.push(lost(110, 3));
        assert_eq!(of_window(&window), (3, MonoNs(10)));
        window.push(lost(120, 4));
        assert_eq!(of_window(&window), (4, MonoNs(120)));
    }
}
