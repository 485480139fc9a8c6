//! Spans with what they consist of, and sums over a tree of them.

use serde::Serialize;

use super::facts::{component, layer};
use crate::{
    correlate::Snapshot,
    decode::CallResult,
    render::leaves::{Group, follows_parks, groups},
    span::{Account, Span, account, self_time_ns},
};

#[derive(Debug, Serialize)]
pub(super) struct SpanDoc<'a> {
    component: &'static str,
    layer: &'static str,
    operation: &'a str,
    pid: u32,
    goroutine: u64,
    start_ns: u64,
    duration_ns: u64,
    self_ns: u64,
    open: bool,
    result: &'static str,
    leaves: Vec<LeafDoc<'a>>,
    children: Vec<SpanDoc<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Time {
    not_parked_ns: u64,
    parked_ns: u64,
    transport_ns: u64,
    short_parks_ns: u64,
    process_ns: u64,
    unexplained_ns: u64,
}

impl Time {
    /// `None` when parks are not followed.
    pub(super) fn new(root: &Span, snapshot: &Snapshot) -> Option<Self> {
        follows_parks(snapshot).then(|| Self::sums(account(root, snapshot.now)))
    }

    fn sums(account: Account) -> Self {
        let Account { not_parked_ns, parked_ns, transport_ns, short_ns, process_ns, unexplained_ns } =
            account;
        Self { not_parked_ns, parked_ns, transport_ns, short_parks_ns: short_ns, process_ns, unexplained_ns }
    }
}

#[derive(Debug, Serialize)]
struct LeafDoc<'a> {
    kind: &'static str,
    sum_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_reason: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<&'a [String]>,
}

impl<'a> LeafDoc<'a> {
    fn new(group: &Group<'a>) -> Self {
        let park = group.park;
        Self {
            kind: group.kind.name(),
            sum_ns: group.ns,
            count: park.map(|_| group.count),
            open: park.map(|_| group.open),
            wait_reason: park.map(|park| park.reason),
            stack: park.map(|park| &*park.stack),
        }
    }
}

impl<'a> SpanDoc<'a> {
    pub(super) fn new(span: &'a Span, snapshot: &Snapshot) -> Self {
        let now = snapshot.now;
        let leaves = if follows_parks(snapshot) { groups(&[span], now) } else { Vec::new() };
        Self {
            component: component(span.component()),
            layer: layer(span.layer()),
            operation: span.operation(),
            pid: span.id.tgid,
            goroutine: span.id.goid,
            start_ns: span.start().0,
            duration_ns: span.duration_ns(now),
            self_ns: self_time_ns(span, now),
            open: span.is_open(),
            result: match span.result {
                CallResult::Ok => "ok",
                CallResult::Failed => "failed",
                CallResult::Unknown => "unknown",
            },
            leaves: leaves.iter().map(LeafDoc::new).collect(),
            children: span.children.iter().map(|child| Self::new(child, snapshot)).collect(),
        }
    }
}
