//! [`Messages`]: requests between runtime and shims, between kubelet and runtime, or to Docker, finished and open.

use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    mem::take,
};

use super::{Latency, limits::Limits};
use crate::{
    cri::{docker_call_lasts, request_lasts, shim_call_lasts},
    decode::{Message, MessageId, MonoNs, Request, RequestEnd},
    input::{LearntFact, MessagesFact, NamesFact, OpenMessageFact, Weight},
};

/// The requests at one moment.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    /// When the open ones were read; `None`: they are not followed.
    pub read_at: Option<MonoNs>,
    /// All of them could be read.
    pub complete: bool,
    /// One row per method, by service and method.
    pub rows: Vec<MessageRow>,
    /// Requests without an answer, oldest first.
    pub open: Vec<OpenMessage>,
}

/// One method.
#[derive(Clone, Debug)]
pub struct MessageRow {
    /// Service; empty when it could not be read.
    pub service: String,
    /// Method; empty when it could not be read.
    pub method: String,
    /// Answered requests.
    pub latency: Latency,
    /// Requests without an answer: ended with one of both processes, reset or refused.
    pub unanswered: u64,
    /// Requests without an answer now.
    pub open: u64,
    /// Bytes of the last answer, of gRPC only.
    pub answer_bytes: u64,
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenMessage {
    /// As it was read.
    pub fact: OpenMessageFact,
    /// Its age.
    pub age_ns: u64,
    /// Its method lasts as long as what it waits for: it is never stuck.
    pub is_long_lived: bool,
}

impl OpenMessage {
    /// Is it one that should be answered soon?
    #[must_use]
    pub fn should_end(&self) -> bool {
        !self.is_long_lived
    }
}

#[derive(Debug, Default)]
struct Sums {
    latency: Latency,
    unanswered: u64,
    answer_bytes: u64,
}

impl Sums {
    /// The later answer is that of `self`, if it has one.
    fn add(&mut self, earlier: &Self) {
        if self.latency.count() == 0 {
            self.answer_bytes = earlier.answer_bytes;
        }
        self.latency.add(&earlier.latency);
        self.unanswered += earlier.unanswered;
    }
}

/// What is kept of them.
#[derive(Debug, Default)]
pub(super) struct MessageState {
    rows: BTreeMap<(String, String), Sums>,
    /// Service and method of names that were unknown.
    learnt: BTreeMap<String, (String, String)>,
    open: Vec<OpenMessageFact>,
    /// Answered since the last reading, which may still have them.
    answered: HashSet<MessageId>,
    read_at: Option<MonoNs>,
    complete: bool,
    /// What did not fit.
    pub(super) dropped: u64,
}

impl MessageState {
    /// A request was answered.
    pub(super) fn message(&mut self, message: Message, limits: &Limits) {
        self.answered_with(message, 0, limits);
    }

    fn answered_with(&mut self, message: Message, answer_bytes: u64, limits: &Limits) {
        let ns = message.end.since(message.id.start);
        self.ended(message.id, limits);
        if let Some(row) = self.row(message.service, message.method, limits) {
            row.latency.record(ns);
            row.answer_bytes = answer_bytes;
        }
    }

    /// A gRPC request has ended, answered or not.
    pub(super) fn request(&mut self, request: Request, limits: &Limits) {
        let Request { message, end, answer_bytes, .. } = request;
        if end == RequestEnd::Answered {
            return self.answered_with(message, answer_bytes, limits);
        }
        self.ended(message.id, limits);
        if let Some(row) = self.row(message.service, message.method, limits) {
            row.unanswered += 1;
        }
    }

    fn ended(&mut self, id: MessageId, limits: &Limits) {
        if self.answered.len() < limits.open_calls {
            self.answered.insert(id);
        } else {
            self.dropped += 1;
        }
    }

