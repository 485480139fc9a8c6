//! Handlers of the runtime ↔ client calls of the kubelet, only where nothing else is possible.
//!
//! A client call and a handler of the same operation belong together when the handler lies in the client call and both have
//! the same stream. Where the stream of one of them is not known, they do only when the handler fits into no other client
//! call, and no other handler fits into the client call.

use std::collections::HashMap;

use super::{carriers::CarrierIndex, own::OwnCalls};
use crate::{
    decode::MonoNs,
    span::{Span, SpanId},
};

/// More client calls of one operation at once than this are not told apart.
const MAX_AT_ONCE: usize = 256;

/// Handlers brought together with client calls of the kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joins {
    /// Exactly one client call and one handler fit each other.
    pub joined: u64,
    /// Of these, those that have the same stream on both sides; the others by time alone.
    pub by_stream: u64,
    /// More than one fits: not joined.
    pub ambiguous: u64,
    /// No client call fits: other callers.
    pub foreign: u64,
    /// The census itself called.
    pub own: u64,
}

/// Pairs that belong together: the handler of each client call.
#[derive(Debug, Default)]
pub(super) struct Joined {
    pub(super) answers: HashMap<SpanId, Span>,
    /// Handlers that answer no client call for certain, and whether they may answer one.
    pub(super) loose: Vec<(Span, bool)>,
    pub(super) counts: Joins,
}

impl Joined {
    fn answer(&mut self, client: &Span, handler: Span, carriers: &CarrierIndex<'_>) {
        self.counts.joined += 1;
        let carried = carriers.between(client, &handler);
        self.answers.insert(client.id, Span { carried, ..handler });
    }
}

/// Brings `handlers` and the innermost client calls together. Long-lived operations have no part in it.
pub(super) fn join(
    clients: Vec<Span>,
    handlers: Vec<Span>,
    own: &mut OwnCalls,
    carriers: &CarrierIndex<'_>,
) -> Joined {
    let mut by_operation: HashMap<String, (Vec<Span>, Vec<Span>)> = HashMap::new();
    for client in clients.into_iter().filter(|span| !span.is_long_lived()) {
        by_operation.entry(client.operation().to_owned()).or_default().0.push(client);
    }
    for handler in handlers.into_iter().filter(|span| !span.is_long_lived()) {
        by_operation.entry(handler.operation().to_owned()).or_default().1.push(handler);
    }
    let mut joined = Joined::default();
    for (clients, handlers) in by_operation.into_values() {
        one_operation(clients, handlers, own, carriers, &mut joined);
    }
    joined
}

/// Who can have called a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Nobody,
    /// This client call, and it can have called no other handler.
    Only(usize),
    Several,
}

fn one_operation(
    mut clients: Vec<Span>,
    mut handlers: Vec<Span>,
    own: &mut OwnCalls,
    carriers: &CarrierIndex<'_>,
    joined: &mut Joined,
) {
    clients.sort_by_key(|span| span.id.start);
    handlers.sort_by_key(|span| (span.id.start, span.id));
    let by_stream = compare(&clients, &handlers, |client, handler| {
        client.stream.is_some() && client.stream == handler.stream && could_call(client, handler)
    });
    let mut taken = vec![false; clients.len()];
    let mut rest = Vec::new();
    for (handler, fit) in handlers.into_iter().zip(by_stream) {
        if let Fit::Only(client) = fit {
            taken[client] = true;
            joined.counts.by_stream += 1;
            joined.answer(&clients[client], handler, carriers);
        } else {
            rest.push(handler);
        }
    }
    let mut taken = taken.into_iter();
    clients.retain(|_| taken.next() == Some(false));
    let by_time = compare(&clients, &rest, |client, handler| {
        may_be_one(client.stream, handler.stream) && could_call(client, handler)
    });
    for (handler, fit) in rest.into_iter().zip(by_time) {
        match fit {
            Fit::Only(client) => joined.answer(&clients[client], handler, carriers),
            Fit::Nobody if own.take(&handler) => joined.counts.own += 1,
            Fit::Nobody => {
                joined.counts.foreign += 1;
                joined.loose.push((handler, false));
            }
            Fit::Several => {
                joined.counts.ambiguous += 1;
                joined.loose.push((handler, true));
            }
        }
    }
}

