//! Open handlers → who still waits for them ([`Caller`]).
//!
//! The kubelet gives up a call after 2 minutes and tries again; the handler it gave up lives on in the runtime. Such a
//! handler began inside a client call that has failed and has no other handler, and no client call that is open now was
//! open at its start. A call that succeeded has had its answer: an open handler beside it is somebody else's. Where the streams
//! of both are known, they are the same.

use std::collections::HashMap;

use super::{
    caller::Caller,
    clients::Clients,
    inflight::Open,
    join::may_be_one,
    thresholds::{ABANDONED_AFTER_NS, SECOND_NS},
    trees::Hooks,
};
use crate::{
    decode::{Call, CallResult, MonoNs},
    input::Layer,
    span::{Span, SpanId},
};

/// A handler that has ended belongs to a client call that began at most so long before it. One that is open may have
/// waited for longer.
const NEAR_NS: u64 = SECOND_NS;

/// A finished client call.
struct Client {
    start: MonoNs,
    end: MonoNs,
    stream: Option<u32>,
    succeeded: bool,
    /// It has its handler.
    answered: bool,
}

/// What there is of one operation.
#[derive(Default)]
struct Operation {
    open: Vec<(SpanId, Option<u32>)>,
    ended: Vec<(MonoNs, MonoNs, Option<u32>)>,
    clients: Vec<Client>,
}

/// For each open handler that a finished client call has given up: when that call ended. `handlers` have ended.
pub(super) fn ended_clients<'a>(
    open: &Open,
    clients: &Clients,
    handlers: impl IntoIterator<Item = &'a Call>,
    hooks: &Hooks,
) -> HashMap<SpanId, MonoNs> {
    let mut operations: HashMap<&str, Operation> = HashMap::new();
    for entry in open.entries().filter(|entry| entry.is_open()) {
        if let Some(hook) = hooks.get(&entry.fact.hook).filter(|hook| hook.layer == Layer::Handler) {
            operations.entry(&hook.operation).or_default().open.push((entry.id().into(), entry.stream()));
        }
    }
    if operations.is_empty() {
        return HashMap::new();
    }
    for client in clients.innermost() {
        let Some(operation) = named(&mut operations, hooks, &client.call) else { continue };
        let (start, end) = (client.call.start, client.call.end);
        let succeeded = CallResult::of_flags(client.call.flags) == CallResult::Ok;
        let stream = client.call.stream;
        operation.clients.push(Client { start, end, stream, succeeded, answered: false });
    }
    if operations.values().flat_map(|operation| &operation.clients).all(|client| client.succeeded) {
        return HashMap::new();
    }
    for handler in handlers {
        if let Some(operation) = named(&mut operations, hooks, handler) {
            operation.ended.push((handler.start, handler.end, handler.stream));
        }
    }
    operations.into_values().flat_map(Operation::given_up).collect()
}

fn named<'a>(
    operations: &'a mut HashMap<&str, Operation>,
    hooks: &Hooks,
    call: &Call,
) -> Option<&'a mut Operation> {
    operations.get_mut(hooks.get(&call.hook)?.operation.as_str())
}

impl Operation {
    /// The open handlers that a client call has given up, and when.
    fn given_up(mut self) -> Vec<(SpanId, MonoNs)> {
        self.clients.sort_by_key(|client| client.start);
        self.ended.sort_unstable();
        self.open.sort_by_key(|(id, _)| id.start);
        for (start, end, stream) in std::mem::take(&mut self.ended) {
            let its = |client: &Client| {
                start.since(client.start) <= NEAR_NS && end <= client.end.plus(ABANDONED_AFTER_NS)
            };
            if let Some(client) = self.nearest((start, stream), its) {
                client.answered = true;
            }
        }
        let mut found = Vec::new();
        for (id, stream) in std::mem::take(&mut self.open) {
            if let Some(client) = self.nearest((id.start, stream), |client| !client.succeeded) {
                client.answered = true;
                found.push((id, client.end));
            }
        }
        found
    }

    /// The last client call to begin before the start of a handler, among those that were open then, have no handler yet and
    /// fit; one of the same stream before all others.
    fn nearest(
        &mut self,
        (start, stream): (MonoNs, Option<u32>),
        fits: impl Fn(&Client) -> bool,
    ) -> Option<&mut Client> {
        let began = self.clients.partition_point(|client| client.start <= start);
        let can_be = |client: &Client| {
            let open = !client.answered && start <= client.end && fits(client);
            open && may_be_one(client.stream, stream)
        };
        let before = &self.clients[..began];
        let exact =
            before.iter().rposition(|client| stream.is_some() && client.stream == stream && can_be(client));
        let place = exact.or_else(|| before.iter().rposition(can_be))?;
        self.clients.get_mut(place)
    }
}

/// Keeps what [`ended_clients`] finds, because the list of client calls forgets.
pub(super) fn remember<'a>(
    open: &mut Open,
    clients: &Clients,
    handlers: impl IntoIterator<Item = &'a Call>,
    hooks: &Hooks,
) {
    let ended = ended_clients(open, clients, handlers, hooks);
    for entry in open.entries_mut() {
        entry.client_ended = entry.client_ended.max(ended.get(&entry.id().into()).copied());
    }
}

/// Who waits for an open call, given the open client calls of its operation and what is known of finished ones?
pub(super) fn caller(
    span: &Span,
    waiting: &[(MonoNs, Option<u32>)],
    ended: Option<MonoNs>,
    client_seen: bool,
) -> Caller {
    let waits =
        |(start, stream): &(MonoNs, Option<u32>)| *start <= span.start() && may_be_one(*stream, span.stream);
    if span.layer() != Layer::Handler {
        Caller::NotAsked
    } else if waiting.iter().any(waits) {
        Caller::Waiting
    } else if let Some(end) = ended {
        Caller::Gone(end)
    } else if client_seen {
        Caller::Foreign
    } else {
        Caller::Unknown
    }
}
