//! [`Bus`]: calls over D-Bus, finished and open.

use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    mem::take,
};

use super::{
    Latency,
    bus_peers::{BusPeer, BusPeers},
    limits::Limits,
    thresholds::SECOND_NS,
};
use crate::{
    decode::{BusCall, BusCallId, BusKind, BusNames, MonoNs},
    input::{BusFact, BusReaderFact, OpenBusFact, SYSTEMD, Weight},
};

/// The calls over D-Bus at one moment.
#[derive(Clone, Debug, Default)]
pub struct Bus {
    /// When the open ones were read; `None`: they are not followed, and no goroutine was found to wait for one.
    pub read_at: Option<MonoNs>,
    /// All of them could be read. Not when they are not followed, and only what goroutines wait for is known.
    pub complete: bool,
    /// One row per method, by interface, method and destination.
    pub rows: Vec<BusRow>,
    /// Calls without an answer, oldest first.
    pub open: Vec<OpenBusCall>,
    /// Clients of the bus that have not read what it wrote to them, the most first.
    pub readers: Vec<BusReaderFact>,
    /// Processes that old calls wait for, by pid.
    pub peers: Vec<BusPeer>,
    /// When systemd last answered a call, other than with an error.
    pub systemd_answered: Option<MonoNs>,
    /// How far systemd has come in numbering what it sends.
    pub systemd_serials: Option<SystemdSerials>,
}

/// How far systemd has come with the 32 bits that D-Bus has for the number of a message. The highest of the node: systemd counts
/// each of its connections by itself, and containers may have one of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemdSerials {
    /// The first that was seen, and when.
    pub first: (u32, MonoNs),
    /// The last one, and when.
    pub last: (u32, MonoNs),
}

impl SystemdSerials {
    /// How many are left.
    #[must_use]
    pub fn left(&self) -> u32 {
        u32::MAX - self.last.0
    }

    /// How long they last at the pace that was seen, in seconds; `None` before that can be told.
    #[must_use]
    pub fn last_for_s(&self) -> Option<u64> {
        let used = u64::from(self.last.0.checked_sub(self.first.0)?);
        let over = self.last.1.since(self.first.1) / SECOND_NS;
        (used > 0 && over >= MIN_PACE_S).then(|| u64::from(self.left()) * over / used)
    }
}

/// A pace is not told from less time.
const MIN_PACE_S: u64 = 10;
/// Lower numbers for longer than this: systemd has connected anew, as with daemon-reexec, and its old numbers are of no use.
const STALE_NS: u64 = 60 * SECOND_NS;
/// Two numbers of one connection are not farther apart, however long nobody has asked: they are of different ones.
const JUMP: u32 = 1 << 24;

impl Bus {
    /// What is known of a process that calls wait for.
    #[must_use]
    pub fn peer(&self, pid: u32) -> Option<&BusPeer> {
        self.peers.iter().find(|peer| peer.fact.pid == pid)
    }
}

/// One method.
#[derive(Clone, Debug)]
pub struct BusRow {
    /// What is called; without a method it is the connection to the bus itself, or what could not be read.
    pub names: BusNames,
    /// What they were.
    pub kind: BusKind,
    /// Answered calls, also with an error.
    pub latency: Latency,
    /// Calls that were answered with an error.
    pub errors: u64,
    /// Name of the last of those errors; empty when that could not be read.
    pub last_error: Option<String>,
    /// When that came.
    pub last_error_at: Option<MonoNs>,
    /// Calls without an answer, ended with their process or connection.
    pub unanswered: u64,
    /// Calls without an answer now.
    pub open: u64,
}

/// Whom a call waits for, as far as the queues of its connection say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusWait {
    /// The bus: it has not accepted the connection.
    Accept,
    /// The bus: its buffer is full, and the call has not been sent.
    Room,
    /// The bus: it has not read this many bytes.
    Bus(u32),
    /// Its caller: this many bytes are there for it to read.
    Caller(u32),
    /// Who is to answer: the bus has read the call.
    Answer,
    /// systemd: it has answered with a job, and does not say that this is done.
    Job,
    /// Not known.
    Unknown,
}

/// A call without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBusCall {
    /// As it was read.
    pub fact: OpenBusFact,
    /// Its age.
    pub age_ns: u64,
}

impl OpenBusCall {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> BusKind {
        kind(&self.fact)
    }

