//! Processes in which nothing can run: stopped, frozen, or dead and not reaped.

use super::{Stuck, StuckKind, daemon, phases, work};
use crate::{
    correlate::{
        Age, ProcessSeen, Snapshot, TracedProcess, TracedState,
        thresholds::{STILL_NS, UNREAPED_NS},
    },
    decode::MonoNs,
    input::{Command, Component},
};

/// Those of the last round of the census.
pub(super) fn find(snapshot: &Snapshot) -> Vec<Stuck> {
    let seen = snapshot.census.processes.iter();
    seen.filter_map(|seen| halted(seen, snapshot)).collect()
}

fn halted(seen: &ProcessSeen, snapshot: &Snapshot) -> Option<Stuck> {
    let fact = &seen.fact;
    let still_since = daemon::halted_since(seen, seen.still_since?, snapshot)?;
    let since = Age { ns: snapshot.now.since(still_since), at_least: true };
    let (component, pid, comm) = (fact.component, fact.pid, fact.comm.clone());
    let command = fact.command.clone().filter(|command| does_one_thing(command, seen, snapshot));
    // A program that does one thing and is halted is waited for; a container that is paused may be meant so.
    let is_waited_for = component == Component::Runc || command.is_some() && fact.freezer.is_none();
    let ancestors = if is_waited_for { work::ancestors(fact.parent, snapshot) } else { Vec::new() };
    let what = if fact.state == 'Z' {
        // Every exit is unreaped for a moment.
        if since.ns < UNREAPED_NS {
            return None;
        }
        StuckKind::Unreaped { comm, pid, parent: fact.parent }
    } else if let Some(freezer) = &fact.freezer {
        StuckKind::Frozen { component, pid, freezer: freezer.clone(), command, comm }
    } else {
        StuckKind::Stopped { component, pid, threads: fact.threads, command, comm }
    };
    let waits = |socket: &&crate::input::SocketFact| socket.unread > 0;
    Some(Stuck {
        what,
        since,
        container: if is_waited_for { work::container(seen, &ancestors) } else { fact.container.clone() },
        parks: fact.parked.clone(),
        frames: Vec::new(),
        phases: phases(fact, snapshot),
        sockets: fact.sockets.iter().filter(waits).cloned().collect(),
        waiters: ancestors.into_iter().map(|seen| work::waiter(seen, snapshot)).collect(),
    })
}

/// Was it told to do one thing and end: a command of runc, a network plugin, a hook? What runs in a container was not.
fn does_one_thing(command: &Command, seen: &ProcessSeen, snapshot: &Snapshot) -> bool {
    // Those two have no hooks: what they start is what runs in the container.
    let has_hooks =
        |command: &Command| matches!(command, Command::Runc { sub, .. } if sub != "exec" && sub != "run");
    let is_hook = || {
        let mut processes = snapshot.census.processes.iter();
        let parent = processes.find(|other| other.fact.pid == seen.fact.parent);
        parent.and_then(|parent| parent.fact.command.as_ref()).is_some_and(has_hooks)
    };
    match (seen.fact.component, command) {
        (Component::Runc, Command::Runc { .. })
        | (Component::Helper, Command::Cni { .. } | Command::Oci { .. }) => true,
        (Component::Helper, Command::Other { .. }) => is_hook(),
        _ => false,
    }
}

/// Is this process halted? Then what its children and clients do is its consequence.
pub(super) fn is_halted(seen: &ProcessSeen) -> bool {
    seen.still_since.is_some() && seen.fact.state != 'Z'
}

/// Did looks find a shim so, and without work, for longer than a debugger, or a dump of its memory, holds a process for a moment? Between
/// the last look and now it may have gone on.
pub(super) fn lasts(stuck: &Stuck, snapshot: &Snapshot) -> bool {
    let pid = stuck.what.pid();
    let mut processes = snapshot.census.processes.iter();
    let Some(seen) = processes.find(|seen| seen.fact.pid == pid) else { return false };
    let worked = snapshot.shims_worked.get(&pid).copied();
    let since = seen.still_since.max(worked.filter(|_| seen.still_since.is_some()));
    since.is_some_and(|since| MonoNs(seen.fact.at_ns).since(since) >= STILL_NS)
}

/// Does this shim work for the kubelet? containerd keeps the pods of the kubelet in a namespace of its own, and those of Docker in another
/// (`NewBundle` in runtime/v2/bundle.go); one whose namespace is not known may.
pub(crate) fn is_shim_of_node(stuck: &Stuck, snapshot: &Snapshot) -> bool {
    let mut processes = snapshot.census.processes.iter();
    let seen = processes.find(|seen| seen.fact.pid == stuck.what.pid());
    let namespace = seen.and_then(|seen| match &seen.fact.command {
        Some(Command::Shim { namespace, .. }) => namespace.as_deref(),
        _ => None,
    });
    let is_docker = |target: &TracedProcess| {
        target.fact.component == Component::Dockerd && target.state == TracedState::Live
    };
    match namespace {
        None | Some("k8s.io") => true,
        Some(name) => name == "moby" && snapshot.targets.iter().any(is_docker),
    }
}

/// The component's own processes, as opposed to what runs in containers.
pub(super) fn is_own(component: Component) -> bool {
    component != Component::Helper
}
