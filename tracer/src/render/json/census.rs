//! What the census found.

use serde::Serialize;

use super::{
    facts::{CommandDoc, ContainerDoc, FreezerDoc, HolderDoc, ParkDoc, PipeDoc, SocketDoc, all, component},
    loops::LoopsDoc,
    stuck::RequestDoc,
};
use crate::{
    correlate::{ProcessSeen, Snapshot},
    input::{
        CensusFact, EndedInit, GoroutineGroup, GoroutinesFact, IdOnStack, OwnCall, Pressure,
        RuntimeCondition, RuntimeSays, RuntimeState, Subject, Unanswered, Unkillable, VersionFact,
    },
};

#[derive(Debug, Serialize)]
pub(super) struct CensusDoc<'a> {
    rounds: u64,
    versions: Vec<VersionDoc<'a>>,
    round: Option<RoundDoc<'a>>,
    requests: Vec<RequestDoc<'a>>,
    processes: Vec<ProcessDoc<'a>>,
    by_hand: Vec<ByHandDoc<'a>>,
    goroutines: Vec<GoroutinesDoc<'a>>,
    loops: Vec<LoopsDoc<'a>>,
}

impl<'a> CensusDoc<'a> {
    pub(super) fn of_snapshot(snapshot: &'a Snapshot) -> Self {
        let census = &snapshot.census;
        Self {
            rounds: census.rounds,
            versions: all(&census.versions),
            round: census.round.as_ref().map(RoundDoc::from),
            requests: census.requests.iter().map(RequestDoc::new).collect(),
            processes: all(&census.processes),
            by_hand: all(&census.by_hand),
            goroutines: all(&census.goroutines),
            loops: all(&census.loops),
        }
    }
}

#[derive(Debug, Serialize)]
struct VersionDoc<'a> {
    program: &'a str,
    version: &'a str,
}

impl<'a> From<&'a VersionFact> for VersionDoc<'a> {
    fn from(fact: &'a VersionFact) -> Self {
        Self { program: &fact.program, version: &fact.version }
    }
}

#[derive(Debug, Serialize)]
struct RoundDoc<'a> {
    began_ns: u64,
    ended_ns: u64,
    processes: u32,
    cut: bool,
    unanswered: Vec<UnansweredDoc<'a>>,
    left_out: u32,
    containers: Vec<ContainerDoc<'a>>,
    pressure: Option<PressureDoc>,
    versions: Vec<VersionDoc<'a>>,
    says: Option<SaysDoc<'a>>,
    ended: Vec<EndedDoc<'a>>,
    unkillable: Vec<UnkillableDoc<'a>>,
}

impl<'a> From<&'a CensusFact> for RoundDoc<'a> {
    fn from(fact: &'a CensusFact) -> Self {
        Self {
            began_ns: fact.began_ns,
            ended_ns: fact.ended_ns,
            processes: fact.processes,
            cut: fact.cut,
            unanswered: all(&fact.unanswered),
            left_out: fact.left_out,
            containers: all(&fact.containers),
            pressure: fact.pressure.map(PressureDoc::from),
            versions: all(&fact.versions),
            says: fact.says.as_ref().map(SaysDoc::from),
            ended: all(&fact.ended),
            unkillable: all(&fact.unkillable),
        }
    }
}

#[derive(Debug, Serialize)]
struct UnkillableDoc<'a> {
    pid: u32,
    comm: &'a str,
    container: Option<ContainerDoc<'a>>,
    park: ParkDoc<'a>,
}

impl<'a> From<&'a Unkillable> for UnkillableDoc<'a> {
    fn from(fact: &'a Unkillable) -> Self {
        let container = fact.container.as_ref().map(ContainerDoc::from);
        Self { pid: fact.pid, comm: &fact.comm, container, park: ParkDoc::from(&fact.park) }
    }
}

#[derive(Debug, Serialize)]
struct UnansweredDoc<'a> {
    pid: u32,
    comm: &'a str,
    what: &'a str,
    why: &'a str,
}

