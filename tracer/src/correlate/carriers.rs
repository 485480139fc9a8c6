//! [`Carriers`]: the requests on the wire that carried calls of the kubelet to the handlers that answered them.
//!
//! A call that was joined with its handler was carried by a request that its process sent after its start and before the
//! handler began, and whose answer was written after the handler ended and before the call did. Where exactly one request
//! is so, and its stream is that of the call if that is known, the time between the two is split by it; elsewhere it stays whole.

use std::collections::{HashMap, VecDeque};

use super::needed::Needed;
use crate::{
    cri::Method,
    decode::{Message, Request, RequestEnd},
    span::{Carried, JoinKey, Span},
};

#[derive(Clone, Copy, Debug)]
struct Carrier {
    method: Method,
    asker: u32,
    /// 0: not known.
    answerer: u32,
    carried: Carried,
}

/// Requests that were answered, by the end of most.
#[derive(Debug, Default)]
pub(super) struct Carriers(VecDeque<Carrier>);

impl Carriers {
    /// A request has ended. Of too many the oldest goes: its call is not split.
    pub(super) fn add(&mut self, request: &Request, most: usize) {
        let Message { id, asker, answerer, end, ref method, .. } = request.message;
        let Some(method) = Method::from_name(method).filter(|_| request.end == RequestEnd::Answered) else {
            return;
        };
        if self.0.len() >= most.max(1) {
            self.0.pop_front();
        }
        let key = JoinKey { socket: id.socket, stream: id.stream };
        let carried = Carried { key, sent: id.start, answered: end };
        self.0.push_back(Carrier { method, asker, answerer, carried });
    }

    /// Gives up what is not needed.
    pub(super) fn age(&mut self, needed: &Needed) {
        self.0.retain(|it| needed.wants(it.carried.sent, it.carried.answered));
    }

    /// How many are kept.
    pub(super) fn kept(&self) -> usize {
        self.0.len()
    }

    /// All of them, to be asked often.
    pub(super) fn index(&self) -> CarrierIndex<'_> {
        let mut all: HashMap<_, Vec<&Carrier>> = HashMap::new();
        for it in &self.0 {
            all.entry((it.asker, it.method)).or_default().push(it);
        }
        all.values_mut().for_each(|these| these.sort_unstable_by_key(|it| it.carried.sent));
        CarrierIndex(all)
    }
}

/// Requests by who asked and what for, each by when it was sent.
#[derive(Debug, Default)]
pub(super) struct CarrierIndex<'a>(HashMap<(u32, Method), Vec<&'a Carrier>>);

