//! [`Witnesses`]: what the requests of connections call that are older than us, by those who were there.
//!
//! A call of a client that went well has sent one request between its start and its end, and a handler has begun for it. When
//! in this time its process has sent no other request, and no other handler has begun in the runtime, then that request is this
//! call, and its name is that of the handler. A request or handler of another stream than that of the call is not in question.
//! Where two are, nothing is concluded: the next time one may be alone. What was not seen whole is no testimony at all.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Most of each kind that are kept; with more nothing is concluded until then.
const MOST: usize = 8192;
/// Older ones are forgotten. Calls that last longer are hardly ever alone.
const KEPT_NS: u64 = 2_000_000_000;

/// That the request of a stream called a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lesson {
    /// Connection.
    pub socket: u64,
    /// Stream.
    pub stream: u32,
    /// `/package.Service/Method`.
    pub path: Arc<str>,
}

/// A call of a client that has ended well.
#[derive(Clone, Debug)]
pub struct ClientCall {
    /// Its process.
    pub pid: u32,
    /// Its method, without a service.
    pub method: Arc<str>,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// The stream as which it was sent, if that was seen.
    pub stream: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at_ns: u64,
    pid: u32,
    socket: u64,
    stream: u32,
}

type Handler = (u64, Arc<str>, Option<u32>);

/// What was seen of requests, calls and handlers, until enough is known of a time.
#[derive(Debug, Default)]
pub struct Witnesses {
    sent: Vec<Sent>,
    calls: Vec<ClientCall>,
    /// When handlers began, what they are for, and as which streams they came, if that was seen. One that is told twice is one.
    handlers: BTreeSet<Handler>,
    /// Everything since then was seen.
    since_ns: u64,
}

impl Witnesses {
    /// The header block of a request was sent.
    pub fn sent(&mut self, pid: u32, socket: u64, stream: u32, at_ns: u64) {
        let one = Sent { at_ns, pid, socket, stream };
        // A block comes in fragments, and again when the socket had no room.
        let known = |other: &&Sent| (other.socket, other.stream) == (socket, stream);
        if self.sent.iter().rev().take(64).find(known).is_none() && self.has_room(self.sent.len(), at_ns) {
            self.sent.push(one);
        }
    }

    /// A call of a client has ended well.
    pub fn call(&mut self, call: ClientCall) {
        if self.has_room(self.calls.len(), call.end_ns) {
            self.calls.push(call);
        }
    }

    /// A handler for this path has begun; it came in as this stream, if that was seen.
    pub fn handler(&mut self, path: &Arc<str>, start_ns: u64, stream: Option<u32>) {
        if self.has_room(self.handlers.len(), start_ns) {
            self.handlers.insert((start_ns, Arc::clone(path), stream));
        }
    }

    /// Something before `now_ns` was perhaps not seen.
    pub fn missed(&mut self, now_ns: u64) {
        self.since_ns = self.since_ns.max(now_ns);
        self.sent.retain(|sent| sent.at_ns >= now_ns);
        self.calls.retain(|call| call.start_ns >= now_ns);
        self.handlers = self.handlers.split_off(&(now_ns, Arc::from(""), None));
    }

    /// What follows from all that happened until `until_ns`, of which everything is known now.
    pub fn conclude(&mut self, until_ns: u64) -> Vec<Lesson> {
        self.sent.sort_unstable_by_key(|sent| sent.at_ns);
        let (over, later) =
            std::mem::take(&mut self.calls).into_iter().partition(|call| call.end_ns < until_ns);
        self.calls = later;
        let over: Vec<ClientCall> = over;
        let lessons = over.iter().filter_map(|call| self.lesson(call)).collect();
        let kept_ns = until_ns.saturating_sub(KEPT_NS);
        if kept_ns > self.since_ns {
            self.missed(kept_ns);
        }
        lessons
    }

    /// What a call says, if nothing else was under way.
    fn lesson(&self, call: &ClientCall) -> Option<Lesson> {
        if call.start_ns < self.since_ns || call.end_ns <= call.start_ns {
            return None;
        }
        let from = self.sent.partition_point(|sent| sent.at_ns < call.start_ns);
        let within = self.sent[from..].iter().take_while(|sent| sent.at_ns <= call.end_ns);
        let can_be = |stream| call.stream.is_none_or(|known| known == stream);
        let mut within = within.filter(|sent| sent.pid == call.pid && can_be(sent.stream));
        let (sent, None) = (within.next()?, within.next()) else { return None };
        let all = (call.start_ns, Arc::from(""), None)..(call.end_ns + 1, Arc::from(""), None);
        let mut handlers =
            self.handlers.range(all).filter(|(_, _, came)| came.is_none_or(|came| came == sent.stream));
        let ((began_ns, path, _), None) = (handlers.next()?, handlers.next()) else { return None };
        let method = path.rsplit('/').next().unwrap_or_default();
        let fits = *began_ns >= sent.at_ns && method == &*call.method;
        fits.then(|| Lesson { socket: sent.socket, stream: sent.stream, path: Arc::clone(path) })
    }

