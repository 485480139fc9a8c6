//! What does not move, and who waits for it.

use serde::Serialize;

use super::{
    bus::BusStallDoc,
    facts::{
        CommandDoc, ContainerDoc, FreezerDoc, HolderDoc, ParkDoc, PipeDoc, SocketDoc, all, component as name,
    },
    loops::LoopDoc,
    processes::PhaseDoc,
};
use crate::{
    correlate::{Age, Held, Request, Snapshot, WaitsFor},
    diagnose::Diagnosis,
    input::Component,
    render::escape,
    stuck::{Stuck, StuckKind, Waiter},
    words,
};

/// One thing that does not move.
#[derive(Debug, Serialize)]
pub(super) struct StuckDoc<'a> {
    kind: &'static str,
    sentence: String,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<CommandDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    freezer: Option<FreezerDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pipe: Option<PipeDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<RequestDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreported: Option<UnreportedDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bus: Option<BusStallDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#loop: Option<LoopDoc<'a>>,
    age_ns: u64,
    at_least: bool,
    container: Option<ContainerDoc<'a>>,
    parks: Vec<ParkDoc<'a>>,
    frames: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    phase: Vec<PhaseDoc<'a>>,
    sockets: Vec<SocketDoc<'a>>,
    waiters: Vec<WaiterDoc<'a>>,
}

/// What the runtime says of a container or command that has ended.
#[derive(Debug, Serialize)]
struct UnreportedDoc<'a> {
    runtime: u32,
    state: Option<&'a str>,
    exec: Option<&'a str>,
    zombie: bool,
    tracer: Option<HolderDoc<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct RequestDoc<'a> {
    component: &'static str,
    pid: u32,
    operation: &'a str,
    count: u32,
    goroutines: &'a [u64],
    age_ns: u64,
    at_least: bool,
    wait_reason: Option<&'a str>,
    waits_for: &'static str,
    method: Option<&'a str>,
    holds: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also_holds: Vec<&'static str>,
    containers: Vec<ContainerDoc<'a>>,
    target_known: bool,
    lock_of: Option<&'a str>,
    frames: &'a [String],
}

#[derive(Debug, Serialize)]
struct WaiterDoc<'a> {
    kind: &'static str,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<CommandDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<RequestDoc<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    phase: Vec<PhaseDoc<'a>>,
}

impl<'a> StuckDoc<'a> {
    pub(super) fn list(diagnosis: &'a Diagnosis, snapshot: &Snapshot) -> Vec<Self> {
        diagnosis.stuck.iter().map(|stuck| Self::new(stuck, snapshot)).collect()
    }

