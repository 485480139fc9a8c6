//! Exits that the runtime does not know of: the first process of a container has ended, and the runtime says that it
//! runs. The shim did not tell, or nobody took its word.

use super::{Stuck, What};
use crate::correlate::{Age, census::Unreported, snapshot::Snapshot, thresholds::UNREPORTED_NS};

/// Those that several rounds found so, for longer than a runtime needs to learn of it.
pub(super) fn find(snapshot: &Snapshot) -> Vec<Stuck> {
    let says = snapshot.census.round.as_ref().and_then(|round| round.says.as_ref());
    // Without an answer in the last round it is not known what it believes now.
    let Some(says) = says.filter(|says| !says.version.is_empty()) else { return Vec::new() };
    let seen = snapshot.census.unreported.iter();
    seen.filter_map(|seen| unreported(seen, says.pid, snapshot)).collect()
}

fn unreported(seen: &Unreported, runtime: u32, snapshot: &Snapshot) -> Option<Stuck> {
    // From the first round to the last one that found it.
    let last = snapshot.census.round.as_ref()?.began_ns;
    if last.saturating_sub(seen.since.0) < UNREPORTED_NS {
        return None;
    }
    Some(Stuck {
        what: What::Unreported {
            id: seen.init.id.clone(),
            pid: seen.init.pid,
            zombie: seen.init.zombie,
            state: seen.said.state.clone(),
            runtime,
        },
        since: Age { ns: snapshot.now.since(seen.since), at_least: true },
        container: Some(seen.said.container.clone()),
        parks: Vec::new(),
        frames: Vec::new(),
        phases: Vec::new(),
        sockets: Vec::new(),
        waiters: Vec::new(),
    })
}
