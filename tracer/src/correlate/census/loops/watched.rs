//! Whether the loops of a node's kubelets were watched: what HEALTHY may claim of them.

use super::KubeletLoops;
use crate::{
    correlate::{Snapshot, TracedState, thresholds::SECOND_NS},
    decode::MonoNs,
    input::Component,
};

/// A look at the loops says nothing of what they do later than this.
const FRESH_NS: u64 = 120 * SECOND_NS;

impl KubeletLoops {
    /// Would it have been seen, had one of them hung? Two looks are needed for that, and the last was a moment ago.
    fn are_watched(&self, now: MonoNs) -> bool {
        self.looks >= 2 && now.since(self.looked) <= FRESH_NS
    }
}

impl Snapshot {
    /// Would it have been seen, had a loop of the kubelet hung? Of each that runs.
    #[must_use]
    pub fn watches_loops(&self) -> bool {
        let kubelets = self.targets.iter().filter(|target| {
            target.fact.component == Component::Kubelet && target.state == TracedState::Live
        });
        let mut pids = kubelets.map(|target| target.fact.pid).peekable();
        let watched =
            |pid: u32| self.census.loops.iter().any(|loops| loops.pid == pid && loops.are_watched(self.now));
        pids.peek().is_some() && pids.all(watched)
    }
}
