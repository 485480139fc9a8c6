//! When a diagnosis is settled, so that an observation may end before its time; and when it is proved, so that it need
//! not even last the usual few seconds.

use super::{Confidence, Diagnosis, Finding, Severity};
use crate::{
    correlate::{
        Age, LastList, ListOutcome, Relist, Snapshot, TracedProcess, TracedState,
        thresholds::{RELIST_OPEN_NS, RELIST_PERIOD_NS, SETTLED_NS, STILL_NS},
    },
    input::Component,
    stuck::REACH_RELIST,
};

impl Diagnosis {
    /// Nothing more needs to be seen: the first cause is certain, it holds something up, and it is known how far that
    /// reaches: up to the relist, or not, because one that began since then has got its list. A stopped shim is certain
    /// within a second; whether lists wait behind it shows only later.
    #[must_use]
    pub fn is_settled(&self, snapshot: &Snapshot) -> bool {
        let settled = |finding: &Finding| {
            let is_certain = finding.confidence == Confidence::High && finding.severity == Severity::Stall;
            is_certain
                && (finding.reach >= REACH_RELIST
                    || finding.since.is_none_or(|since| has_shown(snapshot, since)))
        };
        self.first().is_some_and(settled)
    }

    /// It is settled, and was so before we came: two whole looks, goroutines included, found it, and it is older than what
    /// stands still for a moment. The report then misses nothing but more of the same, so it says whether lists come.
    #[must_use]
    pub fn is_proved(&self, snapshot: &Snapshot) -> bool {
        let old = |finding: &Finding| {
            let still = finding.since.is_some_and(|since| at_last_look(snapshot, since) >= STILL_NS);
            if finding.reach >= REACH_RELIST {
                still || finding.since.is_some_and(|since| is_missed(snapshot, since))
            } else {
                still && snapshot.relists.iter().any(|relist| relist.list == ListOutcome::Ok)
            }
        };
        self.is_settled(snapshot)
            && snapshot.census.whole_rounds >= 2
            && goroutines_are_read(snapshot)
            && self.first().is_some_and(old)
    }
}

/// Would it have been seen by now that relists wait for something of this age?
fn has_shown(snapshot: &Snapshot, since: Age) -> bool {
    let listed = |relist: &Relist| {
        relist.list == ListOutcome::Ok && snapshot.now.0.saturating_sub(relist.root().start().0) < since.ns
    };
    since.ns >= SETTLED_NS || snapshot.relists.iter().any(listed)
}

/// An age that two looks prove is that at the last of them: it may have moved since.
fn at_last_look(snapshot: &Snapshot, since: Age) -> u64 {
    let looked = snapshot.census.round.as_ref().map_or(0, |round| round.began_ns);
    let after = if since.at_least { snapshot.now.0.saturating_sub(looked) } else { 0 };
    since.ns.saturating_sub(after)
}

/// Two looks found what holds the lists up, and the kubelet's own clock says that one was due long ago.
fn is_missed(snapshot: &Snapshot, since: Age) -> bool {
    let late = matches!(snapshot.last_list, LastList::At(at)
        if snapshot.now.since(at) >= RELIST_OPEN_NS + RELIST_PERIOD_NS);
    late && snapshot.pace().period_ns == RELIST_PERIOD_NS && at_last_look(snapshot, since) > 0
}

/// Who waits for whom is in the goroutines of kubelet and runtime.
fn goroutines_are_read(snapshot: &Snapshot) -> bool {
    let unread = |target: &TracedProcess| {
        let component = target.fact.component;
        let daemon = component == Component::Kubelet || component.role().is_runtime();
        daemon && target.state == TracedState::Live && !snapshot.census.read.contains(&target.fact.pid)
    };
    !snapshot.targets.iter().any(unread)
}
