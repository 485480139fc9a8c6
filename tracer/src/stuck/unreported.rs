//! Exits that the runtime does not know of: the first process of a container has ended, and the runtime says that it
//! runs; or that of a command has, and its ExecSync goes on. The shim did not report it, or its report was lost.

use super::{Stuck, StuckKind, Waiter};
use crate::{
    correlate::{
        Age, Known, Request, Snapshot, Unreported,
        thresholds::{SECOND_NS, UNREPORTED_NS},
    },
    input::ContainerFact,
};

/// A request that is seen this much later than the end may have been open before it: one round asks for ends first.
const SAME_ROUND_NS: u64 = SECOND_NS;

/// Those that every round found so, for longer than a runtime needs to learn of it. `found`: what else does not move;
/// a command whose output is held open is one that the runtime knows has ended.
pub(super) fn find(found: &[Stuck], known: &Known, snapshot: &Snapshot) -> Vec<Stuck> {
    let seen = snapshot.census.unreported.iter().filter(|seen| is_old(seen, snapshot));
    seen.filter_map(|seen| match seen.init.exec {
        None => container(seen, snapshot),
        Some(_) => command(seen, found, known, snapshot),
    })
    .collect()
}

/// From the exit, or the first round that found it, to the last round that did.
fn is_old(seen: &Unreported, snapshot: &Snapshot) -> bool {
    age_ns(seen, snapshot) >= UNREPORTED_NS
}

/// As far as it was seen.
fn age_ns(seen: &Unreported, snapshot: &Snapshot) -> u64 {
    let last = snapshot.census.round.as_ref().map_or(0, |round| round.began_ns);
    last.saturating_sub(seen.since.0)
}

fn container(seen: &Unreported, snapshot: &Snapshot) -> Option<Stuck> {
    // Without an answer in the last round it is not known what it believes now.
    let says = snapshot.census.round.as_ref()?.says.as_ref().filter(|says| !says.version.is_empty())?;
    let said = seen.said.as_ref()?;
    Some(stuck(seen, Some(said.state.clone()), says.pid, Some(said.container.clone()), snapshot))
}

/// A command that was not deleted says nothing alone: a runtime that was started anew never does it. That more requests
/// wait for the end of a command than commands run does.
fn command(seen: &Unreported, found: &[Stuck], known: &Known, snapshot: &Snapshot) -> Option<Stuck> {
    let place = known.get(&seen.init.id)?;
    let held = |stuck: &Stuck| {
        let of = stuck.container.as_ref().map(|shim| known.are_of(std::slice::from_ref(place), shim));
        matches!(stuck.what, StuckKind::OutputHeld { .. }) && of != Some(Some(false))
    };
    if found.iter().any(held) {
        return None;
    }
    let age = age_ns(seen, snapshot);
    let waits = |request: &&Request| {
        let here = request.target_known && known.are_of(&request.containers, place) == Some(true);
        request.awaits_command() && here && request.since.ns.saturating_add(SAME_ROUND_NS) >= age
    };
    let waiting: Vec<&Request> = snapshot.census.requests.iter().filter(waits).collect();
    let runtime = waiting.first()?.pid;
    if waiting.iter().map(|request| request.count).sum::<u32>() <= seen.init.commands {
        return None;
    }
    let waiters = waiting.into_iter().cloned().map(Waiter::Requests).collect();
    Some(Stuck { waiters, ..stuck(seen, None, runtime, Some(place.clone()), snapshot) })
}

fn stuck(
    seen: &Unreported,
    state: Option<String>,
    runtime: u32,
    container: Option<ContainerFact>,
    snapshot: &Snapshot,
) -> Stuck {
    let init = &seen.init;
    Stuck {
        what: StuckKind::Unreported {
            id: init.id.clone(),
            exec: init.exec.clone(),
            pid: init.pid,
            zombie: init.zombie,
            tracer: init.tracer.clone(),
            state,
            runtime,
        },
        since: Age { ns: age_ns(seen, snapshot), at_least: true },
        container,
        parks: Vec::new(),
        frames: Vec::new(),
        phases: Vec::new(),
        sockets: Vec::new(),
        waiters: Vec::new(),
    }
}
