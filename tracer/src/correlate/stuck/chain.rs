//! Who waits for a thing that does not move: requests, requests behind those, and the relist behind them.

use std::collections::HashSet;

use super::{Held, Request, Stuck, Waiter, WaitsFor, What, halted};
use crate::{
    correlate::{Age, snapshot::Snapshot, thresholds::stuck_after_ns},
    input::{Command, Component, Layer},
};

/// CRI methods without which a relist does not come to its end.
const OF_RELIST: [&str; 4] = ["ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"];

/// Everybody who waits for `what`, the nearest first.
pub(super) fn waiters(what: &What, snapshot: &Snapshot) -> Vec<Waiter> {
    let mut requests = nearest(what, snapshot);
    behind(&mut requests, snapshot);
    let mut waiters: Vec<Waiter> = requests.iter().cloned().map(Waiter::Requests).collect();
    let lists = requests.iter().any(|request| OF_RELIST.contains(&request.operation.as_str()));
    let runtime = halted_component(what).is_some_and(|component| component.role().is_runtime());
    if lists || runtime {
        waiters.extend(relist(snapshot));
    }
    waiters
}

/// Adds, again and again, those that wait for what somebody in the list holds.
fn behind(requests: &mut Vec<Request>, snapshot: &Snapshot) {
    let mut place = 0;
    while let Some(request) = requests.get(place) {
        let (pid, held) = (request.pid, request.holds);
        let next = snapshot.census.requests.iter().filter(|other| {
            let waits = held.is_some_and(|held| other.waits_for == WaitsFor::Lock(held));
            waits && other.pid == pid && !requests.contains(other)
        });
        let next: Vec<Request> = next.cloned().collect();
        requests.extend(next);
        place += 1;
    }
}

/// Requests that wait for it without anything in between.
fn nearest(what: &What, snapshot: &Snapshot) -> Vec<Request> {
    let all = snapshot.census.requests.iter().filter(|request| request.component.role().is_runtime());
    let fits = |request: &&Request| match what {
        What::Stopped { component: Component::Shim, .. }
        | What::Frozen { component: Component::Shim, .. } => {
            matches!(request.waits_for, WaitsFor::Shim { .. })
        }
        What::Process { command, .. } => waits_for_command(&request.waits_for, command, snapshot),
        What::OutputHeld { .. } => request.operation == "ExecSync",
        _ => false,
    };
    all.filter(fits).cloned().collect()
}

/// A shim runs runc for the methods of its task service; the runtime itself runs CNI plugins.
fn waits_for_command(waits_for: &WaitsFor, command: &Command, snapshot: &Snapshot) -> bool {
    match (waits_for, command) {
        (WaitsFor::Cni, Command::Cni { .. }) => true,
        (WaitsFor::Shim { .. }, Command::Shim { .. } | Command::Other { .. }) => true,
        (WaitsFor::Shim { method: Some(method) }, Command::Runc { sub, .. }) => {
            let of_sub: &[&str] = match sub.as_str() {
                "create" | "init" => &["Create", "Start"],
                "start" | "exec" => &["Start", "Exec"],
                "kill" => &["Kill"],
                "delete" => &["Delete"],
                "update" => &["Update"],
                "pause" => &["Pause"],
                "resume" => &["Resume"],
                _ => return false,
            };
            of_sub.contains(&method.as_str())
        }
        (WaitsFor::Shim { method: None }, Command::Runc { .. }) => true,
        // A helper of the network is a child of a plugin.
        (WaitsFor::Cni, Command::Other { .. }) => {
            !snapshot.census.requests.iter().any(|request| matches!(request.waits_for, WaitsFor::Shim { .. }))
        }
        _ => false,
    }
}

fn halted_component(what: &What) -> Option<Component> {
    match what {
        What::Stopped { component, .. } | What::Frozen { component, .. } => Some(*component),
        _ => None,
    }
}

/// The relist that is open: as a traced call, else as a goroutine of the kubelet.
fn relist(snapshot: &Snapshot) -> Option<Waiter> {
    let open = snapshot.open.iter().find(|call| call.span.layer() == Layer::Relist);
    if let Some(call) = open {
        let age = Age { ns: call.age_ns, at_least: false };
        return Some(Waiter::Relist { pid: call.span.id.tgid, age });
    }
    let seen = snapshot.census.requests.iter().find(|request| request.operation == "relist");
    seen.map(|request| Waiter::Relist { pid: request.pid, age: request.since })
}

/// The goroutines of a waiter.
pub(super) fn goroutines(waiter: &Waiter) -> Option<(u32, &[u64])> {
    match waiter {
        Waiter::Requests(request) => Some((request.pid, &request.goids)),
        Waiter::Process { .. } | Waiter::Relist { .. } => None,
    }
}

/// Requests that take too long and wait for nothing that was found, with those behind them.
pub(super) fn unexplained(snapshot: &Snapshot, explained: &Vec<(u32, &[u64])>) -> Vec<Stuck> {
    let known: HashSet<(u32, u64)> =
        explained.iter().flat_map(|(pid, goids)| goids.iter().map(|goid| (*pid, *goid))).collect();
    let late = |request: &&Request| {
        let limit = stuck_after_ns(&request.operation);
        let handler = request.component.role().is_runtime();
        handler && limit.is_some_and(|limit| request.since.ns > limit)
    };
    let requests = snapshot.census.requests.iter().filter(late);
    let fresh =
        requests.filter(|request| !request.goids.iter().any(|goid| known.contains(&(request.pid, *goid))));
    let fresh: Vec<&Request> = fresh.collect();
    // Who waits for a lock that one of them holds is a waiter of that one.
    let held: Vec<(u32, Held)> =
        fresh.iter().filter_map(|request| Some((request.pid, request.holds?))).collect();
    let waits = |request: &Request| match request.waits_for {
        WaitsFor::Lock(lock) => held.contains(&(request.pid, lock)),
        _ => false,
    };
    fresh.iter().filter(|request| !waits(request)).map(|request| of_request(request, snapshot)).collect()
}

fn of_request(request: &Request, snapshot: &Snapshot) -> Stuck {
    let mut chain = vec![request.clone()];
    behind(&mut chain, snapshot);
    let lists = chain.iter().any(|request| OF_RELIST.contains(&request.operation.as_str()));
    let mut waiters: Vec<Waiter> = chain.drain(1..).map(Waiter::Requests).collect();
    if lists {
        waiters.extend(relist(snapshot));
    }
    Stuck {
        what: What::Request(request.clone()),
        since: request.since,
        container: None,
        parks: Vec::new(),
        frames: request.frames.clone(),
        sockets: Vec::new(),
        waiters,
    }
}

/// The process that is stuck, and those that wait for it.
pub(in crate::correlate) fn processes(stuck: &Stuck) -> impl Iterator<Item = u32> {
    let waiters = stuck.waiters.iter().filter_map(|waiter| match waiter {
        Waiter::Process { pid, .. } => Some(*pid),
        Waiter::Requests(_) | Waiter::Relist { .. } => None,
    });
    std::iter::once(stuck.what.pid()).chain(waiters)
}

/// Does this hold up the node, or at least somebody on it?
pub(in crate::correlate) fn matters(stuck: &Stuck) -> bool {
    match &stuck.what {
        What::Stopped { component, .. } | What::Frozen { component, .. } => {
            halted::is_own(*component) || !stuck.waiters.is_empty()
        }
        What::Process { .. } | What::OutputHeld { .. } | What::Request(_) => true,
        What::Unreaped { .. } => false,
    }
}
