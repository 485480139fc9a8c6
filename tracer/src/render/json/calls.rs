//! Open calls, and the tables of finished ones.

use serde::Serialize;

use super::{
    doc::At,
    facts::{component, layer},
};
use crate::{
    correlate::{Caller, OpenCall, Request, RpcRow, Side, Snapshot},
    input::{HookCounters, Liveness},
};

#[derive(Debug, Serialize)]
pub(super) struct Open<'a> {
    read_at: Option<At>,
    complete: bool,
    calls: Vec<OpenDoc<'a>>,
    untraced: Vec<UntracedDoc>,
    ended_unseen: u64,
    unwound: u64,
    process_exited: u64,
}

/// Calls that began before the probes.
#[derive(Debug, Serialize)]
struct UntracedDoc {
    component: &'static str,
    operation: String,
    pid: u32,
    count: u32,
    goroutines: Vec<u64>,
    age_ns: u64,
    at_least: bool,
}

impl From<Request> for UntracedDoc {
    fn from(request: Request) -> Self {
        Self {
            component: component(request.component),
            operation: request.operation,
            pid: request.pid,
            count: request.count,
            goroutines: request.goids,
            age_ns: request.since.ns,
            at_least: request.since.at_least,
        }
    }
}

#[derive(Debug, Serialize)]
struct OpenDoc<'a> {
    component: &'static str,
    layer: &'static str,
    operation: &'a str,
    pid: u32,
    goroutine: u64,
    start_at: At,
    age_ns: u64,
    caller: &'static str,
    caller_gone_at: Option<At>,
    abandoned: bool,
    replied: bool,
    long_lived: bool,
    goroutine_checked: bool,
}

impl<'a> Open<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let closed = snapshot.closed_unseen;
        Self {
            read_at: snapshot.open_read_at.map(|at| At::new(snapshot, at)),
            complete: snapshot.open_complete,
            calls: snapshot.open.iter().map(|call| OpenDoc::new(call, snapshot)).collect(),
            untraced: snapshot.untraced().into_iter().map(UntracedDoc::from).collect(),
            ended_unseen: closed.ended_unseen,
            unwound: closed.unwound,
            process_exited: closed.process_exited,
        }
    }
}

impl<'a> OpenDoc<'a> {
    fn new(call: &'a OpenCall, snapshot: &Snapshot) -> Self {
        let span = &call.span;
        let gone = match call.caller {
            Caller::Gone(at) => Some(At::new(snapshot, at)),
            _ => None,
        };
        Self {
            component: component(span.component()),
            layer: layer(span.layer()),
            operation: span.operation(),
            pid: span.id.tgid,
            goroutine: span.id.goid,
            start_at: At::new(snapshot, span.start()),
            age_ns: call.age_ns,
            caller: caller(call.caller),
            caller_gone_at: gone,
            abandoned: call.is_abandoned(snapshot.now),
            replied: call.replied,
            long_lived: span.is_long_lived(),
            goroutine_checked: span.liveness == Some(Liveness::Alive),
        }
    }
}

/// Stable name of who waits.
pub(super) fn caller(caller: Caller) -> &'static str {
    match caller {
        Caller::NotAsked => "not_asked",
        Caller::Waiting => "waiting",
        Caller::Gone(_) => "gone",
        Caller::Foreign => "foreign",
        Caller::Own => "own",
        Caller::Unknown => "unknown",
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Operation<'a> {
    side: &'static str,
    component: &'static str,
    pid: u32,
    operation: &'a str,
    service: &'a str,
    count: u64,
    failed: u64,
    unknown_result: u64,
    sum_ns: u64,
    max_ns: u64,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    log2_ns: &'a [u64],
    unwound: u64,
    kernel: Option<Kernel<'a>>,
}

#[derive(Debug, Serialize)]
struct Kernel<'a> {
    hits: u64,
    calls: u64,
    failed: u64,
    unmatched: u64,
    sum_ns: u64,
    max_ns: u64,
    log2_ns: &'a [u64],
}

impl<'a> Operation<'a> {
    pub(super) fn new(row: &'a RpcRow) -> Self {
        let latency = &row.latency;
        Self {
            side: match row.key.side {
                Side::Relist => "relist",
                Side::PodRelist => "pod_relist",
                Side::Phase => "phase",
                Side::Counted => "counted",
                Side::Bare => "bare",
                Side::Server => "server",
                Side::RuncPhase => "runc_phase",
            },
            component: component(row.key.component),
            pid: row.key.tgid,
            operation: &row.key.operation,
            service: &row.key.service,
            count: latency.count(),
            failed: row.failed,
            unknown_result: row.unknown,
            sum_ns: latency.sum_ns(),
            max_ns: latency.max_ns(),
            p50_ns: latency.quantile_ns(0.5),
            p90_ns: latency.quantile_ns(0.9),
            p99_ns: latency.quantile_ns(0.99),
            log2_ns: trimmed(latency.buckets()),
            unwound: row.unwound,
            kernel: row.kernel.as_ref().map(Kernel::new),
        }
    }
}

impl<'a> Kernel<'a> {
    fn new(counters: &'a HookCounters) -> Self {
        Self {
            hits: counters.hits,
            calls: counters.calls,
            failed: counters.failed,
            unmatched: counters.unmatched,
            sum_ns: counters.sum_ns,
            max_ns: counters.max_ns,
            log2_ns: trimmed(&counters.buckets),
        }
    }
}

/// Without trailing zeros.
pub(super) fn trimmed(buckets: &[u64]) -> &[u64] {
    let len = buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    &buckets[..len]
}
