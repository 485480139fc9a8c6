//! A runtime and a shim of which neither reads what the other has sent: each waits for room to write first.

use super::{Stuck, StuckKind};
use crate::correlate::{Age, Jam, Snapshot, thresholds::STILL_NS};

/// Those that have not moved between looks that lie far enough apart.
pub(super) fn find(snapshot: &Snapshot) -> Vec<Stuck> {
    let jams = snapshot.census.jams.iter().filter(|jam| jam.last.since(jam.since) >= STILL_NS);
    jams.map(|jam| stuck(jam, snapshot)).collect()
}

fn stuck(jam: &Jam, snapshot: &Snapshot) -> Stuck {
    let shim = snapshot.census.processes.iter().find(|seen| seen.fact.pid == jam.shim);
    let container = shim.and_then(|seen| seen.fact.container.clone());
    let goroutines = snapshot.census.goroutines.iter().find(|fact| fact.pid == jam.runtime);
    let writer = goroutines.and_then(|fact| fact.groups.iter().find(|group| writes_to_shim(&group.frames)));
    Stuck {
        what: StuckKind::Jammed { runtime: jam.runtime, shim: jam.shim },
        since: Age { ns: snapshot.now.since(jam.since), at_least: true },
        container,
        parks: Vec::new(),
        frames: writer.map(|group| group.frames.clone()).unwrap_or_default(),
        phases: Vec::new(),
        sockets: vec![jam.at_runtime.clone(), jam.at_shim.clone()],
        waiters: Vec::new(),
    }
}

/// A goroutine that waits for room to write a ttrpc request.
fn writes_to_shim(frames: &[String]) -> bool {
    let any = |part: &str| frames.iter().any(|frame| frame.contains(part));
    any("ttrpc.(*Client)") && any("poll.(*FD).Write")
}
