//! Facts of the stream in the words of this document. The format of a recording may change without it.

use serde::Serialize;

use crate::input::{
    Command, Component, ContainerFact, Cost, FdTarget, Freezer, Holder, Layer, LossCount, ParkedThreads,
    PipeFact, RefusedFact, SocketFact, StopWhy, SyscallFact,
};

/// Stable name of a component.
pub(in crate::render) fn component(component: Component) -> &'static str {
    match component {
        Component::Kubelet => "kubelet",
        Component::Containerd => "containerd",
        Component::Crio => "crio",
        Component::Dockerd => "dockerd",
        Component::CriDockerd => "cri-dockerd",
        Component::Shim => "shim",
        Component::Conmon => "conmon",
        Component::Runc => "runc",
        Component::Helper => "helper",
        Component::Systemd => "systemd",
        Component::BusDaemon => "bus-daemon",
    }
}

/// Stable name of a place in the chain.
pub(in crate::render) fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::Relist => "relist",
        Layer::PodRelist => "pod_relist",
        Layer::ListPhase => "list_phase",
        Layer::StatusPhase => "status_phase",
        Layer::KubeletCall => "kubelet_call",
        Layer::KubeletClient => "kubelet_client",
        Layer::Handler => "handler",
        Layer::RuncPhase => "runc_phase",
        Layer::Mark => "mark",
        Layer::Process => "process",
    }
}

/// Stable name of why observing ended.
pub(super) fn stopped(why: StopWhy) -> &'static str {
    match why {
        StopWhy::Duration => "duration",
        StopWhy::Interrupt => "interrupt",
        StopWhy::Enough => "enough",
        StopWhy::TargetsGone => "targets_gone",
        StopWhy::RecordingOver => "recording_over",
    }
}

/// Each of a list as its document.
pub(in crate::render) fn all<'a, F, D: From<&'a F>>(facts: &'a [F]) -> Vec<D> {
    facts.iter().map(D::from).collect()
}

#[derive(Debug, Serialize)]
pub(super) struct ContainerDoc<'a> {
    id: &'a str,
    sandbox: Option<&'a str>,
    name: Option<&'a str>,
    pod: Option<&'a str>,
    namespace: Option<&'a str>,
    source: &'a str,
}

