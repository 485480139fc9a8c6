//! Who waits for a thing that does not move: requests, requests behind those, and the relist behind them.

use std::collections::HashSet;

use super::{Stuck, StuckKind, Waiter, callers, halted, work::waits_to_be_started};
use crate::{
    correlate::{Age, Held, Known, Request, Snapshot, WaitsFor, thresholds::CALL_OPEN_NS},
    cri::{Method, Program},
    input::{Command, Component},
};

/// Everybody who waits for a thing, the nearest first.
pub(super) fn waiters(stuck: &Stuck, known: &Known, snapshot: &Snapshot) -> Vec<Waiter> {
    let mut waiters = with_those_behind(nearest(stuck, known, snapshot), known, snapshot);
    let runtime = halted_component(&stuck.what).is_some_and(|component| component.role().is_runtime());
    if runtime && !waiters.iter().any(|waiter| matches!(waiter, Waiter::Relist { .. })) {
        waiters.extend(relist(snapshot));
    }
    waiters
}

/// These requests, those that wait for what one of them holds, and the relist if it waits for one of all these.
pub(crate) fn with_those_behind(
    mut requests: Vec<Request>,
    known: &Known,
    snapshot: &Snapshot,
) -> Vec<Waiter> {
    behind(&mut requests, known, snapshot);
    let lists = requests.iter().any(is_needed_by_relist);
    let mut waiters: Vec<Waiter> = requests.into_iter().map(Waiter::Requests).collect();
    if lists {
        waiters.extend(relist(snapshot));
    }
    waiters
}

fn is_needed_by_relist(request: &Request) -> bool {
    request.method().is_some_and(|method| method.facts().needed_by_relist)
}

/// Adds, again and again, those that wait for what somebody in the list holds.
fn behind(requests: &mut Vec<Request>, known: &Known, snapshot: &Snapshot) {
    let mut place = 0;
    while let Some(holder) = requests.get(place) {
        let next = snapshot.census.requests.iter().filter_map(|other| {
            let listed = requests.iter().any(|listed| listed.is(other));
            if listed { None } else { behind_lock(other, holder, known) }
        });
        let next: Vec<Request> = next.collect();
        requests.extend(next);
        place += 1;
    }
}

/// The request, when it waits for the lock of the other one: for certain when both say whose lock it is.
fn behind_lock(request: &Request, holder: &Request, known: &Known) -> Option<Request> {
    let held = *holder.holds.iter().find(|held| request.waits_for == WaitsFor::Lock(**held))?;
    if request.pid != holder.pid {
        return None;
    }
    let same = match held {
        // There is one of each.
        Held::Metadata | Held::Networks | Held::Nri | Held::NriPlugins | Held::NriSync => Some(true),
        Held::ContainerStatus | Held::SandboxStatus => {
            let lock = request.lock_of.as_deref().and_then(|id| known.get(id));
            lock.filter(|_| holder.target_known).and_then(|lock| known.are_of(&holder.containers, lock))
        }
    };
    told(request, same)
}

/// The request as a waiter, unless it is known to wait for something else.
fn told(request: &Request, same: Option<bool>) -> Option<Request> {
    (same != Some(false)).then(|| Request { target_known: same.is_some(), ..request.clone() })
}

