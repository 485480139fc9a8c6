//! What was open while nothing on the machine ran looks old and is not: its age without the pause decides.

use super::{Finding, Reason, Severity};
use crate::{
    correlate::{
        Pause, Snapshot,
        thresholds::{CALL_OPEN_NS, LAST_LIST_NS, RELIST_OPEN_NS, RUNC_NS, stuck_after_ns},
    },
    stuck::{Stuck, StuckKind},
};

/// The part of an age that no pause explains.
fn net_ns(age_ns: u64, snapshot: &Snapshot) -> u64 {
    let since = snapshot.now.minus(age_ns);
    age_ns.saturating_sub(snapshot.paused_ns(since, snapshot.now))
}

/// Does a reason hold without the pauses? What they do not touch does.
pub(super) fn holds(reason: &Reason, snapshot: &Snapshot) -> bool {
    let (age_ns, limit_ns) = match reason {
        Reason::Down { .. } | Reason::ListStale { failing: true, .. } => return true,
        Reason::Stuck(stuck) => (stuck.since.ns, limit_ns(stuck)),
        Reason::RelistOpen { age_ns, .. } => (*age_ns, RELIST_OPEN_NS),
        Reason::ListStale { age, .. } => (age.ns, snapshot.pace().late_ns),
        Reason::CallsOpen { operation, oldest_ns, .. } => {
            (*oldest_ns, stuck_after_ns(operation).unwrap_or(CALL_OPEN_NS))
        }
        // The deadline of who gave up has run out because of the pause.
        Reason::Abandoned { oldest_ns, .. } | Reason::RequestsOpen { oldest_ns, .. } => {
            (*oldest_ns, CALL_OPEN_NS)
        }
        Reason::ProcessesOpen { oldest_ns, .. } => (*oldest_ns, RUNC_NS),
    };
    let net = net_ns(age_ns, snapshot);
    net == age_ns || net > limit_ns
}

/// What is stopped or frozen is seen to be so, however long; the others are known by their age.
fn limit_ns(stuck: &Stuck) -> u64 {
    match &stuck.what {
        StuckKind::Stopped { .. } | StuckKind::Frozen { .. } => 0,
        StuckKind::Process { command, .. } => {
            crate::correlate::thresholds::late_after_ns(command, None).unwrap_or(RUNC_NS)
        }
        StuckKind::Loop(stall) => stall.oldest.limit_ns().unwrap_or(CALL_OPEN_NS),
        _ => CALL_OPEN_NS,
    }
}

/// A finding that would be too young without the pauses accuses nobody.
pub(super) fn weigh(finding: Finding, snapshot: &Snapshot) -> Finding {
    let Some(since) = finding.since.filter(|_| finding.severity == Severity::Stall) else { return finding };
    let net = net_ns(since.ns, snapshot);
    if net == since.ns || net > finding.rule.min_age_ns { finding } else { finding.into_notice() }
}

/// The last pause, if it was a moment ago: what it held up may not have gone on yet.
pub(super) fn lately(snapshot: &Snapshot) -> Option<Pause> {
    let last = snapshot.pauses.last().copied();
    last.filter(|pause| snapshot.now.since(pause.to) <= LAST_LIST_NS)
}
