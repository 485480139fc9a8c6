//! [`Document`]: the top of the JSON document and the facts of the node.

use serde::Serialize;

use super::{
    bus::BusDoc,
    calls::{Open, Operation},
    census::CensusDoc,
    cpu::CpuDoc,
    facts::{CostDoc, LossDoc, RefusedDoc, all, component, layer, stopped},
    finding::DiagnosisDoc,
    messages::{MessagesDoc, OtherClientDoc},
    processes::ProcessesDoc,
    relist::RelistDoc,
    request::RequestDoc,
    stuck::StuckDoc,
    time::TimeDoc,
    verdict::LastSuccessfulList,
};
use crate::{
    correlate::{Joins, Snapshot, Tally, TracedState},
    decode::MonoNs,
    diagnose::Diagnosis,
    render::human,
};

/// Version of the format that the module documentation specifies.
pub const SCHEMA_VERSION: u32 = 2;

/// A moment on both clocks.
#[derive(Debug, Serialize)]
pub(super) struct At {
    mono_ns: u64,
    time: String,
}

impl At {
    pub(super) fn new(snapshot: &Snapshot, at: MonoNs) -> Self {
        Self { mono_ns: at.0, time: human::rfc3339(snapshot.wall_ns(at)) }
    }
}

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    schema_version: u32,
    tool_version: &'a str,
    node: &'a str,
    kernel: &'a str,
    taken_at: At,
    observed: Observed,
    diagnosis: DiagnosisDoc<'a>,
    last_successful_list: LastSuccessfulList,
    targets: Vec<TargetDoc<'a>>,
    stuck: Vec<StuckDoc<'a>>,
    open: Open<'a>,
    relists: Vec<RelistDoc<'a>>,
    requests: Vec<RequestDoc<'a>>,
    relist_time: TimeDoc<'a>,
    request_time: Option<TimeDoc<'a>>,
    operations: Vec<Operation<'a>>,
    processes: ProcessesDoc<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<MessagesDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grpc: Option<MessagesDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    docker: Option<MessagesDoc<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    other_clients: Vec<OtherClientDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bus: Option<BusDoc<'a>>,
    joins: JoinsDoc,
    census: CensusDoc<'a>,
    probes: Probes<'a>,
    refused: Vec<RefusedDoc<'a>>,
    losses: Vec<LossDoc<'a>>,
    tally: TallyDoc,
    cpu: CpuDoc<'a>,
    cost: Option<CostDoc>,
    stopped: Option<&'static str>,
}

impl<'a> Document<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, diagnosis: &'a Diagnosis) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: &snapshot.start.tool_version,
            node: &snapshot.start.node,
            kernel: &snapshot.start.kernel,
            taken_at: At::new(snapshot, snapshot.now),
            observed: Observed {
                from_at: snapshot.window.from.map(|from| At::new(snapshot, from)),
                window_ns: snapshot.window.ns(),
            },
            diagnosis: DiagnosisDoc::new(diagnosis, snapshot),
            last_successful_list: LastSuccessfulList::new(snapshot),
            targets: TargetDoc::list(snapshot),
            stuck: StuckDoc::list(diagnosis, snapshot),
            open: Open::new(snapshot),
            relists: snapshot.relists.iter().map(|relist| RelistDoc::new(relist, snapshot)).collect(),
            requests: snapshot.requests.iter().map(|request| RequestDoc::new(request, snapshot)).collect(),
            relist_time: TimeDoc::of_relists(&snapshot.relist_time),
            request_time: snapshot.request_time.as_ref().map(TimeDoc::of_requests),
            operations: snapshot.rows.iter().map(Operation::new).collect(),
            processes: ProcessesDoc::new(snapshot),
            messages: MessagesDoc::new(snapshot, &snapshot.messages),
            grpc: MessagesDoc::new(snapshot, &snapshot.grpc),
            docker: MessagesDoc::new(snapshot, &snapshot.docker),
            other_clients: OtherClientDoc::list(snapshot),
            bus: BusDoc::new(snapshot),
            joins: JoinsDoc::new(snapshot.joins),
            census: CensusDoc::of_snapshot(snapshot),
            probes: Probes::new(snapshot),
            refused: all(&snapshot.refused),
            losses: all(&snapshot.losses),
            tally: TallyDoc::new(snapshot.tally),
            cpu: CpuDoc::new(&snapshot.cpu),
            cost: snapshot.cost.map(CostDoc::from),
            stopped: snapshot.stop.map(|stop| stopped(stop.why)),
        }
    }
}

