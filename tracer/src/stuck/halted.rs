//! Processes in which nothing can run: stopped, frozen, or dead and not reaped.

use super::{Stuck, StuckKind, daemon, phases, work};
use crate::{
    correlate::{Age, ProcessSeen, Snapshot, thresholds::UNREAPED_NS},
    input::Component,
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
    let (component, pid) = (fact.component, fact.pid);
    let what = if fact.state == 'Z' {
        // Every exit is unreaped for a moment.
        if since.ns < UNREAPED_NS {
            return None;
        }
        StuckKind::Unreaped { comm: fact.comm.clone(), pid, parent: fact.parent }
    } else if let Some(freezer) = &fact.freezer {
        StuckKind::Frozen { component, pid, freezer: freezer.clone() }
    } else {
        StuckKind::Stopped { component, pid, threads: fact.threads }
    };
    // A runc that is halted is waited for; a container that is paused may be meant so.
    let waiters =
        if component == Component::Runc { work::waiting(fact.parent, snapshot) } else { Vec::new() };
    let waits = |socket: &&crate::input::SocketFact| socket.unread > 0;
    Some(Stuck {
        what,
        since,
        container: fact.container.clone(),
        parks: fact.parked.clone(),
        frames: Vec::new(),
        phases: phases(fact, snapshot),
        sockets: fact.sockets.iter().filter(waits).cloned().collect(),
        waiters,
    })
}

/// Is this process halted? Then what its children and clients do is its consequence.
pub(super) fn is_halted(seen: &ProcessSeen) -> bool {
    seen.still_since.is_some() && seen.fact.state != 'Z'
}

/// The component's own processes, as opposed to what runs in containers.
pub(super) fn is_own(component: Component) -> bool {
    component != Component::Helper
}
