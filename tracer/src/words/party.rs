//! One party of a chain of waiting: who it is, and what it does or fails to do there.

use super::{
    bus::{bus_fault, bus_party},
    cut,
    kubelet_loop::loop_wait,
    owner::{command_words, short_id},
    park::syscall_words,
    phase::phase_meaning,
    request::{is_certain, lock, waits_for},
};
use crate::{
    correlate::{Phase, Request, WaitsFor},
    input::{Command, Component, ParkedThreads},
    stuck::{Stuck, StuckKind},
    words::human::{count, plural},
};

/// Longest name of a program here.
const NAME: usize = 20;

/// What a process is called: `shim`, `runc`, or the name of its program.
#[must_use]
pub fn process_name(component: Component, command: Option<&Command>, comm: &str) -> String {
    match command {
        Some(Command::Runc { .. }) => if comm.starts_with("crun") { "crun" } else { "runc" }.to_owned(),
        Some(Command::Cni { plugin, .. }) => cut(plugin, NAME),
        Some(Command::Other { program }) if !program.is_empty() => cut(program, NAME),
        Some(Command::Shim { .. }) => "shim".to_owned(),
        _ if component == Component::Helper && !comm.is_empty() => cut(comm, NAME),
        _ if component == Component::Helper => "process".to_owned(),
        _ => component.name().to_owned(),
    }
}

/// Who does not move: its name and its process.
#[must_use]
pub fn party(stuck: &Stuck) -> (String, Option<u32>) {
    let pid = Some(stuck.what.pid());
    match &stuck.what {
        StuckKind::Stopped { component, command, comm, .. }
        | StuckKind::Frozen { component, command, comm, .. } => {
            (process_name(*component, command.as_ref(), comm), pid)
        }
        StuckKind::Process { command, comm, .. } => {
            (process_name(Component::Helper, Some(command), comm), pid)
        }
        StuckKind::Unreaped { comm, .. } => (cut(comm, NAME), pid),
        StuckKind::OutputHeld { pipe, .. } => match pipe.writers.first() {
            Some(writer) => (cut(&writer.comm, NAME), pid),
            None => ("shim".to_owned(), pid),
        },
        StuckKind::Unreported { runtime, .. } => ("runtime".to_owned(), Some(*runtime)),
        StuckKind::Jammed { shim, .. } | StuckKind::SilentShim { shim, .. } => {
            ("shim".to_owned(), Some(*shim))
        }
        StuckKind::Bus(stall) => (bus_party(stall), (stall.pid != 0).then_some(stall.pid)),
        StuckKind::Request(request) => (request.component.name().to_owned(), pid),
        StuckKind::Loop(_) => (Component::Kubelet.name().to_owned(), pid),
    }
}

/// What it does instead of moving: `stopped (state T), 475 bytes unread`.
#[must_use]
pub fn fault(stuck: &Stuck) -> String {
    match &stuck.what {
        StuckKind::Stopped { command, comm, .. } => {
            format!("{}stopped (state T){}", doing(command.as_ref(), comm), unread(stuck))
        }
        StuckKind::Frozen { command, comm, .. } => {
            format!("{}in a frozen cgroup{}", doing(command.as_ref(), comm), unread(stuck))
        }
        StuckKind::Process { command, comm, state, .. } => {
            let at = place(&stuck.parks, &stuck.phases);
            format!("{}has not exited (state {state}){at}", doing(Some(command), comm))
        }
        StuckKind::Unreaped { parent, .. } => format!("has exited; its parent {parent} has not reaped it"),
        StuckKind::OutputHeld { .. } => "keeps the output of an exited command open".to_owned(),
        StuckKind::Unreported { id, exec: None, .. } => {
            format!("still reports container {}, which has exited", short_id(id))
        }
        StuckKind::Unreported { id, .. } => {
            format!("still waits for a command in container {} that has exited", short_id(id))
        }
        StuckKind::Jammed { runtime, .. } => {
            format!("it and containerd {runtime} each wait for the other to read")
        }
        StuckKind::SilentShim { method, .. } => format!("does not answer {}, runs no runc", cut(method, 40)),
        StuckKind::Bus(stall) => bus_fault(stall),
        StuckKind::Request(request) => waiting(request),
        StuckKind::Loop(stall) => {
            let waits = loop_wait(&stall.oldest);
            format!("{}, {}", stall.oldest.kind.words(), waits.strip_prefix("waits ").unwrap_or(&waits))
        }
    }
}

