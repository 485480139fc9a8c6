//! Processes that do one thing and end, and have not: runc, CNI plugins, hooks; and pipes that outlive their command.

use super::{Stuck, StuckKind, Waiter, bus, halted, phases};
use crate::{
    correlate::{
        Age, BlockedThread, Known, OpenProcess, ProcessSeen, Request, Snapshot,
        helpers::{HELPER_NS, helper_late_after_ns, helper_names},
        thresholds::{
            EXEC_OUTPUT_NS, FILE_CALL_NS, HOOK_NS, UNREPORTED_NS, late_after_ns, stuck_after_ns,
            waits_for_its_command,
        },
    },
    input::{Command, Component, ContainerFact, FdTarget, Layer, ParkedThreads, PipeFact},
};

/// Processes that are late and wait for no other that is late, each with the processes that wait for it.
pub(super) fn processes(snapshot: &Snapshot) -> Vec<Stuck> {
    let all = &snapshot.census.processes;
    // A plugin that reads its configuration from a runtime that is stopped is no culprit.
    let behind_halted = |seen: &ProcessSeen| {
        let halted = |other: &ProcessSeen| other.fact.pid == seen.fact.parent && halted::is_halted(other);
        waits_for_parent(seen) && all.iter().any(halted)
    };
    let late = all.iter().filter(|seen| is_late(seen, snapshot) && !behind_halted(seen));
    let late: Vec<&ProcessSeen> = late.collect();
    let child = |other: &ProcessSeen, of: &ProcessSeen| other.fact.parent == of.fact.pid;
    let has_child = |seen: &ProcessSeen| {
        let halted = all.iter().any(|other| child(other, seen) && halted::is_halted(other));
        halted || late.iter().any(|other| child(other, seen))
    };
    // `runc init` waits for the word of its runc, which waits for a hook: the hook it is.
    let parent_is_held = |seen: &ProcessSeen| {
        let held = |other: &&ProcessSeen| {
            other.fact.parent == seen.fact.parent
                && other.fact.pid != seen.fact.pid
                && !waits_for_parent(other)
        };
        waits_for_parent(seen) && late.iter().any(held)
    };
    // What makes a call over D-Bus waits for whoever is to answer it, and what it has started waits for it.
    let callers = bus::callers(snapshot);
    let calls = |seen: &ProcessSeen| callers.contains(&seen.fact.pid) || callers.contains(&seen.fact.parent);
    let (behind, first): (Vec<&ProcessSeen>, Vec<&ProcessSeen>) =
        late.iter().filter(|seen| !has_child(seen) && !calls(seen)).partition(|seen| parent_is_held(seen));
    let with_siblings = |seen: &ProcessSeen| {
        let mut stuck = stuck(seen, snapshot);
        let siblings = behind.iter().filter(|other| other.fact.parent == seen.fact.parent);
        stuck.waiters.extend(siblings.map(|sibling| waiter(sibling, snapshot)));
        stuck
    };
    first.into_iter().map(with_siblings).collect()
}

/// Is it blocked in a read of what only its parent can write?
fn waits_for_parent(seen: &ProcessSeen) -> bool {
    let from = |park: &ParkedThreads| {
        let fd = park.syscall.as_ref()?.fd.as_ref()?;
        let writers = match &fd.target {
            FdTarget::Socket(socket) => &socket.peers,
            FdTarget::Pipe(pipe) => &pipe.writers,
            FdTarget::File { .. } | FdTarget::Other { .. } => return None,
        };
        Some(writers.iter().any(|writer| writer.pid == seen.fact.parent))
    };
    seen.fact.parked.iter().any(|park| from(park) == Some(true))
}