impl CarrierIndex<'_> {
    /// The request that carried `client` to `handler`, when no other can have done so.
    pub(super) fn between(&self, client: &Span, handler: &Span) -> Option<Carried> {
        let all = self.0.get(&(client.id.tgid, client.method()?))?;
        let from = all.partition_point(|it| it.carried.sent < client.start());
        let sent = all[from..].iter().take_while(|it| it.carried.sent <= handler.start());
        let mut fits = sent.filter(|it| {
            let theirs = it.answerer == 0 || it.answerer == handler.id.tgid;
            let same = client.stream.is_none_or(|stream| stream == it.carried.key.stream);
            let after = handler.end.is_some_and(|end| it.carried.answered >= end);
            theirs && same && after && client.end.is_none_or(|end| it.carried.answered <= end)
        });
        let (Some(only), None) = (fits.next(), fits.next()) else { return None };
        Some(only.carried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decode::{MessageId, MonoNs},
        span::{SpanKind, sample},
    };

    const CLIENT: u32 = 10;
    const SERVER: u32 = 20;

    fn request(start: u64, end: u64) -> Request {
        let message = Message {
            id: MessageId { socket: 7, stream: 5, start: MonoNs(start) },
            asker: CLIENT,
            answerer: SERVER,
            end: MonoNs(end),
            service: "runtime.v1.RuntimeService".to_owned(),
            method: "Status".to_owned(),
        };
        Request { message, end: RequestEnd::Answered, bytes: 0, answer_bytes: 0, of_other: false }
    }

    fn span(tgid: u32, start: u64, end: Option<u64>) -> Span {
        let mut span = sample::span(start, end, 0);
        let SpanKind::Call(hook) = &span.kind else { unreachable!() };
        let mut hook = (**hook).clone();
        hook.operation = "Status".into();
        (span.kind, span.id.tgid) = (SpanKind::Call(hook.into()), tgid);
        span
    }

    /// What a call from 100 to 200, answered by a handler from 130 to 160, was carried by: when it was sent and answered.
    fn carried(requests: &[Request]) -> Option<(u64, u64)> {
        let mut all = Carriers::default();
        requests.iter().for_each(|request| all.add(request, 100));
        let (client, handler) = (span(CLIENT, 100, Some(200)), span(SERVER, 130, Some(160)));
        let carried = all.index().between(&client, &handler)?;
        assert_eq!(carried.key, JoinKey { socket: 7, stream: 5 });
        Some((carried.sent.0, carried.answered.0))
    }

    /// One request between the call and its handler, on both ways.
    #[test]
    fn the_only_one() {
        assert_eq!(carried(&[request(110, 180)]), Some((110, 180)));
        assert_eq!(carried(&[request(100, 160)]), Some((100, 160)));
        for (start, end) in [(99, 180), (131, 180), (110, 159), (110, 201)] {
            assert_eq!(carried(&[request(start, end)]), None, "{start} to {end}");
            assert_eq!(carried(&[request(start, end), request(130, 200)]), Some((130, 200)));
        }
    }

    /// Two that fit say nothing; one of somebody else, to somebody else, for something else or without an answer is none.
    #[test]
    fn others() {
        assert_eq!(carried(&[request(110, 180), request(111, 181)]), None);
        let with = |change: &dyn Fn(&mut Request)| {
            let mut other = request(110, 180);
            change(&mut other);
            carried(&[other])
        };
        assert_eq!(with(&|it| it.message.asker = 11), None);
        assert_eq!(with(&|it| it.message.answerer = 21), None);
        assert_eq!(with(&|it| it.message.answerer = 0), Some((110, 180)));
        assert_eq!(with(&|it| it.message.method = "Version".to_owned()), None);
        assert_eq!(with(&|it| it.message.method = "unknown#3".to_owned()), None);
        assert_eq!(with(&|it| it.end = RequestEnd::Cut), None);
    }

    /// The stream of a call tells its request from others.
    #[test]
    fn by_its_stream() {
        let mut all = Carriers::default();
        let mut other = request(111, 181);
        other.message.id.stream = 9;
        [request(110, 180), other].iter().for_each(|request| all.add(request, 100));
        let sent = |stream| {
            let client = Span { stream, ..span(CLIENT, 100, Some(200)) };
            all.index().between(&client, &span(SERVER, 130, Some(160))).map(|it| it.key.stream)
        };
        assert_eq!([sent(None), sent(Some(5)), sent(Some(9)), sent(Some(7))], [None, Some(5), Some(9), None]);
    }

    /// An open call may have its answer already; an open handler has given none.
    #[test]
    fn open_ones() {
        let mut all = Carriers::default();
        all.add(&request(110, 180), 100);
        let index = all.index();
        assert!(index.between(&span(CLIENT, 100, None), &span(SERVER, 130, Some(160))).is_some());
        assert!(index.between(&span(CLIENT, 100, None), &span(SERVER, 130, None)).is_none());
    }

    /// What is kept has bounds, by count and by age.
    #[test]
    fn bounds() {
        let mut all = Carriers::default();
        (0..100).for_each(|n| all.add(&request(n, n + 10), 60));
        assert_eq!(all.kept(), 60);
        all.age(&Needed::new(MonoNs(100), std::iter::empty()));
        assert_eq!(all.kept(), 10, "those that ended at 100 or later");
    }
}
