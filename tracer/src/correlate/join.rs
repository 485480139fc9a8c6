//! Handlers of the runtime ↔ client calls of the kubelet, by containment in time, only where nothing else is possible.
//!
//! Without the stream id of the wire a client call and a handler of the same operation belong together for certain only
//! when the handler fits into no other client call, and no other handler fits into the client call.

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

/// How many handlers fit into a client call; a poisoned one might be the caller of handlers that were not compared.
#[derive(Clone, Copy, Default)]
struct Fits {
    handlers: usize,
    poisoned: bool,
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
    let mut fits = vec![Fits::default(); clients.len()];
    let mut only: Vec<Option<usize>> = vec![None; handlers.len()];
    let mut candidates = vec![0usize; handlers.len()];
    let mut active: Vec<usize> = Vec::new();
    let mut next = 0;
    for (place, handler) in handlers.iter().enumerate() {
        while next < clients.len() && clients[next].id.start <= handler.id.start {
            active.push(next);
            next += 1;
        }
        active.retain(|&client| clients[client].end.is_none_or(|end| end >= handler.id.start));
        if active.len() > MAX_AT_ONCE {
            candidates[place] = active.len();
            active.iter().for_each(|&client| fits[client].poisoned = true);
            continue;
        }
        for &client in active.iter().filter(|&&client| could_call(&clients[client], handler)) {
            candidates[place] += 1;
            fits[client].handlers += 1;
            only[place] = Some(client);
        }
    }
    for ((handler, only), candidates) in handlers.into_iter().zip(only).zip(candidates) {
        match (candidates, only) {
            (0, _) if own.take(&handler) => joined.counts.own += 1,
            (0, _) => {
                joined.counts.foreign += 1;
                joined.loose.push((handler, false));
            }
            (1, Some(client)) if fits[client].handlers == 1 && !fits[client].poisoned => {
                joined.counts.joined += 1;
                let carried = carriers.between(&clients[client], &handler);
                joined.answers.insert(clients[client].id, Span { carried, ..handler });
            }
            _ => {
                joined.counts.ambiguous += 1;
                joined.loose.push((handler, true));
            }
        }
    }
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

    /// A handler outside every client call has another caller; so has an open one whose caller has ended.
    #[test]
    fn others_are_foreign() {
        let joined = join(vec![span(1, 10, Some(50))], vec![span(2, 20, Some(80)), span(2, 30, None)]);
        assert_eq!(joined.counts, Joins { joined: 0, ambiguous: 0, foreign: 2, own: 0 });
    }

    /// A crowd of callers is not searched through, and joins nothing.
    #[test]
    fn crowds_are_ambiguous() {
        let clients = (0..1000).map(|n| span(1, n, None)).collect();
        let joined = join(clients, vec![span(2, 5000, None), span(2, 500, Some(600))]);
        assert_eq!(joined.counts, Joins { joined: 0, ambiguous: 2, foreign: 0, own: 0 });
    }
}