/// Requests that wait for it without anything in between. Where container or pod of both is known, it must be the same;
/// otherwise all that wait for something of the kind.
fn nearest(stuck: &Stuck, known: &Known, snapshot: &Snapshot) -> Vec<Request> {
    let all = snapshot.census.requests.iter().filter(|request| request.component.role().is_runtime());
    let fits = |request: &Request| {
        let place = stuck.container.as_ref().filter(|_| request.target_known);
        let same = place.and_then(|place| known.are_of(&request.containers, place));
        let kind = match &stuck.what {
            StuckKind::Stopped { component: Component::Shim, .. }
            | StuckKind::Frozen { component: Component::Shim, .. }
            | StuckKind::Jammed { .. } => match request.waits_for {
                WaitsFor::Shim { .. } => true,
                // The shim tells the end of a command; most commands just take their time.
                WaitsFor::ExecOutput => same == Some(true),
                _ => false,
            },
            // Nor does it tell the end of a command.
            StuckKind::SilentShim { .. } => {
                let waits = matches!(request.waits_for, WaitsFor::Shim { .. } | WaitsFor::ExecOutput);
                same == Some(true) && waits
            }
            // What is frozen cannot be stopped, and runs no command.
            StuckKind::Frozen { component: Component::Helper, .. } => {
                same == Some(true) && request.method().is_some_and(|method| method.facts().needs_processes)
            }
            // A hook is waited for by whoever waits for its runc.
            // Who waits for a helper has started it itself.
            StuckKind::Process { .. } if runner_of(stuck).is_some() => {
                let own = runner_of(stuck).is_some_and(|(_, pid)| pid == request.pid);
                own && request.waits_for == WaitsFor::Child
            }
            StuckKind::Process { command, .. }
            | StuckKind::Stopped { command: Some(command), .. }
            | StuckKind::Frozen { component: Component::Runc, command: Some(command), .. } => {
                let command = runc_of(stuck).unwrap_or(command);
                let may = request.method().is_none_or(|method| may_run(method, command, stuck));
                may && waits_for_command(&request.waits_for, command, snapshot)
            }
            // Who waits for a runc that calls.
            StuckKind::Bus(_) => runc_of(stuck).is_some_and(|command| {
                let may = request.method().is_none_or(|method| may_run(method, command, stuck));
                may && waits_for_command(&request.waits_for, command, snapshot)
            }),
            StuckKind::OutputHeld { .. } => request.awaits_command(),
            // Of a container that has ended only the end of the wait for its end is missing.
            StuckKind::Unreported { exec: None, .. } => {
                let stops = matches!(request.method(), Some(Method::StopContainer | Method::StopPodSandbox));
                same == Some(true) && stops
            }
            _ => false,
        };
        if kind { told(request, same) } else { None }
    };
    all.filter_map(fits).collect()
}

/// The runc that waits for a process.
fn runc_of(stuck: &Stuck) -> Option<&Command> {
    stuck.waiters.iter().find_map(|waiter| match waiter {
        Waiter::Process { command: Some(command @ (Command::Runc { .. } | Command::Oci { .. })), .. } => {
            Some(command)
        }
        _ => None,
    })
}

/// The kubelet or runtime that runs a helper, itself or by other helpers, and its process. Hooks and what plugins run are none.
pub(crate) fn runner_of(stuck: &Stuck) -> Option<(Component, u32)> {
    let StuckKind::Process { command: Command::Other { .. }, .. } = &stuck.what else { return None };
    let is_helper = |waiter: &&Waiter| {
        matches!(
            waiter,
            Waiter::Process { component: Component::Helper, command: None | Some(Command::Other { .. }), .. }
        )
    };
    let Waiter::Process { component, pid, .. } = stuck.waiters.iter().find(|waiter| !is_helper(waiter))?
    else {
        return None;
    };
    let is_daemon = *component == Component::Kubelet || component.role().is_runtime();
    is_daemon.then_some((*component, *pid))
}

/// Does the runtime start such a command for a method? A command that is not known may be started for any.
fn may_run(method: Method, command: &Command, stuck: &Stuck) -> bool {
    let Some(sub) = command.sub() else { return true };
    let programs: &[Program] = match sub {
        "create" => &[Program::RuncCreate],
        // The init of a container waits at its FIFO; that of a command in it has none.
        "init" if stuck.parks.iter().any(|park| waits_to_be_started(park).is_some()) => {
            &[Program::RuncCreate]
        }
        "init" => &[Program::RuncCreate, Program::RuncExec],
        "start" => &[Program::RuncStart],
        "exec" => &[Program::RuncExec],
        "update" => &[Program::RuncUpdate],
        "kill" => &[Program::RuncKill],
        "delete" => &[Program::RuncDelete],
        _ => return true,
    };
    let facts = method.facts();
    facts.starts.iter().chain(facts.cleans_up_with).any(|program| programs.contains(program))
}