    /// Whom it waits for.
    #[must_use]
    pub fn waits_for(&self) -> BusWait {
        let fact = &self.fact;
        match (fact.accepted, fact.unread_by_bus, fact.unread) {
            _ if fact.job => BusWait::Job,
            (Some(false), ..) => BusWait::Accept,
            // There is room in a queue of which all was read: the end of the write was not seen, or its caller does not try again.
            (_, Some(0), _) if fact.unsent => BusWait::Unknown,
            _ if fact.unsent => BusWait::Room,
            (_, Some(unread), _) if unread > 0 => BusWait::Bus(unread),
            (_, _, Some(unread)) if unread > 0 => BusWait::Caller(unread),
            (_, Some(_), Some(_)) => BusWait::Answer,
            _ => BusWait::Unknown,
        }
    }
}

#[derive(Debug, Default)]
struct Sums {
    latency: Latency,
    errors: u64,
    last_error: Option<String>,
    last_error_at: Option<MonoNs>,
    unanswered: u64,
}

/// What is kept of them.
#[derive(Debug, Default)]
pub(super) struct BusState {
    rows: BTreeMap<(BusNames, BusKind), Sums>,
    open: Vec<OpenBusFact>,
    readers: Vec<BusReaderFact>,
    peers: BusPeers,
    systemd_answered: Option<MonoNs>,
    systemd_serials: Option<SystemdSerials>,
    /// Answered since the last reading, which may still have them.
    answered: HashSet<BusCallId>,
    read_at: Option<MonoNs>,
    complete: bool,
    /// What did not fit.
    pub(super) dropped: u64,
}

impl BusState {
    /// A call was answered.
    pub(super) fn call(&mut self, call: BusCall, limits: &Limits) {
        if call.kind == BusKind::Refused {
            // It never was among those that are read.
        } else if self.answered.len() < limits.open_calls {
            self.answered.insert(call.id);
        } else {
            self.dropped += 1;
        }
        if call.names.destination == SYSTEMD && call.error.is_none() {
            self.systemd_answered = self.systemd_answered.max(Some(call.end));
            self.serial(call.answer_serial, call.end);
        }
        let ns = call.end.since(call.id.start);
        if let Some(row) = self.row(call.names, call.kind, limits) {
            if call.kind != BusKind::Refused {
                row.latency.record(ns);
            }
            row.errors += u64::from(call.error.is_some());
            if call.error.is_some() {
                (row.last_error, row.last_error_at) = (call.error, Some(call.end));
            }
        }
    }

    /// What the facts that are kept take, bytes.
    pub(super) fn bytes(&self) -> usize {
        let texts = |names: &BusNames| names.interface.len() + names.member.len() + names.destination.len();
        let rows = self.rows.keys().map(|(names, _)| texts(names)).sum::<usize>();
        Weight::sum(&self.open) + Weight::sum(&self.readers) + self.peers.bytes() + rows
    }

    /// systemd has numbered an answer.
    fn serial(&mut self, serial: u32, at: MonoNs) {
        let now = (serial, at);
        let (new, last) =
            (SystemdSerials { first: now, last: now }, self.systemd_serials.map(|known| known.last.0));
        let old = self.systemd_serials.is_some_and(|known| at.since(known.last.1) > STALE_NS);
        match last {
            _ if serial == 0 => {}
            Some(last) if serial <= last && !old => {}
            Some(last) if serial > last && serial - last <= JUMP => {
                self.systemd_serials =
                    self.systemd_serials.map(|known| SystemdSerials { last: now, ..known });
            }
            _ => self.systemd_serials = Some(new),
        }
    }

    /// The open ones were read.
    pub(super) fn reading(&mut self, mut reading: BusFact, limits: &Limits) {
        let answered = take(&mut self.answered);
        reading.open.retain(|open| !answered.contains(&id(open)));
        let (over, mut open): (Vec<_>, Vec<_>) = reading.open.into_iter().partition(|open| open.over);
        for gone in over {
            if let Some(row) = self.row(names(&gone), kind(&gone), limits) {
                row.unanswered += 1;
            }
        }
        let most = limits.open_calls;
        self.dropped += open.len().saturating_sub(most) as u64;
        open.truncate(most);
        reading.readers.truncate(most);
        self.peers.reading(MonoNs(reading.at_ns), reading.peers, most);
        (self.read_at, self.complete) = (Some(MonoNs(reading.at_ns)), reading.complete);
        (self.open, self.readers) = (open, reading.readers);
    }

    fn row(&mut self, names: BusNames, kind: BusKind, limits: &Limits) -> Option<&mut Sums> {
        let full = self.rows.len() >= limits.rows;
        match self.rows.entry((names, kind)) {
            Entry::Occupied(row) => Some(row.into_mut()),
            Entry::Vacant(_) if full => {
                self.dropped += 1;
                None
            }
            Entry::Vacant(place) => Some(place.insert(Sums::default())),
        }
    }

    fn still_open(&self) -> impl Iterator<Item = &OpenBusFact> {
        self.open.iter().filter(|open| !self.answered.contains(&id(open)))
    }

