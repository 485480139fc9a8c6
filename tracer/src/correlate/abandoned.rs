//! Open handlers → who still waits for them ([`Caller`]).
//!
//! The kubelet gives up a call after 2 minutes and tries again; the handler it gave up lives on in the runtime. Such a
//! handler began inside a client call that has ended, and no client call that is open now was open at its start.

use std::collections::HashMap;

use super::{caller::Caller, clients::Clients, inflight::Open, trees::Hooks};
use crate::{
    decode::MonoNs,
    input::Layer,
    span::{Span, SpanId},
};

/// For each open handler that began inside a finished client call of its operation: when the last such call ended.
pub(super) fn ended_clients(open: &Open, clients: &Clients, hooks: &Hooks) -> HashMap<SpanId, MonoNs> {
    let mut handlers: HashMap<&str, Vec<SpanId>> = HashMap::new();
    for entry in open.entries().filter(|entry| entry.is_open()) {
        if let Some(hook) = hooks.get(&entry.fact.hook).filter(|hook| hook.layer == Layer::Handler) {
            handlers.entry(&hook.operation).or_default().push(entry.id().into());
        }
    }
    handlers.values_mut().for_each(|ids| ids.sort_by_key(|id| id.start));
    let mut ended = HashMap::new();
    if handlers.is_empty() {
        return ended;
    }
    for client in clients.innermost() {
        let Some(hook) = hooks.get(&client.call.hook) else { continue };
        let Some(ids) = handlers.get(hook.operation.as_str()) else { continue };
        let first = ids.partition_point(|id| id.start < client.call.start);
        for id in ids[first..].iter().take_while(|id| id.start <= client.call.end) {
            let end = ended.entry(*id).or_insert(client.call.end);
            *end = client.call.end.max(*end);
        }
    }
    ended
}

/// Keeps what [`ended_clients`] finds, because the list of client calls forgets.
pub(super) fn remember(open: &mut Open, clients: &Clients, hooks: &Hooks) {
    let ended = ended_clients(open, clients, hooks);
    for entry in open.entries_mut() {
        entry.client_ended = entry.client_ended.max(ended.get(&entry.id().into()).copied());
    }
}

/// Who waits for an open call, given the open client calls of its operation and what is known of finished ones?
pub(super) fn caller(span: &Span, waiting: &[MonoNs], ended: Option<MonoNs>, client_seen: bool) -> Caller {
    if span.layer() != Layer::Handler {
        Caller::NotAsked
    } else if waiting.iter().any(|start| *start <= span.start()) {
        Caller::Waiting
    } else if let Some(end) = ended {
        Caller::Gone(end)
    } else if client_seen {
        Caller::Foreign
    } else {
        Caller::Unknown
    }
}
