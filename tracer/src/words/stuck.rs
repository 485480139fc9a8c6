//! What does not move, and who waits for it.

use super::{
    LONG,
    bus::bus_stall,
    cut,
    kubelet_loop::loop_stall,
    owner::{command_words, of_pod, short_id},
    park::holders,
    phase::phase,
    request::{is_certain, requests, waits_for},
};
use crate::{
    correlate::Age,
    input::{Command, Component},
    stuck::{Stuck, StuckKind, Waiter},
    words::human::duration,
};

/// What does not move, in words.
#[must_use]
pub fn what(stuck: &Stuck) -> String {
    match &stuck.what {
        StuckKind::Stopped { component, pid, command, comm, .. } => {
            let who = halted(component.name(), *pid, command.as_ref(), comm);
            let of = of_pod(stuck.container.as_ref());
            format!("{who}{of}: stopped (state T)")
        }
        StuckKind::Frozen { component, pid, freezer, command, comm } => {
            let name = if *component == Component::Helper { "process" } else { component.name() };
            let who = halted(name, *pid, command.as_ref(), comm);
            let of = of_pod(stuck.container.as_ref());
            format!("{who}{of}: {} in cgroup {}", cut(&freezer.state, LONG), cut(&freezer.path, LONG))
        }
        StuckKind::Process { command, comm, pid, state } => {
            let of = of_pod(stuck.container.as_ref());
            format!("{} (pid {pid}){of} has not exited, state {state}", command_words(command, comm))
        }
        StuckKind::Unreaped { comm, pid, parent } => {
            format!("{} {pid} has exited, and its parent {parent} has not reaped it", cut(comm, 40))
        }
        StuckKind::OutputHeld { pipe, shim } => {
            let of = of_pod(stuck.container.as_ref());
            format!(
                "the output of a command{of} is held open by {}; shim {shim} waits",
                holders(&pipe.writers)
            )
        }
        StuckKind::Unreported { id, pid, zombie, tracer, state, runtime, exec: _ } => {
            let of = of_pod(stuck.container.as_ref());
            let how = match tracer {
                Some(tracer) => {
                    format!("has exited and is still traced by {}", holders(std::slice::from_ref(tracer)))
                }
                None if *zombie => "has exited and was not reaped".to_owned(),
                None => "is gone".to_owned(),
            };
            let ended = format!("{}{of} has ended (its process {pid} {how})", short_id(id));
            match state {
                Some(state) => {
                    format!("container {ended}, and runtime {runtime} reports it as {}", cut(state, 20))
                }
                None => format!("a command in container {ended}, and runtime {runtime} still waits for it"),
            }
        }
        StuckKind::Jammed { runtime, shim } => {
            let of = of_pod(stuck.container.as_ref());
            format!("neither containerd {runtime} nor shim {shim}{of} reads what the other has sent")
        }
        StuckKind::SilentShim { shim, method, .. } => {
            let of = of_pod(stuck.container.as_ref());
            format!("shim {shim}{of} runs no runc and does not answer {}", cut(method, 40))
        }
        StuckKind::Bus(stall) => bus_stall(stall),
        StuckKind::Loop(stall) => loop_stall(stall),
        StuckKind::Request(request) => format!("{}: {}", requests(request), waits_for(request)),
    }
}

/// `shim 4711`, `runc update of c1 (pid 4711)`.
fn halted(name: &str, pid: u32, command: Option<&Command>, comm: &str) -> String {
    match command {
        Some(command) => format!("{} (pid {pid})", command_words(command, comm)),
        None => format!("{name} {pid}"),
    }
}

/// The verdict about it: what, for how long, and how far it reaches.
#[must_use]
pub fn sentence(stuck: &Stuck) -> String {
    let mut text = format!("{}, {}", what(stuck), age(stuck.since));
    if let StuckKind::Loop(stall) = &stuck.what {
        text.push_str(&format!("; {}", stall.oldest.kind.stops()));
    }
    let mut operations: Vec<String> = Vec::new();
    for victim in stuck.waiters.iter().filter_map(victim) {
        if !operations.contains(&victim) {
            operations.push(victim);
        }
    }
    if !operations.is_empty() {
        text.push_str("; held up: ");
        text.push_str(&operations.join(", "));
    }
    text
}

fn victim(waiter: &Waiter) -> Option<String> {
    match waiter {
        Waiter::Process { .. } => None,
        Waiter::Requests(request) => Some(cut(&request.operation, 40)),
        Waiter::Relist { age, .. } => Some(format!("the relist, {}", open_for(*age))),
    }
}

/// `3 min 50 s`; a lower bound is marked as one.
#[must_use]
pub fn age(age: Age) -> String {
    format!("{}{}", if age.at_least { "≥ " } else { "" }, duration(age.ns))
}

/// One who waits.
#[must_use]
pub fn waiter_line(waiter: &Waiter) -> String {
    match waiter {
        Waiter::Process {
            component: Component::Runc | Component::Helper,
            command: Some(command),
            comm,
            pid,
            phases,
        } => {
            let phase = phase(phases).map(|phase| format!(", in {phase}"));
            format!("{} (pid {pid}{})", command_words(command, comm), phase.unwrap_or_default())
        }
        Waiter::Process { component, pid, .. } => format!("{} {pid}", component.name()),
        Waiter::Requests(request) => {
            let doubt = if is_certain(request) { "" } else { "; possibly for another one" };
            format!("{}, {}: {}{doubt}", requests(request), age(request.since), waits_for(request))
        }
        Waiter::Relist { pid, age } => format!("relist of kubelet {pid}, {}", open_for(*age)),
    }
}

/// One look at a relist says that it is open, and nothing about its age.
fn open_for(age: Age) -> String {
    if age.at_least && age.ns == 0 { "in flight".to_owned() } else { format!("open {}", self::age(age)) }
}