#[derive(Debug, Serialize)]
struct Observed {
    from_at: Option<At>,
    window_ns: u64,
}

#[derive(Debug, Serialize)]
struct TargetDoc<'a> {
    component: &'static str,
    pid: u32,
    exe: &'a str,
    version: Option<&'a str>,
    go_version: Option<&'a str>,
    socket: Option<&'a str>,
    unproved: bool,
    gone_at: Option<At>,
    gone_how: Option<&'a str>,
}

impl<'a> TargetDoc<'a> {
    fn list(snapshot: &'a Snapshot) -> Vec<Self> {
        let doc = |target: &'a crate::correlate::TracedProcess| {
            let (gone_at, gone_how) = match &target.state {
                TracedState::Live => (None, None),
                TracedState::Gone { at, how } => (Some(At::new(snapshot, *at)), Some(how.as_str())),
            };
            let fact = &target.fact;
            Self {
                component: component(fact.component),
                pid: fact.pid,
                exe: &fact.exe,
                version: fact.version.as_deref(),
                go_version: fact.go_version.as_deref(),
                socket: fact.socket.as_deref(),
                unproved: fact.unproved,
                gone_at,
                gone_how,
            }
        };
        snapshot.targets.iter().map(doc).collect()
    }
}

#[derive(Debug, Serialize)]
struct JoinsDoc {
    joined: u64,
    joined_by_stream: u64,
    ambiguous: u64,
    foreign: u64,
    own: u64,
}

impl JoinsDoc {
    fn new(joins: Joins) -> Self {
        Self {
            joined: joins.joined,
            joined_by_stream: joins.by_stream,
            ambiguous: joins.ambiguous,
            foreign: joins.foreign,
            own: joins.own,
        }
    }
}

#[derive(Debug, Serialize)]
struct Probes<'a> {
    mode: Option<&'a str>,
    sites: Option<u32>,
    took_ns: Option<u64>,
    hooks: Vec<HookDoc<'a>>,
}

#[derive(Debug, Serialize)]
struct HookDoc<'a> {
    index: u32,
    component: &'static str,
    layer: &'static str,
    operation: &'a str,
    symbol: &'a str,
    sites: u32,
    records: u64,
    hits: Option<u64>,
}

impl<'a> Probes<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let armed = snapshot.armed.as_ref();
        let hook = |state: &'a crate::correlate::HookState| HookDoc {
            index: state.hook.index,
            component: component(state.hook.component),
            layer: layer(state.hook.layer),
            operation: &state.hook.operation,
            symbol: &state.hook.symbol,
            sites: state.hook.sites,
            records: state.records,
            hits: state.counters.as_ref().map(|counters| counters.hits),
        };
        Self {
            mode: armed.map(|armed| armed.mode.as_str()),
            sites: armed.map(|armed| armed.sites),
            took_ns: armed.map(|armed| armed.took_ns),
            hooks: snapshot.hooks.iter().map(hook).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct TallyDoc {
    events: u64,
    calls: u64,
    covered: u64,
    marks: u64,
    unwound: u64,
    forgotten: u64,
    restarted: u64,
    processes: u64,
    facts: u64,
    parks: u64,
}

impl TallyDoc {
    fn new(tally: Tally) -> Self {
        let Tally { events, calls, covered, marks, unwound, forgotten, restarted, processes, facts, parks } =
            tally;
        Self { events, calls, covered, marks, unwound, forgotten, restarted, processes, facts, parks }
    }
}