    /// The open ones were read.
    pub(super) fn reading(&mut self, mut reading: MessagesFact, limits: &Limits) {
        let answered = take(&mut self.answered);
        reading.open.retain(|open| !answered.contains(&id(open)));
        let (over, mut open): (Vec<_>, Vec<_>) = reading.open.into_iter().partition(|open| open.over);
        for gone in over {
            if let Some(row) = self.row(gone.service, gone.method, limits) {
                row.unanswered += 1;
            }
        }
        let most = limits.open_calls;
        self.dropped += open.len().saturating_sub(most) as u64;
        open.truncate(most);
        (self.read_at, self.complete, self.open) = (Some(MonoNs(reading.at_ns)), reading.complete, open);
    }

    /// Names have become known: requests that had none so far are counted with those that have.
    pub(super) fn learn(&mut self, fact: NamesFact, limits: &Limits) {
        for LearntFact { unknown, service, method } in fact.names {
            if self.learnt.len() >= limits.rows && !self.learnt.contains_key(&unknown) {
                // Most are of tables that are gone: whoever still asks by such a name has a row of its own.
                self.learnt.pop_first();
            }
            let nameless = self.rows.remove(&(String::new(), unknown.clone()));
            self.learnt.insert(unknown, (service.clone(), method.clone()));
            if let Some((nameless, row)) =
                nameless.and_then(|sums| Some((sums, self.row(service, method, limits)?)))
            {
                row.add(&nameless);
            }
        }
    }

    /// What the facts that are kept take, bytes.
    pub(super) fn bytes(&self) -> usize {
        let names = |(service, method): &(String, String)| service.len() + method.len();
        let rows = self.rows.keys().map(names).sum::<usize>();
        let learnt = self.learnt.iter().map(|(unknown, name)| unknown.len() + names(name)).sum::<usize>();
        Weight::sum(&self.open) + rows + learnt
    }

    /// What a stream that begins now must know of names.
    pub(super) fn learnt(&self) -> Option<NamesFact> {
        let name = |(unknown, (service, method)): (&String, &(String, String))| LearntFact {
            unknown: unknown.clone(),
            service: service.clone(),
            method: method.clone(),
        };
        (!self.learnt.is_empty()).then(|| NamesFact { names: self.learnt.iter().map(name).collect() })
    }

    /// Its name is known by now.
    fn known<'n>(&'n self, service: &'n str, method: &'n str) -> (&'n str, &'n str) {
        let learnt = self.learnt.get(method).filter(|_| service.is_empty());
        learnt.map_or((service, method), |(service, method)| (service, method))
    }

    fn row(&mut self, service: String, method: String, limits: &Limits) -> Option<&mut Sums> {
        let full = self.rows.len() >= limits.rows;
        let learnt = self.learnt.get(&method).filter(|_| service.is_empty());
        match self.rows.entry(learnt.cloned().unwrap_or((service, method))) {
            Entry::Occupied(row) => Some(row.into_mut()),
            Entry::Vacant(_) if full => {
                self.dropped += 1;
                None
            }
            Entry::Vacant(place) => Some(place.insert(Sums::default())),
        }
    }

    fn still_open(&self) -> impl Iterator<Item = &OpenMessageFact> {
        self.open.iter().filter(|open| !self.answered.contains(&id(open)))
    }

    /// What a stream that begins now must know.
    pub(super) fn retold(&self) -> Option<MessagesFact> {
        let open = self.still_open().cloned().collect();
        Some(MessagesFact { at_ns: self.read_at?.0, open, complete: self.complete })
    }

