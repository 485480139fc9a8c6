//! Short-lived processes: open ones, figures of those that ended, and those that stand out.

use serde::Serialize;

use super::{calls::trimmed, doc::At};
use crate::correlate::{
    EndedProcess, OciRuntime, OpenProcess, Phase, ProcessEnd, ProcessKind, ProcessRow, Snapshot,
    WorkloadProcess,
};

#[derive(Debug, Serialize)]
pub(super) struct ProcessesDoc<'a> {
    read_at: Option<At>,
    complete: bool,
    open: Vec<OpenDoc<'a>>,
    commands: Vec<RowDoc<'a>>,
    slowest: Vec<EndedDoc<'a>>,
    failed: Vec<EndedDoc<'a>>,
    workloads: Vec<WorkloadDoc<'a>>,
    workloads_ended: Vec<WorkloadDoc<'a>>,
    ended_unseen: u64,
}

impl<'a> ProcessesDoc<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let processes = &snapshot.processes;
        let ended = |list: &'a [EndedProcess]| list.iter().map(|p| EndedDoc::new(p, snapshot)).collect();
        let workloads =
            |list: &'a [WorkloadProcess]| list.iter().map(|p| WorkloadDoc::new(p, snapshot)).collect();
        Self {
            read_at: processes.read_at.map(|at| At::new(snapshot, at)),
            complete: processes.complete,
            open: processes.open.iter().map(|process| OpenDoc::new(process, snapshot)).collect(),
            commands: processes.rows.iter().map(RowDoc::new).collect(),
            slowest: ended(&processes.slowest),
            failed: ended(&processes.failed),
            workloads: workloads(&processes.workloads),
            workloads_ended: workloads(&processes.workloads_ended),
            ended_unseen: processes.ended_unseen,
        }
    }
}

/// What a process does: `kind`, and the fields that this kind has. The `program` of the kinds "runc" and "runc_init" is only told when it
/// is another one.
#[derive(Debug, Serialize)]
struct KindDoc<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'a str>,
}

impl<'a> KindDoc<'a> {
    fn new(kind: &'a ProcessKind) -> Self {
        let other = |by: OciRuntime| (by != OciRuntime::Runc).then(|| by.name());
        let (program, action) = match kind {
            ProcessKind::Runc { by, sub } => (other(*by), Some(sub.as_str())),
            ProcessKind::RuncInit { by } => (other(*by), None),
            ProcessKind::Shim { action } => (None, action.as_deref()),
            ProcessKind::Cni { plugin, action } => (Some(plugin.as_str()), action.as_deref()),
            ProcessKind::Hook { program } | ProcessKind::Helper { program } => (Some(program.as_str()), None),
            ProcessKind::Component(component) => (Some(component.name()), None),
            ProcessKind::Workload | ProcessKind::Starting => (None, None),
        };
        Self { kind: kind.name(), program, action }
    }
}

#[derive(Debug, Serialize)]
struct OpenDoc<'a> {
    pid: u32,
    #[serde(flatten)]
    kind: KindDoc<'a>,
    start_at: Option<At>,
    age_ns: u64,
    at_least: bool,
    late: bool,
    comm: &'a str,
    container: Option<&'a str>,
    bundle: Option<&'a str>,
    started_for: Option<&'a str>,
    parents: Vec<ParentDoc<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    phase: Vec<PhaseDoc<'a>>,
}

/// A phase of a runc.
#[derive(Debug, Serialize)]
pub(super) struct PhaseDoc<'a> {
    operation: &'a str,
    start_at: At,
    age_ns: u64,
}

impl<'a> PhaseDoc<'a> {
    pub(super) fn list(phases: &'a [Phase], snapshot: &Snapshot) -> Vec<Self> {
        let doc = |phase: &'a Phase| Self {
            operation: &phase.operation,
            start_at: At::new(snapshot, phase.start),
            age_ns: phase.age_ns,
        };
        phases.iter().map(doc).collect()
    }
}