/// What a runc or plugin was started for, before what keeps it: `update of 51f2e49b8310, `.
fn doing(command: Option<&Command>, comm: &str) -> String {
    match command {
        Some(command @ Command::Runc { .. }) => {
            let words = command_words(command, comm);
            format!("{}, ", words.split_once(' ').map_or(words.as_str(), |(_, rest)| rest))
        }
        Some(Command::Cni { action: Some(action), .. }) => format!("{}, ", cut(action, NAME)),
        _ => String::new(),
    }
}

/// Where a process is: the phase of a runc, else its system call.
fn place(parks: &[ParkedThreads], phases: &[Phase]) -> String {
    if let Some(phase) = phase_meaning(phases) {
        return format!(", {phase}");
    }
    let call = parks.iter().find_map(|park| park.syscall.as_ref());
    call.map(|call| format!(", in {}", syscall_words(call))).unwrap_or_default()
}

fn unread(stuck: &Stuck) -> String {
    let bytes: u64 = stuck.sockets.iter().map(|socket| u64::from(socket.unread)).sum();
    let listens = stuck.sockets.iter().any(|socket| socket.listening || socket.pending);
    if bytes == 0 || listens { String::new() } else { format!(", {} unread", plural(bytes, "byte")) }
}

/// Requests and what keeps them: `5 ListContainers, for a container's status lock`.
#[must_use]
pub fn waiting(request: &Request) -> String {
    let number = if request.count == 1 { String::new() } else { format!("{} ", count(request.count.into())) };
    let held: Vec<&str> = request.holds.iter().copied().map(lock).collect();
    let holds = if held.is_empty() { String::new() } else { format!(" holds {},", held.join(" and ")) };
    format!("{number}{},{holds} {}", cut(&request.operation, 40), keeps(request))
}

/// The same of requests that hold what the party before them waits for.
#[must_use]
pub fn holding(request: &Request) -> String {
    let number = if request.count == 1 { String::new() } else { format!("{} ", count(request.count.into())) };
    let keeps = if matches!(request.waits_for, WaitsFor::Shim { .. }) {
        "for a shim".to_owned()
    } else {
        keeps(request)
    };
    format!("{number}{} holds it, {keeps}", cut(&request.operation, 40))
}

/// What keeps requests, without the verb.
fn keeps(request: &Request) -> String {
    let doubt = if is_certain(request) { "" } else { " (or another)" };
    let what = match &request.waits_for {
        WaitsFor::Shim { method: Some(method) } => format!("for a shim to {}", cut(method, 40)),
        WaitsFor::Shim { method: None } => "for a shim".to_owned(),
        WaitsFor::Lock(held) => format!("for {}", lock(*held)),
        WaitsFor::Cni => "for a network plugin".to_owned(),
        WaitsFor::NriPlugin => "for an NRI plugin".to_owned(),
        WaitsFor::ExecOutput => "for the output of a command".to_owned(),
        WaitsFor::Child => "for a child process".to_owned(),
        WaitsFor::Runtime { operation: Some(operation) } => format!("in {}", cut(operation, 40)),
        WaitsFor::Runtime { operation: None } => "for the runtime".to_owned(),
        WaitsFor::Unknown => waits_for(request),
    };
    format!("{what}{doubt}")
}

/// What a process that waits for its child is doing: `update of 51f2e49b8310, for systemd to start a unit`.
#[must_use]
pub fn waits_for_child(command: Option<&Command>, comm: &str, phases: &[Phase]) -> String {
    match phase_meaning(phases) {
        Some(phase) => format!("{}{}", doing(command, comm), phase.strip_prefix("waits ").unwrap_or(&phase)),
        None => format!("{}for its child", doing(command, comm)),
    }
}