/// Which of `clients` fits each of `handlers`; both by their start.
fn compare(clients: &[Span], handlers: &[Span], fits: impl Fn(&Span, &Span) -> bool) -> Vec<Fit> {
    let mut fit = vec![Fit::Nobody; handlers.len()];
    // How many handlers fit into each. One of a crowd may be the caller of handlers that were not compared.
    let mut callees = vec![0usize; clients.len()];
    let mut active: Vec<usize> = Vec::new();
    let mut next = 0;
    for (handler, fit) in handlers.iter().zip(&mut fit) {
        while next < clients.len() && clients[next].id.start <= handler.id.start {
            active.push(next);
            next += 1;
        }
        active.retain(|&client| clients[client].end.is_none_or(|end| end >= handler.id.start));
        if active.len() > MAX_AT_ONCE {
            *fit = Fit::Several;
            active.iter().for_each(|&client| callees[client] = usize::MAX);
            continue;
        }
        for &client in active.iter().filter(|&&client| fits(&clients[client], handler)) {
            *fit = if *fit == Fit::Nobody { Fit::Only(client) } else { Fit::Several };
            callees[client] = callees[client].saturating_add(1);
        }
    }
    let alone = |fit| match fit {
        Fit::Only(client) if callees[client] != 1 => Fit::Several,
        fit => fit,
    };
    fit.into_iter().map(alone).collect()
}

/// Can what was sent as the first stream have come in as the second?
pub(super) fn may_be_one(sent: Option<u32>, came: Option<u32>) -> bool {
    sent.is_none() || came.is_none() || sent == came
}