#[derive(Debug, Serialize)]
struct ParentDoc<'a> {
    pid: u32,
    #[serde(flatten)]
    kind: KindDoc<'a>,
}

impl<'a> OpenDoc<'a> {
    fn new(process: &'a OpenProcess, snapshot: &Snapshot) -> Self {
        let parent = |(pid, kind): &'a (u32, ProcessKind)| ParentDoc { pid: *pid, kind: KindDoc::new(kind) };
        Self {
            pid: process.pid,
            kind: KindDoc::new(&process.kind),
            start_at: process.start.map(|at| At::new(snapshot, at)),
            age_ns: process.age_ns,
            at_least: process.at_least,
            late: process.late,
            comm: &process.comm,
            container: process.container.as_deref(),
            bundle: process.bundle.as_deref(),
            started_for: process.under.as_deref(),
            parents: process.parents.iter().map(parent).collect(),
            phase: PhaseDoc::list(&process.phases, snapshot),
        }
    }
}

#[derive(Debug, Serialize)]
struct RowDoc<'a> {
    #[serde(flatten)]
    kind: KindDoc<'a>,
    count: u64,
    failed: u64,
    killed: u64,
    sum_ns: u64,
    max_ns: u64,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    log2_ns: &'a [u64],
}

impl<'a> RowDoc<'a> {
    fn new(row: &'a ProcessRow) -> Self {
        let latency = &row.latency;
        Self {
            kind: KindDoc::new(&row.kind),
            count: latency.count(),
            failed: row.failed,
            killed: row.killed,
            sum_ns: latency.sum_ns(),
            max_ns: latency.max_ns(),
            p50_ns: latency.quantile_ns(0.5),
            p90_ns: latency.quantile_ns(0.9),
            p99_ns: latency.quantile_ns(0.99),
            log2_ns: trimmed(latency.buckets()),
        }
    }
}

/// How a process ended.
#[derive(Debug, Serialize)]
struct EndDoc {
    how: &'static str,
    exit_code: Option<u32>,
    signal: Option<u32>,
}

impl EndDoc {
    fn new(end: ProcessEnd) -> Self {
        let (how, exit_code, signal) = match end {
            ProcessEnd::Exited(code) => ("exited", Some(code), None),
            ProcessEnd::Killed(signal) => ("killed", None, Some(signal)),
            ProcessEnd::BecameWorkload => ("became_workload", None, None),
            ProcessEnd::Replaced => ("replaced", None, None),
        };
        Self { how, exit_code, signal }
    }
}

#[derive(Debug, Serialize)]
struct EndedDoc<'a> {
    pid: u32,
    #[serde(flatten)]
    kind: KindDoc<'a>,
    container: Option<&'a str>,
    start_at: At,
    duration_ns: u64,
    #[serde(flatten)]
    end: EndDoc,
}

impl<'a> EndedDoc<'a> {
    fn new(process: &'a EndedProcess, snapshot: &Snapshot) -> Self {
        Self {
            pid: process.pid,
            kind: KindDoc::new(&process.kind),
            container: process.container.as_deref(),
            start_at: At::new(snapshot, process.start),
            duration_ns: process.duration_ns(),
            end: EndDoc::new(process.how),
        }
    }
}

#[derive(Debug, Serialize)]
struct WorkloadDoc<'a> {
    pid: u32,
    container: Option<&'a str>,
    started_for: Option<&'a str>,
    start_at: Option<At>,
    ended_at: Option<At>,
    #[serde(flatten)]
    end: Option<EndDoc>,
}

impl<'a> WorkloadDoc<'a> {
    fn new(process: &'a WorkloadProcess, snapshot: &Snapshot) -> Self {
        Self {
            pid: process.pid,
            container: process.container.as_deref(),
            started_for: process.under.as_deref(),
            start_at: process.start.map(|at| At::new(snapshot, at)),
            ended_at: process.end.map(|(at, _)| At::new(snapshot, at)),
            end: process.end.map(|(_, how)| EndDoc::new(how)),
        }
    }
}