/// The age from which a process that the census found is late; `None`: never by its age.
fn limit_ns(seen: &ProcessSeen, snapshot: &Snapshot) -> Option<u64> {
    let parent = snapshot.census.processes.iter().find(|other| other.fact.pid == seen.fact.parent);
    let parent = parent.map(|parent| parent.fact.component);
    let own = seen.fact.command.as_ref().and_then(|command| late_after_ns(command, parent));
    // Whether what it runs in the foreground has begun, only records of births tell.
    let foreground = || match &seen.fact.command {
        Some(Command::Runc { sub, .. }) if waits_for_its_command(sub, parent) => {
            traced(seen, snapshot).filter(|process| process.start.is_some())?.late_after_ns
        }
        _ => None,
    };
    let helper = || helper_late_after_ns(&helper_names(&seen.fact)?, runner(seen, snapshot)?);
    own.or_else(foreground).or_else(helper)
}

/// The component for which a helper works, itself or for another helper.
pub(super) fn runner(seen: &ProcessSeen, snapshot: &Snapshot) -> Option<Component> {
    let chain = ancestors(seen.fact.parent, snapshot);
    let (last, between) = chain.split_last()?;
    // Who waits for a plugin waits for what that runs.
    between.iter().all(|other| helper_names(&other.fact).is_some()).then_some(last.fact.component)
}

fn is_late(seen: &ProcessSeen, snapshot: &Snapshot) -> bool {
    let over = limit_ns(seen, snapshot).is_some_and(|limit| known_age_ns(seen, snapshot) > limit)
        || is_held_in_kernel(seen, snapshot);
    // What is stopped or frozen is told as such; what waits for it is late as its parent.
    over && seen.fact.state != 'Z' && !halted::is_halted(seen) && !waits_for_hook(seen, snapshot)
}

/// Does a runc, or its init, wait for a hook that takes its time and may?
fn waits_for_hook(seen: &ProcessSeen, snapshot: &Snapshot) -> bool {
    let runc = match &seen.fact.command {
        Some(Command::Runc { sub, .. }) if sub == "init" => seen.fact.parent,
        Some(Command::Runc { .. }) => seen.fact.pid,
        _ => return false,
    };
    let may_last = |hook: &ProcessSeen| {
        let limit =
            hook.fact.command.as_ref().and_then(|command| late_after_ns(command, Some(Component::Runc)));
        let is_hook = matches!(hook.fact.command, Some(Command::Other { .. })) && hook.fact.state != 'Z';
        is_hook
            && !halted::is_halted(hook)
            && limit.is_some_and(|limit| limit > HOOK_NS && known_age_ns(hook, snapshot) <= limit)
    };
    let mut hooks = snapshot.census.processes.iter().filter(|other| other.fact.parent == runc);
    hooks.any(may_last)
}

/// Has every look for long found a helper in the same call, in which the kernel waits? However long its work may last, it does none.
fn is_held_in_kernel(seen: &ProcessSeen, snapshot: &Snapshot) -> bool {
    let held = |thread: &BlockedThread| seen.fact.at_ns.saturating_sub(thread.since.0) > HELPER_NS;
    let of_daemon = |component: Component| component == Component::Kubelet || component.role().is_runtime();
    helper_names(&seen.fact).is_some()
        && seen.blocked.iter().any(held)
        && runner(seen, snapshot).is_some_and(of_daemon)
}

/// How old it was when it was last known to be there: at its look, or now when no end of it was seen by who would see it.
fn known_age_ns(seen: &ProcessSeen, snapshot: &Snapshot) -> u64 {
    let fact = &seen.fact;
    let until = if traced(seen, snapshot).is_some() { snapshot.now.0 } else { fact.at_ns };
    until.saturating_sub(fact.started_ns.unwrap_or(fact.at_ns))
}

/// The same process, as records of births tell of it.
fn traced<'a>(seen: &ProcessSeen, snapshot: &'a Snapshot) -> Option<&'a OpenProcess> {
    let same = |process: &&OpenProcess| {
        process.pid == seen.fact.pid && process.start.is_none_or(|start| start.0 <= seen.fact.at_ns)
    };
    snapshot.processes.open.iter().find(same)
}