/// Could this client call have caused this handler? An open handler needs a caller that still waits.
fn could_call(client: &Span, handler: &Span) -> bool {
    client.covers(handler) && client.end.unwrap_or(MonoNs(u64::MAX)) >= handler.id.start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{SpanKind, Tree};

    fn join(clients: Vec<Span>, handlers: Vec<Span>) -> Joined {
        super::join(clients, handlers, &mut OwnCalls::default(), &CarrierIndex::default())
    }

    fn span(tgid: u32, start: u64, end: Option<u64>) -> Span {
        let mut span = crate::span::sample::span(start, end, 10);
        let SpanKind::Call(hook) = &span.kind else { unreachable!() };
        let mut hook = (**hook).clone();
        hook.operation = "ListContainers".into();
        span.kind = SpanKind::Call(hook.into());
        span.id.tgid = tgid;
        span
    }

    /// One client call, one handler inside it: they belong together.
    #[test]
    fn alone_they_join() {
        let joined = join(vec![span(1, 10, Some(90))], vec![span(2, 20, Some(80))]);
        assert_eq!((joined.counts.joined, joined.counts.ambiguous), (1, 0));
        let mut answers = joined.answers;
        let mut tree = Tree::build(span(1, 0, Some(100)), Vec::new());
        tree.root.children.push(span(1, 10, Some(90)));
        tree.graft(&mut answers);
        assert_eq!(tree.root.children[0].children[0].id.tgid, 2);
    }

    /// A handler that fits into two client calls joins none.
    #[test]
    fn two_callers_are_ambiguous() {
        let joined = join(vec![span(1, 10, Some(90)), span(1, 15, None)], vec![span(2, 20, Some(80))]);
        assert_eq!((joined.counts.joined, joined.counts.ambiguous), (0, 1));
    }

    /// A client call into which two handlers fit joins none: somebody else may have called one of them.
    #[test]
    fn two_handlers_are_ambiguous() {
        let joined = join(vec![span(1, 10, Some(90))], vec![span(2, 20, Some(80)), span(2, 30, Some(40))]);
        assert_eq!((joined.counts.joined, joined.counts.ambiguous), (0, 2));
    }

    fn sent(stream: u32, start: u64, end: Option<u64>) -> Span {
        Span { stream: Some(stream), ..span(1, start, end) }
    }

    fn came(stream: u32, start: u64, end: Option<u64>) -> Span {
        Span { stream: Some(stream), ..span(2, start, end) }
    }

    /// Who answers whom, by their starts.
    fn pairs(clients: Vec<Span>, handlers: Vec<Span>) -> (Vec<(u64, u64)>, Joins) {
        let joined = join(clients, handlers);
        let mut pairs: Vec<_> =
            joined.answers.iter().map(|(client, handler)| (client.start.0, handler.start().0)).collect();
        pairs.sort_unstable();
        (pairs, joined.counts)
    }

    /// Streams tell apart what time does not: two calls at once, and the call of somebody else beside one.
    #[test]
    fn streams_tell_calls_apart() {
        let clients = || vec![sent(3, 10, Some(90)), sent(5, 15, None)];
        let (both, counts) = pairs(clients(), vec![came(5, 20, None), came(3, 30, Some(80))]);
        assert_eq!(both, [(10, 30), (15, 20)]);
        assert_eq!(counts, Joins { joined: 2, by_stream: 2, ..Joins::default() });
        let (mine, counts) =
            pairs(vec![sent(9, 10, Some(90))], vec![came(1, 20, Some(80)), came(9, 30, Some(40))]);
        assert_eq!(mine, [(10, 30)]);
        assert_eq!(counts, Joins { joined: 1, by_stream: 1, foreign: 1, ..Joins::default() });
    }

    /// The same stream of two connections at once tells nothing; nor does a stream at another time.
    #[test]
    fn the_same_stream_twice() {
        let two = vec![sent(3, 10, Some(90)), sent(3, 15, Some(95))];
        assert_eq!(pairs(two, vec![came(3, 20, Some(80))]).1, Joins { ambiguous: 1, ..Joins::default() });
        let one = vec![sent(3, 10, Some(90))];
        let (none, counts) = pairs(one, vec![came(3, 20, Some(80)), came(3, 30, Some(40))]);
        assert_eq!((none.len(), counts), (0, Joins { ambiguous: 2, ..Joins::default() }));
        let later = pairs(vec![sent(3, 10, Some(90))], vec![came(3, 100, Some(110))]).1;
        assert_eq!(later, Joins { foreign: 1, ..Joins::default() });
    }

    /// Where one side has no stream, time decides as before, among those that no stream has brought together.
    #[test]
    fn one_without_a_stream() {
        let clients = vec![sent(3, 10, Some(90)), span(1, 15, None)];
        let (both, counts) = pairs(clients, vec![came(3, 20, Some(80)), span(2, 30, None)]);
        assert_eq!(both, [(10, 20), (15, 30)]);
        assert_eq!(counts, Joins { joined: 2, by_stream: 1, ..Joins::default() });
        let (time, counts) = pairs(vec![span(1, 10, Some(90))], vec![came(3, 20, Some(80))]);
        assert_eq!((time.len(), counts.by_stream), (1, 0));
        let (none, _) = pairs(vec![sent(5, 10, Some(90))], vec![came(3, 20, Some(80))]);
        assert_eq!(none.len(), 0, "another stream is another call");
    }

    /// A handler outside every client call has another caller; so has an open one whose caller has ended.
    #[test]
    fn others_are_foreign() {
        let joined = join(vec![span(1, 10, Some(50))], vec![span(2, 20, Some(80)), span(2, 30, None)]);
        assert_eq!(joined.counts, Joins { foreign: 2, ..Joins::default() });
    }

    /// A crowd of callers is not searched through, and joins nothing.
    #[test]
    fn crowds_are_ambiguous() {
        let clients = (0..1000).map(|n| span(1, n, None)).collect();
        let joined = join(clients, vec![span(2, 5000, None), span(2, 500, Some(600))]);
        assert_eq!(joined.counts, Joins { ambiguous: 2, ..Joins::default() });
    }
}