/// A shim runs runc for the methods of its task service; the runtime itself runs CNI plugins.
fn waits_for_command(waits_for: &WaitsFor, command: &Command, snapshot: &Snapshot) -> bool {
    match (waits_for, command) {
        (WaitsFor::Cni, Command::Cni { .. }) => true,
        (WaitsFor::Shim { .. }, Command::Shim { .. } | Command::Other { .. }) => true,
        (WaitsFor::Shim { method: Some(method) }, Command::Runc { sub, .. } | Command::Oci { sub, .. }) => {
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
        (WaitsFor::Shim { method: None }, Command::Runc { .. } | Command::Oci { .. }) => true,
        // A helper of the network is a child of a plugin.
        (WaitsFor::Cni, Command::Other { .. }) => {
            !snapshot.census.requests.iter().any(|request| matches!(request.waits_for, WaitsFor::Shim { .. }))
        }
        _ => false,
    }
}

fn halted_component(what: &StuckKind) -> Option<Component> {
    match what {
        StuckKind::Stopped { component, .. } | StuckKind::Frozen { component, .. } => Some(*component),
        _ => None,
    }
}

/// The relist that is open: as a traced call, else as a goroutine of the kubelet.
fn relist(snapshot: &Snapshot) -> Option<Waiter> {
    let open = snapshot.open.iter().find(|call| call.span.is_any_relist());
    if let Some(call) = open {
        let age = Age { ns: call.age_ns, at_least: false };
        return Some(Waiter::Relist { pid: call.span.id.tgid, age });
    }
    let seen = snapshot.census.requests.iter().find(|request| request.is_relist());
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
pub(super) fn unexplained(known: &Known, snapshot: &Snapshot, explained: &Vec<(u32, &[u64])>) -> Vec<Stuck> {
    let told: HashSet<(u32, u64)> =
        explained.iter().flat_map(|(pid, goids)| goids.iter().map(|goid| (*pid, *goid))).collect();
    let requests = snapshot.census.requests.iter().filter(|request| request.component.role().is_runtime());
    let fresh =
        requests.filter(|request| !request.goids.iter().any(|goid| told.contains(&(request.pid, *goid))));
    let (late, others): (Vec<&Request>, Vec<&Request>) =
        fresh.partition(|request| callers::is_request_late(request, snapshot));
    // What may take its time may not hold up others meanwhile.
    let holds_up = |holder: &&Request| {
        holder.since.ns > CALL_OPEN_NS
            && callers::may_last(holder)
            && late.iter().any(|request| behind_lock(request, holder, known).is_some())
    };
    let holders: Vec<&Request> = others.into_iter().filter(holds_up).collect();
    let fresh = [late, holders].concat();
    // Who waits for a lock that one of them holds is a waiter of that one.
    let waits = |request: &Request| {
        fresh.iter().any(|holder| !holder.is(request) && behind_lock(request, holder, known).is_some())
    };
    let first = fresh.iter().filter(|request| !waits(request));
    first.map(|request| of_request(request, known, snapshot)).collect()
}

fn of_request(request: &Request, known: &Known, snapshot: &Snapshot) -> Stuck {
    let mut chain = vec![request.clone()];
    behind(&mut chain, known, snapshot);
    let lists = chain.iter().any(is_needed_by_relist);
    let mut waiters: Vec<Waiter> = chain.drain(1..).map(Waiter::Requests).collect();
    if lists {
        waiters.extend(relist(snapshot));
    }
    Stuck {
        what: StuckKind::Request(request.clone()),
        since: request.since,
        container: request.containers.first().filter(|_| request.target_known).cloned(),
        parks: Vec::new(),
        frames: request.frames.clone(),
        phases: Vec::new(),
        sockets: Vec::new(),
        waiters,
    }
}

/// The process that is stuck, and those that wait for it.
pub(crate) fn processes(stuck: &Stuck) -> impl Iterator<Item = u32> {
    let waiters = stuck.waiters.iter().filter_map(|waiter| match waiter {
        Waiter::Process { pid, .. } => Some(*pid),
        Waiter::Requests(_) | Waiter::Relist { .. } => None,
    });
    std::iter::once(stuck.what.pid()).chain(waiters)
}

/// Does this hold up the node, or at least somebody on it?
pub(crate) fn matters(stuck: &Stuck, snapshot: &Snapshot) -> bool {
    match &stuck.what {
        StuckKind::Stopped { component: Component::Shim, .. } => {
            !stuck.waiters.is_empty()
                || halted::lasts(stuck, snapshot) && halted::is_shim_of_node(stuck, snapshot)
        }
        StuckKind::Stopped { component, .. } | StuckKind::Frozen { component, .. } => {
            halted::is_own(*component) || !stuck.waiters.is_empty()
        }
        StuckKind::Process { .. }
        | StuckKind::OutputHeld { .. }
        | StuckKind::Jammed { .. }
        | StuckKind::SilentShim { .. } => true,
        StuckKind::Bus(_) | StuckKind::Loop(_) | StuckKind::Request(_) => true,
        // Somebody waits for a command; for the end of a container only who stops it.
        StuckKind::Unreported { exec, .. } => exec.is_some() || !stuck.waiters.is_empty(),
        StuckKind::Unreaped { .. } => false,
    }
}