impl<'a> From<&'a ContainerFact> for ContainerDoc<'a> {
    fn from(fact: &'a ContainerFact) -> Self {
        Self {
            id: &fact.id,
            sandbox: fact.sandbox.as_deref(),
            name: fact.name.as_deref(),
            pod: fact.pod.as_deref(),
            namespace: fact.namespace.as_deref(),
            source: &fact.source,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(super) enum CommandDoc<'a> {
    Runc { sub: &'a str, container: Option<&'a str>, bundle: Option<&'a str> },
    Oci { program: &'a str, sub: &'a str, container: Option<&'a str>, bundle: Option<&'a str> },
    Shim { action: Option<&'a str>, namespace: Option<&'a str>, id: Option<&'a str> },
    Cni { plugin: &'a str, action: Option<&'a str>, container: Option<&'a str> },
    Other { program: &'a str },
}

impl<'a> From<&'a Command> for CommandDoc<'a> {
    fn from(command: &'a Command) -> Self {
        match command {
            Command::Runc { sub, container, bundle } => {
                Self::Runc { sub, container: container.as_deref(), bundle: bundle.as_deref() }
            }
            Command::Oci { program, sub, container, bundle } => {
                Self::Oci { program, sub, container: container.as_deref(), bundle: bundle.as_deref() }
            }
            Command::Shim { action, namespace, id } => {
                Self::Shim { action: action.as_deref(), namespace: namespace.as_deref(), id: id.as_deref() }
            }
            Command::Cni { plugin, action, container } => {
                Self::Cni { plugin, action: action.as_deref(), container: container.as_deref() }
            }
            Command::Other { program } => Self::Other { program },
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct FreezerDoc<'a> {
    path: &'a str,
    version: u8,
    state: &'a str,
    own: bool,
}

impl<'a> From<&'a Freezer> for FreezerDoc<'a> {
    fn from(freezer: &'a Freezer) -> Self {
        Self { path: &freezer.path, version: freezer.version, state: &freezer.state, own: freezer.own }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct HolderDoc<'a> {
    pid: u32,
    comm: &'a str,
    fd: i32,
    orphan: bool,
}

impl<'a> From<&'a Holder> for HolderDoc<'a> {
    fn from(holder: &'a Holder) -> Self {
        Self { pid: holder.pid, comm: &holder.comm, fd: holder.fd, orphan: holder.orphan }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct PipeDoc<'a> {
    inode: u64,
    path: Option<&'a str>,
    readers: Vec<HolderDoc<'a>>,
    writers: Vec<HolderDoc<'a>>,
    incomplete: bool,
}

impl<'a> From<&'a PipeFact> for PipeDoc<'a> {
    fn from(fact: &'a PipeFact) -> Self {
        Self {
            inode: fact.inode,
            path: fact.path.as_deref(),
            readers: all(&fact.readers),
            writers: all(&fact.writers),
            incomplete: fact.incomplete,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SocketDoc<'a> {
    inode: u64,
    path: Option<&'a str>,
    listening: bool,
    unread: u32,
    backlog: u32,
    peer_inode: Option<u64>,
    peers: Vec<HolderDoc<'a>>,
    pending: bool,
    peer_state: Option<char>,
}

impl<'a> From<&'a SocketFact> for SocketDoc<'a> {
    fn from(fact: &'a SocketFact) -> Self {
        Self {
            inode: fact.inode,
            path: fact.path.as_deref(),
            listening: fact.listening,
            unread: fact.unread,
            backlog: fact.backlog,
            peer_inode: fact.peer_inode,
            peers: all(&fact.peers),
            pending: fact.pending,
            peer_state: fact.peer_state,
        }
    }
}

#[derive(Debug, Serialize)]
struct FdDoc<'a> {
    fd: i32,
    target: FdTargetDoc<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum FdTargetDoc<'a> {
    Pipe(PipeDoc<'a>),
    Socket(SocketDoc<'a>),
    File { path: &'a str },
    Other { link: &'a str },
}

impl<'a> From<&'a FdTarget> for FdTargetDoc<'a> {
    fn from(target: &'a FdTarget) -> Self {
        match target {
            FdTarget::Pipe(pipe) => Self::Pipe(pipe.into()),
            FdTarget::Socket(socket) => Self::Socket(socket.into()),
            FdTarget::File { path } => Self::File { path },
            FdTarget::Other { link } => Self::Other { link },
        }
    }
}

/// Threads that wait alike.
#[derive(Debug, Serialize)]
pub(super) struct ParkDoc<'a> {
    threads: u32,
    tid: u32,
    state: char,
    syscall: Option<SyscallDoc<'a>>,
    kernel_stack: &'a [String],
    user_function: Option<&'a str>,
}

impl<'a> From<&'a ParkedThreads> for ParkDoc<'a> {
    fn from(park: &'a ParkedThreads) -> Self {
        Self {
            threads: park.threads,
            tid: park.tid,
            state: park.state,
            syscall: park.syscall.as_ref().map(SyscallDoc::from),
            kernel_stack: &park.kernel_stack,
            user_function: park.user_function.as_deref(),
        }
    }
}

#[derive(Debug, Serialize)]
struct SyscallDoc<'a> {
    nr: i64,
    name: Option<&'a str>,
    args: [u64; 6],
    fd: Option<FdDoc<'a>>,
    path: Option<&'a str>,
    lock_holder: Option<HolderDoc<'a>>,
}

impl<'a> From<&'a SyscallFact> for SyscallDoc<'a> {
    fn from(fact: &'a SyscallFact) -> Self {
        Self {
            nr: fact.nr,
            name: fact.name.as_deref(),
            args: fact.args,
            fd: fact.fd.as_ref().map(|fd| FdDoc { fd: fd.fd, target: (&fd.target).into() }),
            path: fact.path.as_deref(),
            lock_holder: fact.lock_holder.as_ref().map(HolderDoc::from),
        }
    }
}

#[derive(Debug, Serialize)]
pub(in crate::render) struct RefusedDoc<'a> {
    source: &'a str,
    component: Option<&'static str>,
    what: &'a str,
    why: &'a str,
    matters: bool,
}

impl<'a> From<&'a RefusedFact> for RefusedDoc<'a> {
    fn from(fact: &'a RefusedFact) -> Self {
        Self {
            source: &fact.source,
            component: fact.component.map(component),
            what: &fact.what,
            why: &fact.why,
            matters: fact.matters,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct LossDoc<'a> {
    stage: &'a str,
    reason: &'a str,
    sentence: &'a str,
    count: u64,
    is_loss: bool,
}

impl<'a> From<&'a LossCount> for LossDoc<'a> {
    fn from(loss: &'a LossCount) -> Self {
        Self {
            stage: &loss.stage,
            reason: &loss.reason,
            sentence: &loss.sentence,
            count: loss.count,
            is_loss: loss.is_loss,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct CostDoc {
    cpu_ns: u64,
    wall_ns: u64,
    rss_bytes: u64,
    rss_peak_bytes: u64,
    child_peak_bytes: u64,
    probes_ns: Option<u64>,
    syscalls_ns: Option<u64>,
}

impl From<Cost> for CostDoc {
    fn from(cost: Cost) -> Self {
        Self {
            cpu_ns: cost.cpu_ns,
            wall_ns: cost.wall_ns,
            rss_bytes: cost.rss_bytes,
            rss_peak_bytes: cost.rss_peak_bytes,
            child_peak_bytes: cost.child_peak_bytes,
            probes_ns: cost.probes_ns,
            syscalls_ns: cost.syscalls_ns,
        }
    }
}