/// When something that is open became late, or will if it is still there: only a look after that tells how it waits.
pub(crate) fn late_from(snapshot: &Snapshot) -> impl Iterator<Item = u64> {
    let seen = snapshot.census.processes.iter().filter(|seen| seen.fact.state != 'Z');
    let seen = seen.filter_map(|seen| Some(seen.fact.started_ns?.saturating_add(limit_ns(seen, snapshot)?)));
    let open = snapshot.processes.open.iter();
    let open = open.filter_map(|process| Some(process.start?.0.saturating_add(process.late_after_ns?)));
    let handlers = snapshot.open.iter().filter(|call| call.span.layer() == Layer::Handler);
    let handlers = handlers
        .filter_map(|call| Some(call.span.start().0.saturating_add(stuck_after_ns(call.span.operation())?)));
    // What the runtime does not know of at a look may only not have been reported yet. Commands end all the time.
    let unreported = snapshot.census.unreported.iter().filter(|seen| seen.init.exec.is_none());
    let unreported = unreported.map(|seen| seen.since.0.saturating_add(UNREPORTED_NS));
    let blocked = blocked(snapshot).map(|since| since.saturating_add(FILE_CALL_NS));
    seen.chain(open).chain(handlers).chain(unreported).chain(blocked)
}

/// Since when threads of kubelets wait for the server of a file system, those of others for the end of an unmount, and those of all
/// that work for pods for an agent or for a thaw.
pub(crate) fn blocked(snapshot: &Snapshot) -> impl Iterator<Item = u64> {
    let all = || snapshot.census.processes.iter();
    let kubelets = all().filter(|seen| seen.fact.component == Component::Kubelet);
    let served = kubelets.flat_map(ProcessSeen::waits_for_server);
    let held = all().filter(|seen| serves_or_is_started(seen)).flat_map(ProcessSeen::waits);
    let held = held.filter(|(_, park)| park.waits_for_permission() || park.waits_for_thaw());
    // On a node on which pods come and go, some shim unmounts at many looks, and does not do so at the next.
    let looked = snapshot.census.round.as_ref().map_or(0, |round| round.ended_ns);
    let unmounts = all().flat_map(ProcessSeen::unmounts);
    let unmounts = unmounts.filter(move |(thread, park)| park.flushes_overlay() || thread.since.0 < looked);
    served.chain(unmounts).chain(held).map(|(thread, _)| thread.since.0)
}

/// Is it a kubelet, a shim, or something that another program has started?
fn serves_or_is_started(seen: &ProcessSeen) -> bool {
    matches!(seen.fact.component, Component::Kubelet | Component::Shim | Component::Helper)
}

/// A process that started before we came has an exact age all the same: the kernel keeps it.
fn age(seen: &ProcessSeen, snapshot: &Snapshot) -> Age {
    let started = seen.fact.started_ns.unwrap_or(seen.fact.at_ns);
    Age { ns: snapshot.now.0.saturating_sub(started), at_least: seen.fact.started_ns.is_none() }
}

fn stuck(seen: &ProcessSeen, snapshot: &Snapshot) -> Stuck {
    let fact = &seen.fact;
    let command = fact.command.clone().unwrap_or_else(|| Command::Other { program: fact.comm.clone() });
    let ancestors = ancestors(fact.parent, snapshot);
    Stuck {
        what: StuckKind::Process { command, comm: fact.comm.clone(), pid: fact.pid, state: fact.state },
        since: age(seen, snapshot),
        container: container(seen, &ancestors),
        parks: fact.parked.clone(),
        frames: Vec::new(),
        phases: phases(fact, snapshot),
        sockets: Vec::new(),
        waiters: ancestors.into_iter().map(|seen| waiter(seen, snapshot)).collect(),
    }
}

/// Whose it is. `runc init` and hooks are not told for whom they work; the runc that waits for them is, and its shim
/// knows the pod.
pub(super) fn container(seen: &ProcessSeen, ancestors: &[&ProcessSeen]) -> Option<ContainerFact> {
    let chain = || std::iter::once(seen).chain(ancestors.iter().copied());
    let known = chain().find_map(|process| process.fact.container.clone());
    let by_fifo = || Some((seen.fact.parked.iter().find_map(waits_to_be_started)?, "exec.fifo"));
    let command = |process: &ProcessSeen| process.fact.command.as_ref()?.container().map(str::to_owned);
    let Some((id, source)) = by_fifo().or_else(|| Some((chain().find_map(command)?, "command line"))) else {
        return known;
    };
    let source = source.to_owned();
    Some(match known {
        None => ContainerFact { id, source, ..ContainerFact::default() },
        Some(known) if known.id == id => known,
        Some(known) => ContainerFact { sandbox: Some(known.id.clone()), id, name: None, source, ..known },
    })
}