    /// The requests at `now`.
    pub(super) fn view(&self, now: MonoNs) -> Messages {
        let mut rows: BTreeMap<(&str, &str), MessageRow> = BTreeMap::new();
        let empty = |service: &str, method: &str| MessageRow {
            service: service.to_owned(),
            method: method.to_owned(),
            latency: Latency::default(),
            unanswered: 0,
            open: 0,
            answer_bytes: 0,
        };
        for ((service, method), sums) in &self.rows {
            let (latency, unanswered) = (sums.latency.clone(), sums.unanswered);
            let answer_bytes = sums.answer_bytes;
            let row = MessageRow { latency, unanswered, answer_bytes, ..empty(service, method) };
            rows.insert((service.as_str(), method.as_str()), row);
        }
        let mut open = Vec::new();
        for fact in self.still_open() {
            let (service, method) = self.known(&fact.service, &fact.method);
            rows.entry((service, method)).or_insert_with(|| empty(service, method)).open += 1;
            open.push(OpenMessage {
                fact: OpenMessageFact {
                    service: service.to_owned(),
                    method: method.to_owned(),
                    ..fact.clone()
                },
                age_ns: now.since(MonoNs(fact.start_ns)),
                is_long_lived: shim_call_lasts(service, method)
                    || request_lasts(service, method)
                    || docker_call_lasts(method),
            });
        }
        open.sort_by_key(|message| (message.fact.start_ns, message.fact.socket, message.fact.stream));
        let rows = rows.into_values().collect();
        Messages { read_at: self.read_at, complete: self.complete, rows, open }
    }
}