impl<'a> From<&'a Unanswered> for UnansweredDoc<'a> {
    fn from(fact: &'a Unanswered) -> Self {
        Self { pid: fact.pid, comm: &fact.comm, what: &fact.what, why: &fact.why }
    }
}

#[derive(Debug, Serialize)]
struct PressureDoc {
    cpu_some_avg10: u32,
    io_some_avg10: u32,
    io_full_avg10: u32,
    memory_full_avg10: u32,
}

impl From<Pressure> for PressureDoc {
    fn from(pressure: Pressure) -> Self {
        let Pressure { cpu_some_avg10, io_some_avg10, io_full_avg10, memory_full_avg10 } = pressure;
        Self { cpu_some_avg10, io_some_avg10, io_full_avg10, memory_full_avg10 }
    }
}

#[derive(Debug, Serialize)]
struct SaysDoc<'a> {
    pid: u32,
    version: &'a str,
    calls: Vec<OwnCallDoc<'a>>,
    conditions: Vec<ConditionDoc<'a>>,
    containers: Vec<StateDoc<'a>>,
    left_out: u32,
}

impl<'a> From<&'a RuntimeSays> for SaysDoc<'a> {
    fn from(says: &'a RuntimeSays) -> Self {
        Self {
            pid: says.pid,
            version: &says.version,
            calls: all(&says.calls),
            conditions: all(&says.conditions),
            containers: all(&says.containers),
            left_out: says.left_out,
        }
    }
}

#[derive(Debug, Serialize)]
struct ConditionDoc<'a> {
    name: &'a str,
    holds: bool,
    reason: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    missing: bool,
}

impl<'a> From<&'a RuntimeCondition> for ConditionDoc<'a> {
    fn from(condition: &'a RuntimeCondition) -> Self {
        let RuntimeCondition { name, holds, reason, message, missing } = condition;
        Self { name, holds: *holds, reason, message, missing: *missing }
    }
}

#[derive(Debug, Serialize)]
struct OwnCallDoc<'a> {
    operation: &'a str,
    began_ns: u64,
    ended_ns: Option<u64>,
    error: Option<CallErrorDoc<'a>>,
}

#[derive(Debug, Serialize)]
struct CallErrorDoc<'a> {
    code: i32,
    message: &'a str,
}

impl<'a> From<&'a OwnCall> for OwnCallDoc<'a> {
    fn from(call: &'a OwnCall) -> Self {
        let error = call.error.as_ref();
        let error = error.map(|error| CallErrorDoc { code: error.code, message: &error.message });
        Self { operation: &call.operation, began_ns: call.began_ns, ended_ns: call.ended_ns, error }
    }
}

#[derive(Debug, Serialize)]
struct StateDoc<'a> {
    container: ContainerDoc<'a>,
    state: &'a str,
    runs: bool,
}

impl<'a> From<&'a RuntimeState> for StateDoc<'a> {
    fn from(said: &'a RuntimeState) -> Self {
        Self { container: (&said.container).into(), state: &said.state, runs: said.runs }
    }
}

#[derive(Debug, Serialize)]
struct EndedDoc<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exec: Option<&'a str>,
    pid: u32,
    zombie: bool,
    tracer: Option<HolderDoc<'a>>,
    commands: u32,
}

impl<'a> From<&'a EndedInit> for EndedDoc<'a> {
    fn from(init: &'a EndedInit) -> Self {
        Self {
            id: &init.id,
            exec: init.exec.as_deref(),
            pid: init.pid,
            zombie: init.zombie,
            tracer: init.tracer.as_ref().map(HolderDoc::from),
            commands: init.commands,
        }
    }
}