    fn new(stuck: &'a Stuck, snapshot: &Snapshot) -> Self {
        let Age { ns: age_ns, at_least } = stuck.since;
        let blank = Self {
            kind: stuck.what.name(),
            sentence: escape::line(&words::sentence(stuck)),
            pid: stuck.what.pid(),
            component: None,
            command: None,
            freezer: None,
            pipe: None,
            request: None,
            unreported: None,
            bus: None,
            r#loop: None,
            age_ns,
            at_least,
            container: stuck.container.as_ref().map(ContainerDoc::from),
            parks: all(&stuck.parks),
            frames: &stuck.frames,
            phase: PhaseDoc::list(&stuck.phases, snapshot),
            sockets: all(&stuck.sockets),
            waiters: stuck.waiters.iter().map(|waiter| WaiterDoc::new(waiter, snapshot)).collect(),
        };
        match &stuck.what {
            StuckKind::Stopped { component, .. } => Self { component: Some(name(*component)), ..blank },
            StuckKind::Frozen { component, freezer, .. } => {
                Self { component: Some(name(*component)), freezer: Some(freezer.into()), ..blank }
            }
            StuckKind::Process { command, .. } => Self { command: Some(command.into()), ..blank },
            StuckKind::Unreaped { .. } | StuckKind::Jammed { .. } | StuckKind::SilentShim { .. } => blank,
            StuckKind::Unreported { state, runtime, zombie, exec, tracer, .. } => {
                let (state, exec, tracer) =
                    (state.as_deref(), exec.as_deref(), tracer.as_ref().map(HolderDoc::from));
                let unreported = UnreportedDoc { runtime: *runtime, state, exec, zombie: *zombie, tracer };
                Self { unreported: Some(unreported), ..blank }
            }
            StuckKind::OutputHeld { pipe, .. } => Self { pipe: Some(pipe.into()), ..blank },
            StuckKind::Bus(stall) => {
                let component = Some(name(stall.component()));
                Self { component, bus: Some(BusStallDoc::new(stall)), ..blank }
            }
            StuckKind::Loop(stall) => {
                let component = Some(name(Component::Kubelet));
                Self { component, r#loop: Some(LoopDoc::of_stall(stall)), ..blank }
            }
            StuckKind::Request(request) => Self { request: Some(RequestDoc::new(request)), ..blank },
        }
    }
}

impl<'a> WaiterDoc<'a> {
    fn new(waiter: &'a Waiter, snapshot: &Snapshot) -> Self {
        let blank = Self {
            kind: "process",
            pid: 0,
            component: None,
            command: None,
            request: None,
            age_ns: None,
            at_least: None,
            phase: Vec::new(),
        };
        match waiter {
            Waiter::Process { component, command, pid, phases, .. } => Self {
                pid: *pid,
                component: Some(name(*component)),
                command: command.as_ref().map(CommandDoc::from),
                phase: PhaseDoc::list(phases, snapshot),
                ..blank
            },
            Waiter::Requests(request) => {
                let doc = RequestDoc::new(request);
                Self { kind: "requests", pid: request.pid, request: Some(doc), ..blank }
            }
            Waiter::Relist { pid, age } => Self {
                kind: "relist",
                pid: *pid,
                age_ns: Some(age.ns),
                at_least: Some(age.at_least),
                ..blank
            },
        }
    }
}

impl<'a> RequestDoc<'a> {
    pub(super) fn new(request: &'a Request) -> Self {
        let (waits_for, method) = waits_for(&request.waits_for);
        Self {
            component: name(request.component),
            pid: request.pid,
            operation: &request.operation,
            count: request.count,
            goroutines: &request.goids,
            age_ns: request.since.ns,
            at_least: request.since.at_least,
            wait_reason: request.wait_reason.as_deref(),
            waits_for,
            method,
            holds: request.holds.first().copied().map(held),
            also_holds: request.holds.iter().skip(1).copied().map(held).collect(),
            containers: all(&request.containers),
            target_known: request.target_known,
            lock_of: request.lock_of.as_deref(),
            frames: &request.frames,
        }
    }
}

fn waits_for(waits_for: &WaitsFor) -> (&'static str, Option<&str>) {
    match waits_for {
        WaitsFor::Shim { method } => ("shim", method.as_deref()),
        WaitsFor::Lock(lock) => (held(*lock), None),
        WaitsFor::Cni => ("cni", None),
        WaitsFor::NriPlugin => ("nri_plugin", None),
        WaitsFor::ExecOutput => ("exec_output", None),
        WaitsFor::Child => ("child", None),
        WaitsFor::Runtime { operation } => ("runtime", operation.as_deref()),
        WaitsFor::Unknown => ("unknown", None),
    }
}

fn held(held: Held) -> &'static str {
    match held {
        Held::ContainerStatus => "container_status_lock",
        Held::SandboxStatus => "sandbox_status_lock",
        Held::Metadata => "metadata_transaction",
        Held::Networks => "network_configuration_lock",
        Held::Nri => "nri_lock",
        Held::NriPlugins => "nri_plugins_lock",
        Held::NriSync => "nri_registration_lock",
    }
}
