//! Requests between runtime and shims, between kubelet and runtime, and to Docker.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{calls::trimmed, doc::At};
use crate::{
    correlate::{MessageRow, Messages, OpenMessage, OtherClient, Snapshot},
    decode::MonoNs,
};

#[derive(Debug, Serialize)]
pub(super) struct MessagesDoc<'a> {
    read_at: At,
    complete: bool,
    methods: Vec<MethodDoc<'a>>,
    open: Vec<OpenDoc<'a>>,
}

#[derive(Debug, Serialize)]
struct MethodDoc<'a> {
    service: &'a str,
    method: &'a str,
    count: u64,
    unanswered: u64,
    answer_bytes: u64,
    open: u64,
    sum_ns: u64,
    max_ns: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    log2_ns: &'a [u64],
}

#[derive(Debug, Serialize)]
struct OpenDoc<'a> {
    service: &'a str,
    method: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    container: &'a str,
    start_at: At,
    age_ns: u64,
    pid: u32,
    answerer_pid: Option<u32>,
    socket: u64,
    stream: u32,
    unsent: bool,
    unread: Option<u32>,
    unread_by_answerer: Option<u32>,
    long_lived: bool,
}

impl<'a> MessagesDoc<'a> {
    /// `None` when they are not followed.
    pub(super) fn new(snapshot: &Snapshot, messages: &'a Messages) -> Option<Self> {
        Some(Self {
            read_at: At::new(snapshot, messages.read_at?),
            complete: messages.complete,
            methods: messages.rows.iter().map(MethodDoc::new).collect(),
            open: messages.open.iter().map(|open| OpenDoc::new(open, snapshot)).collect(),
        })
    }
}

/// Clients of the runtime that are not traced.
#[derive(Debug, Serialize)]
pub(super) struct OtherClientDoc<'a> {
    name: &'a str,
    pids: &'a BTreeSet<u32>,
    #[serde(flatten)]
    requests: MessagesDoc<'a>,
}

impl<'a> OtherClientDoc<'a> {
    pub(super) fn list(snapshot: &'a Snapshot) -> Vec<Self> {
        let doc = |client: &'a OtherClient| {
            let requests = MessagesDoc::new(snapshot, &client.requests)?;
            Some(Self { name: &client.name, pids: &client.pids, requests })
        };
        snapshot.other_clients.iter().filter_map(doc).collect()
    }
}

impl<'a> MethodDoc<'a> {
    fn new(row: &'a MessageRow) -> Self {
        let latency = &row.latency;
        Self {
            service: &row.service,
            method: &row.method,
            count: latency.count(),
            unanswered: row.unanswered,
            answer_bytes: row.answer_bytes,
            open: row.open,
            sum_ns: latency.sum_ns(),
            max_ns: latency.max_ns(),
            p50_ns: latency.quantile_ns(0.5),
            p99_ns: latency.quantile_ns(0.99),
            log2_ns: trimmed(latency.buckets()),
        }
    }
}

impl<'a> OpenDoc<'a> {
    fn new(open: &'a OpenMessage, snapshot: &Snapshot) -> Self {
        let fact = &open.fact;
        Self {
            service: &fact.service,
            method: &fact.method,
            container: &fact.container,
            start_at: At::new(snapshot, MonoNs(fact.start_ns)),
            age_ns: open.age_ns,
            pid: fact.asker,
            answerer_pid: (fact.answerer != 0).then_some(fact.answerer),
            socket: fact.socket,
            stream: fact.stream,
            unsent: fact.unsent,
            unread: fact.unread,
            unread_by_answerer: fact.unread_by_answerer,
            long_lived: open.is_long_lived,
        }
    }
}