#[derive(Debug, Serialize)]
struct ProcessDoc<'a> {
    at_ns: u64,
    pid: u32,
    parent: u32,
    started_ns: Option<u64>,
    component: &'static str,
    comm: &'a str,
    command: Option<CommandDoc<'a>>,
    state: char,
    threads: u32,
    stopped: u32,
    freezer: Option<FreezerDoc<'a>>,
    parked: Vec<ParkDoc<'a>>,
    sockets: Vec<SocketDoc<'a>>,
    pipes: Vec<PipeDoc<'a>>,
    container: Option<ContainerDoc<'a>>,
}

#[derive(Debug, Serialize)]
struct ByHandDoc<'a> {
    typed_in: Option<&'a str>,
    #[serde(flatten)]
    process: ProcessDoc<'a>,
}

impl<'a> From<&'a ProcessSeen> for ByHandDoc<'a> {
    fn from(seen: &'a ProcessSeen) -> Self {
        Self { typed_in: seen.fact.by_hand.as_deref(), process: seen.into() }
    }
}

impl<'a> From<&'a ProcessSeen> for ProcessDoc<'a> {
    fn from(seen: &'a ProcessSeen) -> Self {
        let fact = &seen.fact;
        Self {
            at_ns: fact.at_ns,
            pid: fact.pid,
            parent: fact.parent,
            started_ns: fact.started_ns,
            component: component(fact.component),
            comm: &fact.comm,
            command: fact.command.as_ref().map(CommandDoc::from),
            state: fact.state,
            threads: fact.threads,
            stopped: fact.stopped,
            freezer: fact.freezer.as_ref().map(FreezerDoc::from),
            parked: all(&fact.parked),
            sockets: all(&fact.sockets),
            pipes: all(&fact.pipes),
            container: fact.container.as_ref().map(ContainerDoc::from),
        }
    }
}

#[derive(Debug, Serialize)]
struct GoroutinesDoc<'a> {
    at_ns: u64,
    took_ns: u64,
    pid: u32,
    component: &'static str,
    go_version: &'a str,
    total: u32,
    unread: u32,
    groups: Vec<GroupDoc<'a>>,
    groups_left_out: u32,
}

impl<'a> From<&'a GoroutinesFact> for GoroutinesDoc<'a> {
    fn from(fact: &'a GoroutinesFact) -> Self {
        Self {
            at_ns: fact.at_ns,
            took_ns: fact.took_ns,
            pid: fact.pid,
            component: component(fact.component),
            go_version: &fact.go_version,
            total: fact.total,
            unread: fact.unread,
            groups: all(&fact.groups),
            groups_left_out: fact.groups_left_out,
        }
    }
}

#[derive(Debug, Serialize)]
struct GroupDoc<'a> {
    count: u32,
    goids: &'a [u64],
    state: &'a str,
    wait_reason: Option<&'a str>,
    waiting_since_ns: Option<u64>,
    frames: &'a [String],
    broken: Option<&'a str>,
    subjects: Vec<SubjectDoc<'a>>,
}

impl<'a> From<&'a GoroutineGroup> for GroupDoc<'a> {
    fn from(group: &'a GoroutineGroup) -> Self {
        Self {
            count: group.count,
            goids: &group.goids,
            state: &group.state,
            wait_reason: group.wait_reason.as_deref(),
            waiting_since_ns: group.parked_by_ns,
            frames: &group.frames,
            broken: group.broken.as_deref(),
            subjects: all(&group.subjects),
        }
    }
}

#[derive(Debug, Serialize)]
struct SubjectDoc<'a> {
    count: u32,
    goids: &'a [u64],
    ids: Vec<IdDoc<'a>>,
}

impl<'a> From<&'a Subject> for SubjectDoc<'a> {
    fn from(subject: &'a Subject) -> Self {
        Self { count: subject.count, goids: &subject.goids, ids: all(&subject.ids) }
    }
}

#[derive(Debug, Serialize)]
struct IdDoc<'a> {
    frame: u32,
    id: &'a str,
}

impl<'a> From<&'a IdOnStack> for IdDoc<'a> {
    fn from(on_stack: &'a IdOnStack) -> Self {
        Self { frame: on_stack.frame, id: &on_stack.id }
    }
}