fn id(open: &OpenMessageFact) -> MessageId {
    MessageId { socket: open.socket, stream: open.stream, start: MonoNs(open.start_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(stream: u32, start: u64, end: u64) -> Message {
        Message {
            id: MessageId { socket: 7, stream, start: MonoNs(start) },
            asker: 10,
            answerer: 20,
            end: MonoNs(end),
            service: "t.Task".to_owned(),
            method: "State".to_owned(),
        }
    }

    fn open(stream: u32, start_ns: u64, method: &str) -> OpenMessageFact {
        let (service, method) = ("t.Task".to_owned(), method.to_owned());
        OpenMessageFact {
            socket: 7,
            stream,
            start_ns,
            asker: 10,
            answerer: 20,
            service,
            method,
            ..Default::default()
        }
    }

    fn reading(at_ns: u64, open: Vec<OpenMessageFact>) -> MessagesFact {
        MessagesFact { at_ns, open, complete: true }
    }

    fn methods(state: &MessageState, now: u64) -> Vec<(String, u64, u64, u64)> {
        let rows = state.view(MonoNs(now)).rows.into_iter();
        rows.map(|row| (row.method, row.latency.count(), row.unanswered, row.open)).collect()
    }

    /// A request that was answered while the map was read, or since, is not open.
    #[test]
    fn what_was_answered_is_not_open() {
        let (mut state, limits) = (MessageState::default(), Limits::default());
        state.message(message(1, 100, 150), &limits);
        state.reading(
            reading(149, vec![open(1, 100, "State"), open(3, 120, "Kill"), open(5, 130, "Wait")]),
            &limits,
        );
        let view = state.view(MonoNs(200));
        let seen: Vec<_> = view.open.iter().map(|it| (it.fact.stream, it.age_ns, it.should_end())).collect();
        assert_eq!(seen, [(3, 80, true), (5, 70, false)], "oldest first");
        assert_eq!(view.read_at, Some(MonoNs(149)));
        state.message(Message { method: "Kill".to_owned(), ..message(3, 120, 210) }, &limits);
        assert_eq!(state.view(MonoNs(220)).open.len(), 1);
        assert_eq!(state.retold().unwrap().open.len(), 1);
        let row = |method: &str, count, open| (method.to_owned(), count, 0, open);
        assert_eq!(methods(&state, 220), [row("Kill", 1, 0), row("State", 1, 0), row("Wait", 0, 1)]);
    }

    /// The same stream of the same connection asks again later: only the answered one is over.
    #[test]
    fn a_start_tells_requests_apart() {
        let (mut state, limits) = (MessageState::default(), Limits::default());
        state.message(message(1, 100, 150), &limits);
        state.reading(reading(400, vec![open(1, 300, "State")]), &limits);
        assert_eq!(state.view(MonoNs(500)).open.len(), 1);
    }

    /// What ended with a process is counted as unanswered, once.
    #[test]
    fn ended_without_an_answer() {
        let (mut state, limits) = (MessageState::default(), Limits::default());
        let over = OpenMessageFact { over: true, ..open(1, 100, "Shutdown") };
        state.reading(reading(200, vec![over]), &limits);
        state.reading(reading(300, vec![]), &limits);
        assert_eq!(methods(&state, 300), [("Shutdown".to_owned(), 0, 1, 0)]);
        assert!(state.view(MonoNs(300)).open.is_empty());
    }

    /// A gRPC request that was reset is over, and its time says nothing about who should have answered.
    #[test]
    fn reset_is_not_answered() {
        let (mut state, limits) = (MessageState::default(), Limits::default());
        let request = |stream, end| Request {
            message: message(stream, 100, 150),
            end,
            bytes: 1,
            answer_bytes: 2,
            of_other: false,
        };
        state.request(request(1, RequestEnd::Answered), &limits);
        for (stream, end) in
            [(3, RequestEnd::ResetByClient), (5, RequestEnd::ResetByServer), (7, RequestEnd::Cut)]
        {
            state.request(request(stream, end), &limits);
        }
        let all = [1, 3, 5, 7, 9].map(|stream| open(stream, 100, "State"));
        state.reading(reading(149, all.to_vec()), &limits);
        assert_eq!(methods(&state, 200), [("State".to_owned(), 1, 3, 1)]);
        assert_eq!(state.view(MonoNs(200)).rows[0].answer_bytes, 2, "of the one that was answered");
    }

    /// A name that becomes known is that of all requests that were unknown by the same one: ended, open, and still to end.
    #[test]
    fn names_that_become_known() {
        let (mut state, limits) = (MessageState::default(), Limits::default());
        let nameless = |stream, start, end| Message {
            service: String::new(),
            method: "unknown#3@1".to_owned(),
            ..message(stream, start, end)
        };
        state.message(nameless(1, 100, 150), &limits);
        state.message(message(3, 100, 120), &limits);
        let open = OpenMessageFact { service: String::new(), ..open(5, 140, "unknown#3@1") };
        state.reading(reading(150, vec![open]), &limits);
        let name = LearntFact {
            unknown: "unknown#3@1".to_owned(),
            service: "t.Task".to_owned(),
            method: "State".to_owned(),
        };
        let fact = NamesFact { names: vec![name] };
        state.learn(fact.clone(), &limits);
        assert_eq!(methods(&state, 200), [("State".to_owned(), 2, 0, 1)]);
        let view = state.view(MonoNs(200));
        assert_eq!(
            (view.open[0].fact.method.as_str(), view.rows[0].latency.sum_ns(), state.learnt()),
            ("State", 70, Some(fact))
        );
        state.message(nameless(5, 140, 240), &limits);
        state.message(Message { method: "unknown#3@2".to_owned(), ..nameless(7, 240, 250) }, &limits);
        let rows = methods(&state, 300);
        assert_eq!(
            rows,
            [("unknown#3@2".to_owned(), 1, 0, 0), ("State".to_owned(), 3, 0, 0)],
            "another table"
        );
    }

    /// What does not fit is counted.
    #[test]
    fn bounds() {
        let (mut state, limits) =
            (MessageState::default(), Limits { rows: 1, open_calls: 1, ..Limits::default() });
        state.message(message(1, 1, 2), &limits);
        state.message(Message { method: "Kill".to_owned(), ..message(3, 1, 2) }, &limits);
        assert_eq!(state.dropped, 2, "no row, and no place among those that were answered");
        state.reading(reading(9, vec![open(5, 5, "State"), open(7, 6, "State")]), &limits);
        assert_eq!((state.dropped, state.view(MonoNs(9)).open.len()), (3, 1));
    }
}