    /// What a stream that begins now must know.
    pub(super) fn retold(&self) -> Option<BusFact> {
        let open = self.still_open().cloned().collect();
        let (at_ns, readers) = (self.read_at?.0, self.readers.clone());
        Some(BusFact { at_ns, open, readers, peers: self.peers.retold(), complete: self.complete })
    }

    /// The calls at `now`.
    pub(super) fn view(&self, now: MonoNs) -> Bus {
        let empty = |names: &BusNames, kind| BusRow {
            names: names.clone(),
            kind,
            latency: Latency::default(),
            errors: 0,
            last_error: None,
            last_error_at: None,
            unanswered: 0,
            open: 0,
        };
        let mut rows: BTreeMap<(BusNames, BusKind), BusRow> = BTreeMap::new();
        for ((names, kind), sums) in &self.rows {
            let row = BusRow {
                latency: sums.latency.clone(),
                errors: sums.errors,
                last_error: sums.last_error.clone(),
                last_error_at: sums.last_error_at,
                unanswered: sums.unanswered,
                ..empty(names, *kind)
            };
            rows.insert((names.clone(), *kind), row);
        }
        let mut open = Vec::new();
        for fact in self.still_open() {
            let key = (names(fact), kind(fact));
            let none = empty(&key.0, key.1);
            rows.entry(key).or_insert(none).open += 1;
            open.push(OpenBusCall { fact: fact.clone(), age_ns: now.since(MonoNs(fact.start_ns)) });
        }
        open.sort_by_key(|call| (call.fact.start_ns, call.fact.socket, call.fact.serial));
        Bus {
            read_at: self.read_at,
            complete: self.complete,
            rows: rows.into_values().collect(),
            open,
            readers: self.readers.clone(),
            peers: self.peers.view(),
            systemd_answered: self.systemd_answered,
            systemd_serials: self.systemd_serials,
        }
    }
}

fn names(open: &OpenBusFact) -> BusNames {
    BusNames {
        interface: open.interface.clone(),
        member: open.member.clone(),
        destination: open.destination.clone(),
    }
}

fn kind(open: &OpenBusFact) -> BusKind {
    match open.serial {
        _ if open.job => BusKind::Job,
        0 => BusKind::Connection,
        _ => BusKind::Call,
    }
}

