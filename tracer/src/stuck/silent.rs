//! Shims that run, run no program, and do not answer: what a shim is asked takes it milliseconds, unless a runc works for it.

use super::{Stuck, StuckKind, callers, chain, shim_lock};
use crate::{
    correlate::{
        Age, Known, ProcessSeen, Request, Snapshot, WaitsFor,
        thresholds::{CALL_OPEN_NS, STILL_NS},
    },
    input::Component,
};

/// A request that waits for a shim for so long is worth a look at the shim's goroutines.
const WORTH_A_LOOK_NS: u64 = STILL_NS;
/// The methods of a shim that last as long as what they wait for.
const LONG: [&str; 1] = ["Wait"];

/// Those of which nothing else is known that would explain it.
pub(super) fn find(found: &[Stuck], known: &Known, snapshot: &Snapshot) -> Vec<Stuck> {
    let blamed = |shim: &&ProcessSeen| found.iter().any(|stuck| is_about(stuck, shim.fact.pid));
    let shims = shims(snapshot).filter(|shim| !blamed(shim));
    shims.filter_map(|shim| silent(shim, known, snapshot)).collect()
}

/// Shims whose goroutines would tell more: somebody waits for them, and they run no program.
pub(crate) fn shims_to_read(snapshot: &Snapshot) -> Vec<u32> {
    let known = Known::collect(snapshot.census.round.as_ref(), snapshot.census.processes.iter());
    let awaited = |shim: &&ProcessSeen| {
        let mut waiting = waiting(shim, &known, snapshot);
        waiting.any(|request| request.stays || request.since.ns >= WORTH_A_LOOK_NS)
    };
    shims(snapshot).filter(awaited).map(|shim| shim.fact.pid).collect()
}

/// Those that could answer: they run, and run no program, at each look since.
fn shims(snapshot: &Snapshot) -> impl Iterator<Item = &ProcessSeen> {
    let idle = |seen: &&ProcessSeen| {
        let blocked = !seen.blocked.is_empty();
        seen.fact.component == Component::Shim && seen.idle_since.is_some() && !blocked
    };
    snapshot.census.processes.iter().filter(idle)
}

/// Requests that wait for an answer of this shim, for certain.
fn waiting<'a>(
    shim: &'a ProcessSeen,
    known: &'a Known,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = &'a Request> {
    snapshot.census.requests.iter().filter(move |request| {
        let WaitsFor::Shim { method: Some(method) } = &request.waits_for else { return false };
        let here = shim.fact.container.as_ref().and_then(|of| known.are_of(&request.containers, of));
        request.target_known && here == Some(true) && !LONG.contains(&method.as_str())
    })
}

/// Is this thing about the shim already, or what the shim waits for?
fn is_about(stuck: &Stuck, shim: u32) -> bool {
    let other = match &stuck.what {
        StuckKind::Jammed { shim, .. } | StuckKind::OutputHeld { shim, .. } => Some(*shim),
        // A shim that does not answer does not reap either.
        StuckKind::Unreaped { .. } => return false,
        _ => None,
    };
    other == Some(shim) || chain::processes(stuck).any(|pid| pid == shim)
}

fn silent(shim: &ProcessSeen, known: &Known, snapshot: &Snapshot) -> Option<Stuck> {
    let looked = snapshot.census.round.as_ref()?.ended_ns;
    let idle_ns = looked.saturating_sub(shim.idle_since?.0);
    let goroutines = snapshot.census.goroutines.iter().find(|fact| fact.pid == shim.fact.pid);
    let (lock, held_up) = goroutines.map_or((None, None), |fact| shim_lock::find(&fact.groups));
    let late = |request: &&Request| match lock {
        Some(_) => request.since.ns >= STILL_NS,
        None => callers::is_request_late(request, snapshot),
    };
    let oldest = waiting(shim, known, snapshot)
        .filter(|request| request.stays && late(request))
        .max_by_key(|request| request.since.ns)?;
    let WaitsFor::Shim { method } = &oldest.waits_for else { return None };
    let needed = if lock.is_some() { STILL_NS } else { CALL_OPEN_NS };
    let (shim_pid, method) = (shim.fact.pid, method.clone().unwrap_or_default());
    (idle_ns >= needed).then(|| Stuck {
        what: StuckKind::SilentShim { shim: shim_pid, method, lock },
        since: Age { ns: oldest.since.ns.min(idle_ns), at_least: true },
        container: shim.fact.container.clone(),
        parks: Vec::new(),
        frames: held_up.map(|group| group.frames.clone()).unwrap_or_default(),
        phases: Vec::new(),
        sockets: Vec::new(),
        waiters: Vec::new(),
    })
}
