//! [`Verdict`], since when, and what no finding explains.

use super::{Finding, Reason};
use crate::{
    correlate::{LastList, ListOutcome, Snapshot, thresholds::BUS_NS},
    decode::MonoNs,
    stuck::{REACH_RELIST, StuckKind},
};

/// Is the node held up?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Stall,
    /// No: everything ends, but something fails every time, or the runtime says that it is not ready.
    Failing,
    /// No: everything ends, but much of it takes too long.
    Slow,
    /// No.
    Healthy,
    /// The evidence does not allow an answer.
    CannotTell,
}

impl Verdict {
    /// All of them, the worst first.
    pub const ALL: [Self; 5] = [Self::Stall, Self::Failing, Self::Slow, Self::Healthy, Self::CannotTell];

    /// Does somebody have to do something?
    #[must_use]
    pub fn is_problem(self) -> bool {
        matches!(self, Self::Stall | Self::Failing | Self::Slow)
    }

    /// Stable name for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stall => "stall",
            Self::Failing => "failing",
            Self::Slow => "slow",
            Self::Healthy => "healthy",
            Self::CannotTell => "cannot_tell",
        }
    }
}

/// When a stall began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// The moment.
    pub at: MonoNs,
    /// It may have begun earlier.
    pub or_before: bool,
}

/// Why no cause is named for a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownCause {
    /// Without a census it is not known what waits for what.
    NoCensus,
    /// No rule fits, and events were lost.
    EventsLost,
    /// A runc waits for D-Bus, which is not followed.
    BusNotFollowed,
    /// No rule fits.
    NothingFits,
}

impl UnknownCause {
    /// Stable name for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoCensus => "no_census",
            Self::EventsLost => "events_lost",
            Self::BusNotFollowed => "bus_not_followed",
            Self::NothingFits => "nothing_fits",
        }
    }

    pub(super) fn of_snapshot(snapshot: &Snapshot) -> Self {
        if snapshot.census.round.is_none() {
            Self::NoCensus
        } else if snapshot.real_losses().next().is_some() {
            Self::EventsLost
        } else if !follows_bus(snapshot) && waits_for_bus(snapshot) {
            Self::BusNotFollowed
        } else {
            Self::NothingFits
        }
    }
}

/// Are calls over D-Bus followed, from the start to the end?
fn follows_bus(snapshot: &Snapshot) -> bool {
    let came_off = || snapshot.refused.iter().any(|refused| refused.source == "wire");
    snapshot.bus.complete && !came_off()
}

/// Has a runc waited for an answer over D-Bus for longer than one takes?
fn waits_for_bus(snapshot: &Snapshot) -> bool {
    let phases = snapshot.processes.open.iter().flat_map(|process| &process.phases);
    phases.into_iter().any(|phase| phase.waits_for_bus() && phase.age_ns > BUS_NS)
}

/// Is a reason a consequence of what was found?
pub(super) fn explains(findings: &[Finding], reason: &Reason) -> bool {
    let culprit = |pid: u32| {
        findings.iter().any(|finding| {
            finding.behind == Some(pid)
                || finding.culprit.as_ref().is_some_and(|culprit| culprit.pid == Some(pid))
        })
    };
    let reach = findings.iter().map(|finding| finding.reach).max().unwrap_or(0);
    match reason {
        // Not every culprit in a kubelet holds up all of its loops.
        Reason::Stuck(stuck) if matches!(stuck.what, StuckKind::Loop(_)) => {
            reach == REACH_RELIST || findings.iter().any(|finding| finding.explained.is(stuck))
        }
        Reason::Stuck(stuck) => {
            culprit(stuck.what.pid()) || findings.iter().any(|finding| finding.explained.is(stuck))
        }
        Reason::RelistOpen { .. } | Reason::ListStale { .. } => reach == REACH_RELIST,
        Reason::Down { .. } => reach == REACH_RELIST,
        Reason::CallsOpen { .. } => reach >= 2,
        Reason::RequestsOpen { answerer, .. } => reach >= 2 || answerer.is_some_and(|peer| culprit(peer.pid)),
        Reason::Abandoned { .. } | Reason::ProcessesOpen { .. } => false,
    }
}

/// When the stall began: with the first relist after the last good one, or with the oldest stuck call. `accused`: the
/// finding that names its cause.
pub(super) fn since(snapshot: &Snapshot, reasons: &[Reason], accused: Option<&Finding>) -> Option<Since> {
    let good = match snapshot.last_list {
        LastList::At(at) => Some(at),
        LastList::NotSince(_) | LastList::Untraced => None,
    };
    let bad = snapshot.relists_of_now().find(|relist| {
        matches!(relist.list, ListOutcome::Failed | ListOutcome::Pending)
            && good.is_none_or(|good| relist.root().start() > good)
    });
    let oldest = reasons.iter().filter_map(|reason| match reason {
        Reason::RelistOpen { age_ns, .. } => Some(*age_ns),
        Reason::Stuck(stuck) => Some(stuck.since.ns),
        Reason::Abandoned { oldest_ns, .. }
        | Reason::CallsOpen { oldest_ns, .. }
        | Reason::RequestsOpen { oldest_ns, .. }
        | Reason::ProcessesOpen { oldest_ns, .. } => Some(*oldest_ns),
        Reason::Down { .. } | Reason::ListStale { .. } => None,
    });
    let found = accused.and_then(|finding| finding.since);
    let calls = oldest.chain(found.map(|since| since.ns)).max().map(|age| snapshot.now.minus(age));
    let at = bad.map(|relist| relist.root().start()).into_iter().chain(calls).min()?;
    let at_least = found.is_some_and(|since| since.at_least);
    Some(Since { at, or_before: at_least || bad.is_some() && good.is_none() })
}
