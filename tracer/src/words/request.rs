//! CRI requests, and what they wait for.

use super::{cut, park::short_function};
use crate::{
    correlate::{Held, Request, WaitsFor},
    words::human::count,
};

/// `3 ListContainers in containerd 812 (goroutine 88123)`.
#[must_use]
pub fn requests(request: &Request) -> String {
    let operation = cut(&request.operation, 40);
    let number = if request.count == 1 { String::new() } else { format!("{} ", count(request.count.into())) };
    let goroutine = match request.goids.as_slice() {
        [only] if request.count == 1 => format!(", goroutine {only}"),
        _ => String::new(),
    };
    format!("{number}{operation} in {} {}{goroutine}", request.component.name(), request.pid)
}

/// What requests wait for, and what they hold meanwhile.
#[must_use]
pub fn waits_for(request: &Request) -> String {
    let mut text = match &request.waits_for {
        WaitsFor::Shim { method: Some(method) } => {
            format!("waits for a shim to answer {}", cut(method, 40))
        }
        WaitsFor::Shim { method: None } => "waits for a shim".to_owned(),
        WaitsFor::Lock(held) => format!("waits for {}", lock(*held)),
        WaitsFor::Cni => "waits for a network plugin".to_owned(),
        WaitsFor::NriPlugin => "waits for a plugin of NRI".to_owned(),
        WaitsFor::ExecOutput => "waits for the command's output to end".to_owned(),
        WaitsFor::Child => "waits for a child process".to_owned(),
        WaitsFor::Runtime { operation: Some(operation) } => {
            format!("waits for {} in the runtime", cut(operation, 40))
        }
        WaitsFor::Runtime { operation: None } => "waits for the runtime".to_owned(),
        WaitsFor::Unknown => {
            let why = request.wait_reason.as_deref().map(|why| cut(why, 40));
            // The first one of the runtime only says that the goroutine is parked.
            let of_program = request.frames.iter().find(|frame| !frame.starts_with("runtime."));
            let inner = of_program.or(request.frames.first()).map(|frame| short_function(frame));
            match (why, inner) {
                (Some(why), Some(inner)) => format!("in {inner} ({why})"),
                (Some(why), None) => why,
                (None, Some(inner)) => format!("in {inner}"),
                (None, None) => "waits at an unknown place".to_owned(),
            }
        }
    };
    if !request.holds.is_empty() {
        let held: Vec<&str> = request.holds.iter().copied().map(lock).collect();
        text = format!("{text}; holds {}", held.join(" and "));
    }
    text
}

/// Is it certain that this waiter waits for this thing, and not for another of its kind?
pub(super) fn is_certain(request: &Request) -> bool {
    match request.waits_for {
        WaitsFor::Shim { .. }
        | WaitsFor::Cni
        | WaitsFor::ExecOutput
        | WaitsFor::Lock(Held::ContainerStatus | Held::SandboxStatus) => request.target_known,
        WaitsFor::Lock(Held::Metadata | Held::Networks | Held::Nri | Held::NriPlugins | Held::NriSync)
        | WaitsFor::NriPlugin
        | WaitsFor::Child
        | WaitsFor::Runtime { .. }
        | WaitsFor::Unknown => true,
    }
}

/// A lock in words.
#[must_use]
pub fn lock(held: Held) -> &'static str {
    match held {
        Held::ContainerStatus => "a container's status lock",
        Held::SandboxStatus => "a sandbox's status lock",
        Held::Metadata => "the metadata write transaction",
        Held::Networks => "the lock of the network configuration",
        Held::Nri => "the runtime's lock around NRI",
        Held::NriPlugins => "NRI's lock around its plugins",
        Held::NriSync => "NRI's lock against registrations",
    }
}