fn id(open: &OpenBusFact) -> BusCallId {
    BusCallId { socket: open.socket, serial: open.serial, start: MonoNs(open.start_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(serial: u32, start: u64, end: u64, error: Option<&str>) -> BusCall {
        BusCall {
            id: BusCallId { socket: 7, serial, start: MonoNs(start) },
            kind: if serial == 0 { BusKind::Connection } else { BusKind::Call },
            asker: 10,
            end: MonoNs(end),
            answer_serial: 0,
            names: BusNames { member: "StopUnit".to_owned(), ..BusNames::default() },
            error: error.map(str::to_owned),
        }
    }

    fn open(serial: u32, start_ns: u64) -> OpenBusFact {
        OpenBusFact {
            socket: 7,
            serial,
            start_ns,
            asker: 10,
            member: "StopUnit".to_owned(),
            ..Default::default()
        }
    }

    fn reading(at_ns: u64, open: Vec<OpenBusFact>) -> BusFact {
        BusFact { at_ns, open, complete: true, ..BusFact::default() }
    }

    /// A call that was answered while the map was read, or since, is not open; one that ended with its caller counts
    /// once; the connection itself is a row of its own.
    #[test]
    fn what_was_answered_is_not_open() {
        let (mut state, limits) = (BusState::default(), Limits::default());
        state.call(call(1, 100, 150, Some("a.Error")), &limits);
        let over = OpenBusFact { over: true, ..open(4, 90) };
        state.reading(reading(149, vec![open(1, 100), open(2, 120), open(0, 110), over]), &limits);
        let view = state.view(MonoNs(200));
        let seen: Vec<_> = view.open.iter().map(|it| (it.fact.serial, it.age_ns)).collect();
        assert_eq!(seen, [(0, 90), (2, 80)], "oldest first");
        let rows = |state: &BusState| -> Vec<_> {
            let rows = state.view(MonoNs(220)).rows.into_iter();
            rows.map(|row| (row.kind, row.latency.count(), row.errors, row.unanswered, row.open)).collect()
        };
        let connection = (BusKind::Connection, 0, 0, 0, 1);
        assert_eq!(rows(&state), [connection, (BusKind::Call, 1, 1, 1, 1)]);
        state.call(call(2, 120, 210, None), &limits);
        assert_eq!(rows(&state), [connection, (BusKind::Call, 2, 1, 1, 0)]);
        assert_eq!(state.retold().unwrap().open.len(), 1);
        assert_eq!(state.view(MonoNs(220)).rows[1].last_error.as_deref(), Some("a.Error"));
        state.reading(reading(300, vec![]), &limits);
        assert!(state.view(MonoNs(300)).open.is_empty());
    }

    /// Queues say who is waited for; without them nobody is named.
    #[test]
    fn who_is_waited_for() {
        let waits = |accepted, unsent, unread_by_bus, unread| {
            let fact = OpenBusFact { accepted, unsent, unread_by_bus, unread, ..open(1, 1) };
            OpenBusCall { fact, age_ns: 1 }.waits_for()
        };
        assert_eq!(waits(Some(false), false, None, Some(0)), BusWait::Accept);
        assert_eq!(waits(Some(true), true, Some(9), Some(0)), BusWait::Room);
        assert_eq!(waits(Some(true), true, None, Some(0)), BusWait::Room);
        assert_eq!(waits(Some(true), true, Some(0), Some(0)), BusWait::Unknown);
        assert_eq!(waits(Some(true), false, Some(9), Some(0)), BusWait::Bus(9));
        assert_eq!(waits(Some(true), false, Some(0), Some(5)), BusWait::Caller(5));
        assert_eq!(waits(Some(true), false, Some(0), Some(0)), BusWait::Answer);
        assert_eq!(waits(None, false, None, None), BusWait::Unknown);
    }

    /// A job is a row of its own, open until it is done, and waits for systemd whatever the queues of its call say.
    #[test]
    fn jobs() {
        let (mut state, limits) = (BusState::default(), Limits::default());
        let job = OpenBusFact { job: true, unread: Some(9), ..open(1, 100) };
        state.call(call(1, 50, 100, None), &limits);
        state.reading(reading(120, vec![job]), &limits);
        let view = state.view(MonoNs(130));
        assert_eq!((view.open[0].kind(), view.open[0].waits_for()), (BusKind::Job, BusWait::Job));
        let rows: Vec<_> = view.rows.iter().map(|row| (row.kind, row.latency.count(), row.open)).collect();
        assert_eq!(rows, [(BusKind::Call, 1, 0), (BusKind::Job, 0, 1)]);
        state.call(BusCall { kind: BusKind::Job, ..call(1, 100, 140, None) }, &limits);
        let view = state.view(MonoNs(150));
        assert_eq!((view.open.len(), view.rows[1].latency.count(), view.rows[1].open), (0, 1, 0));
    }

    /// The highest number of systemd, and how long the rest lasts at the pace that was seen: of one connection, and of answers
    /// that are its own.
    #[test]
    fn serials_of_systemd() {
        let (mut state, limits) = (BusState::default(), Limits::default());
        let mut seen = |answer_serial: u32, second: u64, error: Option<&str>| {
            let mut call = call(1, 0, second * SECOND_NS, error);
            (call.answer_serial, call.names.destination) = (answer_serial, SYSTEMD.to_owned());
            state.call(call, &limits);
            state.view(MonoNs(second * SECOND_NS)).systemd_serials
        };
        assert_eq!(seen(9, 1, Some("of.the.bus")), None);
        assert_eq!(seen(0, 1, None), None);
        assert_eq!(seen(40, 1, None).unwrap().last_for_s(), None, "one is no pace");
        let high = u32::MAX - 1_000_000;
        let serials = seen(high, 2, None).unwrap();
        assert_eq!(
            (serials.first, serials.left()),
            ((high, MonoNs(2 * SECOND_NS)), 1_000_000),
            "another one"
        );
        assert_eq!(seen(high + 50, 11, None).unwrap().last_for_s(), None, "nine seconds are too few");
        let serials = seen(high + 100, 12, None).unwrap();
        assert_eq!((serials.left(), serials.last_for_s()), (999_900, Some(99_990)));
        assert_eq!(seen(70, 13, None), Some(serials), "a private connection counts from 1");
        let anew = seen(71, 73, None).unwrap();
        assert_eq!((anew.first, anew.last.0), ((71, MonoNs(73 * SECOND_NS)), 71), "daemon-reexec");
        assert_eq!(seen(80, 200, None).unwrap().last_for_s(), Some(u64::from(u32::MAX - 80) * 127 / 9));
    }

    /// What does not fit is counted.
    #[test]
    fn bounds() {
        let limits = Limits { rows: 1, open_calls: 1, ..Limits::default() };
        let mut state = BusState::default();
        state.call(call(1, 1, 2, None), &limits);
        state.call(call(0, 1, 2, None), &limits);
        assert_eq!(state.dropped, 2, "no row, and no place among those that were answered");
        state.reading(reading(9, vec![open(5, 5), open(7, 6)]), &limits);
        assert_eq!((state.dropped, state.view(MonoNs(9)).open.len()), (3, 1));
    }
}