/// `runc init` waits at the exec.fifo in the state directory of its container, whose name is the id.
pub(super) fn waits_to_be_started(park: &ParkedThreads) -> Option<String> {
    let FdTarget::Pipe(PipeFact { path: Some(path), .. }) = &park.syscall.as_ref()?.fd.as_ref()?.target
    else {
        return None;
    };
    path.strip_suffix("/exec.fifo")?.rsplit('/').next().map(str::to_owned)
}

/// The processes that wait for a process with this parent.
pub(crate) fn waiting(parent: u32, snapshot: &Snapshot) -> Vec<Waiter> {
    ancestors(parent, snapshot).into_iter().map(|seen| waiter(seen, snapshot)).collect()
}

pub(super) fn waiter(seen: &ProcessSeen, snapshot: &Snapshot) -> Waiter {
    let fact = &seen.fact;
    let phases = phases(fact, snapshot);
    Waiter::Process {
        component: fact.component,
        command: fact.command.clone(),
        comm: fact.comm.clone(),
        pid: fact.pid,
        phases,
    }
}

/// Parents up to the first that serves others (a shim, a runtime, the kubelet), that one included.
pub(super) fn ancestors(mut parent: u32, snapshot: &Snapshot) -> Vec<&ProcessSeen> {
    let mut found = Vec::new();
    // A chain of parents has no loop, but it is read while it changes.
    while let Some(seen) = snapshot.census.processes.iter().find(|seen| seen.fact.pid == parent)
        && found.len() < 8
    {
        found.push(seen);
        let server = !matches!(seen.fact.component, Component::Runc | Component::Helper);
        if server {
            break;
        }
        parent = seen.fact.parent;
    }
    found
}

/// Pipes of shims that somebody in a container holds open while an ExecSync waits for the end of the output.
pub(super) fn outputs(known: &Known, snapshot: &Snapshot) -> Vec<Stuck> {
    let waiting = |request: &&Request| request.awaits_command() && request.since.ns > EXEC_OUTPUT_NS;
    let waiting: Vec<&Request> = snapshot.census.requests.iter().filter(waiting).collect();
    // The oldest that may wait for this one.
    let oldest = |container: Option<&ContainerFact>| {
        let elsewhere = |request: &Request| {
            let place = container.filter(|_| request.target_known);
            place.and_then(|place| known.are_of(&request.containers, place)) == Some(false)
        };
        waiting.iter().filter(|request| !elsewhere(request)).map(|request| request.since).next()
    };
    let of_shim = |seen: &ProcessSeen| {
        let container = seen.fact.container.clone();
        let shim = seen.fact.pid;
        let Some(oldest) = oldest(container.as_ref()) else { return Vec::new() };
        let stuck = move |pipe: &PipeFact| Stuck {
            what: StuckKind::OutputHeld { pipe: pipe.clone(), shim },
            since: oldest,
            container: container.clone(),
            parks: Vec::new(),
            frames: Vec::new(),
            phases: Vec::new(),
            sockets: Vec::new(),
            waiters: Vec::new(),
        };
        // A command that still runs may write; what it left behind should not.
        let left_behind = |pipe: &&PipeFact| {
            let mut others = pipe.writers.iter().filter(|writer| writer.pid != shim).peekable();
            others.peek().is_some() && others.all(|writer| writer.orphan)
        };
        seen.fact.pipes.iter().filter(left_behind).map(stuck).collect::<Vec<_>>()
    };
    let shims = snapshot.census.processes.iter().filter(|seen| seen.fact.component == Component::Shim);
    shims.flat_map(of_shim).collect()
}
