//! Relists and their trees.

use serde::Serialize;

use super::doc::At;
use crate::{
    correlate::{ListOutcome, Relist, Snapshot},
    decode::CallResult,
    input::{Component, Layer},
    render::leaves::{Group, follows_parks, groups},
    span::{Account, Span, account, self_time_ns},
};

#[derive(Debug, Serialize)]
pub(super) struct RelistDoc<'a> {
    pid: u32,
    start_at: At,
    duration_ns: u64,
    open: bool,
    interval_ns: Option<u64>,
    list_phase_ns: Option<u64>,
    status_phase_ns: u64,
    status_pods: u64,
    calls: u64,
    failed_calls: u64,
    list: &'static str,
    misfits: u64,
    time: Option<Time>,
    tree: SpanDoc<'a>,
}

impl<'a> RelistDoc<'a> {
    pub(super) fn of(relist: &'a Relist, snapshot: &Snapshot) -> Self {
        let root = relist.root();
        Self {
            pid: root.id.tgid,
            start_at: At::of(snapshot, root.start()),
            duration_ns: root.duration_ns(snapshot.now),
            open: root.is_open(),
            interval_ns: relist.interval_ns,
            list_phase_ns: relist.list_ns,
            status_phase_ns: relist.status_ns,
            status_pods: relist.status_pods,
            calls: relist.calls,
            failed_calls: relist.failed_calls,
            list: match relist.list {
                ListOutcome::Ok => "ok",
                ListOutcome::Failed => "failed",
                ListOutcome::Pending => "pending",
                ListOutcome::Unknown => "unknown",
            },
            misfits: relist.tree.misfits,
            time: follows_parks(snapshot).then(|| Time::of(account(root, snapshot.now))),
            tree: SpanDoc::of(root, snapshot),
        }
    }
}

#[derive(Debug, Serialize)]
struct SpanDoc<'a> {
    component: Component,
    layer: Layer,
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
struct Time {
    not_parked_ns: u64,
    parked_ns: u64,
    transport_ns: u64,
    short_parks_ns: u64,
    unexplained_ns: u64,
}

impl Time {
    fn of(account: Account) -> Self {
        let Account { not_parked_ns, parked_ns, transport_ns, short_ns, unexplained_ns } = account;
        Self { not_parked_ns, parked_ns, transport_ns, short_parks_ns: short_ns, unexplained_ns }
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
    fn of(group: &Group<'a>) -> Self {
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
    fn of(span: &'a Span, snapshot: &Snapshot) -> Self {
        let now = snapshot.now;
        let leaves = if follows_parks(snapshot) { groups(&[span], now) } else { Vec::new() };
        Self {
            component: span.component(),
            layer: span.layer(),
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
            leaves: leaves.iter().map(LeafDoc::of).collect(),
            children: span.children.iter().map(|child| Self::of(child, snapshot)).collect(),
        }
    }
}
