//! [`Open`]: the calls open now: the last snapshot of the kernel's map, minus all that is known to have ended.
//!
//! The map is read first, then the ring buffer is drained, so the record of a call that ended in between arrives before
//! or after the snapshot that still shows it; both orders drop it.

use std::collections::HashMap;

use plegtrace_common::key;

use super::{frontier::Frontier, generations::Generations, limits::Limits, snapshot::ClosedUnseen};
use crate::{
    decode::{Call, CallId, MonoNs, Process, Step},
    input::{InFlight, Liveness, OpenCallFact},
};

/// Finished calls remembered to recognise them in a later snapshot.
const ENDED: usize = 16_384;
/// Goroutines and processes remembered.
const GOROUTINES: usize = 8192;

/// A goroutine of a process.
pub(super) type Goroutine = (u32, u64);

/// An entry of the kernel's map that has not ended as far as records tell.
#[derive(Clone, Debug)]
pub(super) struct OpenEntry {
    pub(super) fact: OpenCallFact,
    /// Something later on its goroutine proves that it is over.
    pub(super) unwound: bool,
    /// When the last client call that it answers ended.
    pub(super) client_ended: Option<MonoNs>,
}

impl OpenEntry {
    pub(super) fn id(&self) -> CallId {
        let fact = &self.fact;
        CallId { tgid: fact.tgid, goid: fact.goid, hook: fact.hook, start: MonoNs(fact.start_ns) }
    }

    pub(super) fn start(&self) -> MonoNs {
        MonoNs(self.fact.start_ns)
    }

    pub(super) fn stream(&self) -> Option<u32> {
        key::stream(self.fact.stream)
    }

    /// Still a call, as far as can be known.
    pub(super) fn is_open(&self) -> bool {
        !self.unwound && self.fact.liveness != Liveness::Over
    }
}

/// All open calls.
#[derive(Debug)]
pub(super) struct Open {
    calls: HashMap<Goroutine, Vec<OpenEntry>>,
    /// When the map was read last.
    pub(super) read_at: Option<MonoNs>,
    /// It was read to its end.
    pub(super) complete: bool,
    ended: Generations<CallId, ()>,
    frontiers: Generations<Goroutine, Frontier>,
    exited: Generations<u32, MonoNs>,
    closed: ClosedUnseen,
    pub(super) dropped: u64,
}

impl Open {
    pub(super) fn new() -> Self {
        Self {
            calls: HashMap::new(),
            read_at: None,
            complete: true,
            ended: Generations::new(ENDED),
            frontiers: Generations::new(GOROUTINES),
            exited: Generations::new(GOROUTINES),
            closed: ClosedUnseen::default(),
            dropped: 0,
        }
    }

    /// A call ended.
    pub(super) fn call(&mut self, call: &Call) {
        let goroutine = (call.tgid, call.goid);
        self.ended.entry(call.id());
        if !call.unwound() {
            self.frontiers.entry(goroutine).add(call);
        }
        if let Some(entries) = self.calls.get_mut(&goroutine) {
            entries.retain(|entry| entry.id() != call.id());
            let frontier = self.frontiers.get(&goroutine).copied().unwrap_or_default();
            for entry in entries.iter_mut() {
                entry.unwound |= frontier.proves_over(entry.fact.depth, entry.start());
            }
            if entries.is_empty() {
                self.calls.remove(&goroutine);
            }
        }
    }

    /// A process stepped; with its end all its calls are over.
    pub(super) fn process(&mut self, process: &Process) {
        if matches!(process.step, Step::Exit(_)) {
            self.exit(process.meta.tgid, process.meta.at);
        }
    }

    /// A process ended.
    pub(super) fn exit(&mut self, tgid: u32, at: MonoNs) {
        let exited = self.exited.entry(tgid);
        *exited = at.max(*exited);
        let mut gone = 0;
        self.calls.retain(|(process, _), entries| {
            let before = entries.len();
            entries.retain(|entry| *process != tgid || entry.start() > at);
            gone += before - entries.len();
            !entries.is_empty()
        });
        self.closed.process_exited += gone as u64;
    }

    /// The kernel's map was read; an older reading is ignored.
    pub(super) fn snapshot(&mut self, fact: InFlight, limits: &Limits) {
        let at = MonoNs(fact.at_ns);
        if self.read_at.is_some_and(|last| last > at) {
            return;
        }
        self.read_at = Some(at);
        self.complete = fact.complete;
        let known: HashMap<CallId, MonoNs> =
            self.entries().filter_map(|entry| Some((entry.id(), entry.client_ended?))).collect();
        self.calls.clear();
        self.dropped += fact.calls.len().saturating_sub(limits.open_calls) as u64;
        for call in fact.calls.into_iter().take(limits.open_calls) {
            self.add(call, &known);
        }
    }

    fn add(&mut self, fact: OpenCallFact, known: &HashMap<CallId, MonoNs>) {
        let mut entry = OpenEntry { fact, unwound: false, client_ended: None };
        let (id, start) = (entry.id(), entry.start());
        if self.ended.touch(&id).is_some() {
            return;
        }
        if self.exited.touch(&id.tgid).is_some_and(|at| start <= *at) {
            return;
        }
        let goroutine = (id.tgid, id.goid);
        let frontier = self.frontiers.touch(&goroutine).copied().unwrap_or_default();
        entry.unwound = frontier.proves_over(entry.fact.depth, start);
        entry.client_ended = known.get(&id).copied();
        let siblings = self.calls.entry(goroutine).or_default();
        for other in siblings.iter_mut() {
            // A goroutine that starts a call at this depth has left everything deeper.
            other.unwound |= over(&other.fact, &entry.fact);
            entry.unwound |= over(&entry.fact, &other.fact);
        }
        if siblings.iter().all(|other| other.id() != id) {
            siblings.push(entry);
        }
    }