    /// Is there room for one more? If there is none, all is forgotten.
    fn has_room(&mut self, len: usize, at_ns: u64) -> bool {
        if len >= MOST {
            self.missed(at_ns.saturating_add(1));
        }
        at_ns >= self.since_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/runtime.v1.RuntimeService/Status";
    const OTHER: &str = "/runtime.v1.RuntimeService/Version";

    fn call(start_ns: u64, end_ns: u64) -> ClientCall {
        ClientCall { pid: 10, method: "Status".into(), start_ns, end_ns, stream: None }
    }

    /// A call from 100 to 200, its request at 120, its handler at 150.
    fn alone() -> Witnesses {
        let mut all = Witnesses::default();
        all.sent(10, 7, 5, 120);
        all.handler(&PATH.into(), 150, None);
        all.call(call(100, 200));
        all
    }

    fn lesson() -> Vec<Lesson> {
        vec![Lesson { socket: 7, stream: 5, path: PATH.into() }]
    }

    /// Alone in its time, a call says what its request was, once; in whatever order all is told.
    #[test]
    fn a_call_alone() {
        let mut all = alone();
        assert_eq!(all.conclude(200), []);
        assert_eq!((all.conclude(201), all.conclude(202)), (lesson(), vec![]));
        let mut late = Witnesses::default();
        late.call(call(100, 200));
        late.sent(10, 7, 7, 240);
        late.sent(10, 7, 5, 120);
        late.sent(10, 7, 5, 121);
        late.handler(&PATH.into(), 150, None);
        late.handler(&PATH.into(), 150, None);
        assert_eq!(late.conclude(300), lesson(), "a fragment is no second request, nor is one told twice");
    }

    /// Any other request of the process, or another handler, makes it uncertain; those of other times do not.
    #[test]
    fn not_alone() {
        let with = |change: &dyn Fn(&mut Witnesses)| {
            let mut all = alone();
            change(&mut all);
            all.conclude(1000)
        };
        assert_eq!(with(&|all| all.sent(10, 8, 5, 100)), []);
        assert_eq!(with(&|all| all.sent(10, 7, 7, 200)), []);
        assert_eq!(with(&|all| all.handler(&OTHER.into(), 200, None)), []);
        assert_eq!(with(&|all| all.handler(&PATH.into(), 100, None)), [], "another client asks the same");
        assert_eq!(with(&|all| all.sent(10, 7, 7, 99)), lesson());
        assert_eq!(with(&|all| all.sent(10, 7, 7, 201)), lesson());
        assert_eq!(with(&|all| all.sent(11, 9, 1, 130)), lesson(), "another process");
        assert_eq!(with(&|all| all.handler(&OTHER.into(), 99, None)), lesson());
        assert_eq!(with(&|all| all.handler(&OTHER.into(), 201, None)), lesson());
    }

    /// Others that have other streams are not in question; those of the same stream, or of an unknown one, are.
    #[test]
    fn alone_on_its_stream() {
        let with = |stream: Option<u32>, change: &dyn Fn(&mut Witnesses)| {
            let mut all = Witnesses::default();
            all.sent(10, 7, 5, 120);
            all.handler(&PATH.into(), 150, Some(5));
            all.call(ClientCall { stream, ..call(100, 200) });
            change(&mut all);
            all.conclude(1000)
        };
        let other = |all: &mut Witnesses| {
            all.sent(10, 7, 9, 130);
            all.handler(&OTHER.into(), 160, Some(9));
        };
        assert_eq!(with(Some(5), &other), lesson());
        assert_eq!(with(None, &other), [], "which of two it was is not known");
        assert_eq!(with(None, &|all| all.handler(&OTHER.into(), 160, Some(9))), lesson());
        assert_eq!(with(Some(5), &|all| all.sent(10, 8, 5, 130)), [], "two connections");
        assert_eq!(with(Some(5), &|all| all.handler(&OTHER.into(), 160, None)), []);
        assert_eq!(with(Some(5), &|all| all.handler(&OTHER.into(), 160, Some(5))), [], "another client");
        assert_eq!(with(Some(9), &|_| ()), [], "its request was not seen");
    }

    /// What does not hang together says nothing: no request, no handler, one for something else, or one that was first.
    #[test]
    fn what_does_not_fit() {
        let told = |sent: Option<u64>, handler: Option<(&str, u64)>| {
            let mut all = Witnesses::default();
            sent.into_iter().for_each(|at| all.sent(10, 7, 5, at));
            handler.into_iter().for_each(|(path, at)| all.handler(&path.into(), at, None));
            all.call(call(100, 200));
            all.conclude(1000)
        };
        assert_eq!(told(None, Some((PATH, 150))), []);
        assert_eq!(told(Some(120), None), []);
        assert_eq!(told(Some(120), Some((OTHER, 150))), []);
        assert_eq!(told(Some(120), Some((PATH, 119))), []);
        assert_eq!(told(Some(120), Some((PATH, 120))), lesson());
    }

    /// After a loss, only what began later counts; and what is kept has bounds.
    #[test]
    fn what_was_missed() {
        for at in [101, 150, 300] {
            let mut all = alone();
            all.missed(at);
            assert_eq!(all.conclude(1000), [], "missed at {at}");
        }
        let mut all = alone();
        all.missed(100);
        assert_eq!(all.conclude(1000), lesson());
        // A call that began before a loss and is told after it.
        let mut across = Witnesses::default();
        across.missed(110);
        across.sent(10, 7, 5, 120);
        across.handler(&PATH.into(), 150, None);
        across.call(call(100, 200));
        assert_eq!(across.conclude(1000), []);
        let mut many = alone();
        for stream in 0..=MOST as u64 {
            many.sent(11, 9, u32::try_from(stream).unwrap(), 300 + stream);
        }
        assert!(many.sent.len() <= MOST);
        assert_eq!(many.conclude(u64::MAX), [], "all is forgotten");
        let mut old = alone();
        old.call(call(90, KEPT_NS + 400));
        assert_eq!(old.conclude(KEPT_NS + 300), lesson());
        assert_eq!((old.sent.len(), old.handlers.len()), (0, 0));
        assert_eq!(old.conclude(KEPT_NS + 500), [], "others of its time are forgotten");
    }
}