    /// Forgets ends that are of no use: no reading has shown their calls, goroutines and processes for long.
    pub(super) fn forget_old(&mut self) {
        self.ended.turn();
        self.frontiers.turn();
        self.exited.turn();
    }

    /// Every entry, also those that are over.
    pub(super) fn entries(&self) -> impl Iterator<Item = &OpenEntry> {
        self.calls.values().flatten()
    }

    /// Every entry, to change what is known of its client.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut OpenEntry> {
        self.calls.values_mut().flatten()
    }

    /// The open calls of one goroutine.
    pub(super) fn on(&self, goroutine: Goroutine) -> impl Iterator<Item = &OpenEntry> {
        self.calls.get(&goroutine).into_iter().flatten().filter(|entry| entry.is_open())
    }

    /// Calls that are over although no end was seen.
    pub(super) fn closed(&self) -> ClosedUnseen {
        let mut closed = self.closed;
        for entry in self.entries() {
            if entry.fact.liveness == Liveness::Over {
                closed.ended_unseen += 1;
            } else if entry.unwound {
                closed.unwound += 1;
            }
        }
        closed
    }
}

/// Does the later call `by`, at the same place or above, prove that `call` is over?
fn over(call: &OpenCallFact, by: &OpenCallFact) -> bool {
    call.depth != 0 && by.depth != 0 && by.depth <= call.depth && by.start_ns > call.start_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(hook: u32, start_ns: u64, depth: u32) -> OpenCallFact {
        let liveness = Liveness::Unknown;
        OpenCallFact {
            tgid: 1,
            goid: 1,
            hook,
            start_ns,
            mark_ns: 0,
            depth,
            flags: 0,
            liveness,
            parked_ns: 0,
            short_ns: 0,
            parks: 0,
            stream: 0,
        }
    }

    fn ended(hook: u32, start: u64, end: u64, depth: u32) -> Call {
        let (start, end) = (MonoNs(start), MonoNs(end));
        Call { tgid: 1, goid: 1, hook, depth, flags: 0, start, end, mark: None, parked: None, stream: None }
    }

    fn reading(at_ns: u64, calls: Vec<OpenCallFact>) -> InFlight {
        InFlight { at_ns, calls, complete: true, parkers: Vec::new() }
    }

    /// The record of the end drops the entry, whichever arrives first.
    #[test]
    fn ended_before_or_after_the_reading() {
        for end_first in [true, false] {
            let mut calls = Open::new();
            if end_first {
                calls.call(&ended(3, 10, 90, 100));
            }
            calls.snapshot(reading(80, vec![open(3, 10, 100), open(4, 5, 50)]), &Limits::default());
            if !end_first {
                calls.call(&ended(3, 10, 90, 100));
            }
            let left: Vec<u32> = calls.entries().map(|entry| entry.fact.hook).collect();
            assert_eq!(left, [4]);
            assert_eq!(calls.closed(), ClosedUnseen::default());
        }
    }

    /// An entry inside a call that has returned is unwound, not open.
    #[test]
    fn a_panic_leaves_an_unwound_entry() {
        let mut calls = Open::new();
        calls.snapshot(reading(80, vec![open(3, 10, 100)]), &Limits::default());
        calls.call(&ended(2, 5, 90, 50));
        assert_eq!(calls.on((1, 1)).count(), 0);
        assert_eq!(calls.closed().unwound, 1);
    }

    /// What proves that an entry of the kernel's map is over is remembered for as long as the map shows it.
    #[test]
    fn what_a_reading_shows_is_not_forgotten() {
        let mut calls = Open::new();
        let read = |calls: &mut Open, at_ns| {
            let mut of_gone = open(4, 10, 200);
            (of_gone.tgid, of_gone.goid) = (2, 2);
            let all = vec![open(3, 10, 100), of_gone, open(5, 7, 10)];
            calls.snapshot(reading(at_ns, all), &Limits::default());
        };
        read(&mut calls, 80);
        calls.call(&ended(2, 8, 90, 50));
        calls.call(&ended(5, 7, 91, 10));
        calls.exit(2, MonoNs(90));
        for n in 0..4 {
            calls.forget_old();
            read(&mut calls, 100 + n);
            let left: Vec<(u32, bool)> =
                calls.entries().map(|entry| (entry.fact.hook, entry.unwound)).collect();
            assert_eq!(left, [(3, true)]);
        }
    }

    /// A goroutine that begins something further out has left what was deeper.
    #[test]
    fn a_later_open_call_unwinds_deeper_ones() {
        let mut calls = Open::new();
        calls.snapshot(
            reading(80, vec![open(2, 20, 50), open(3, 10, 100), open(4, 30, 100)]),
            &Limits::default(),
        );
        let mut left: Vec<u32> = calls.on((1, 1)).map(|entry| entry.fact.hook).collect();
        left.sort_unstable();
        assert_eq!(left, [2, 4]);
    }

    /// The calls of a process that ended are over; those of its pid's next owner are not.
    #[test]
    fn exit_ends_calls() {
        let mut calls = Open::new();
        calls.exit(1, MonoNs(50));
        calls.snapshot(reading(80, vec![open(3, 10, 100), open(4, 60, 200)]), &Limits::default());
        assert_eq!(calls.on((1, 1)).map(|entry| entry.fact.hook).collect::<Vec<_>>(), [4]);
        calls.exit(1, MonoNs(70));
        assert_eq!((calls.entries().count(), calls.closed().process_exited), (0, 1));
    }
}
