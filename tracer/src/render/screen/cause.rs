//! [`cause`]: what is known where no finding names a culprit.

use crate::{
    correlate::RecentKind,
    diagnose::{Diagnosis, Slow, SlowKind, UnknownCause, Verdict},
};

/// Why no culprit is named, or what is slow by itself; `None` where a finding names one, or nobody has to act.
#[must_use]
pub(in crate::render) fn cause(diagnosis: &Diagnosis) -> Option<&'static str> {
    if !diagnosis.accused().is_empty() {
        return None;
    }
    match (diagnosis.verdict, diagnosis.unknown_cause) {
        (Verdict::Stall, Some(why)) => Some(unknown(why)),
        (Verdict::Slow, _) => diagnosis.slow.first().map(by_itself),
        _ => None,
    }
}

fn unknown(why: UnknownCause) -> &'static str {
    match why {
        UnknownCause::NoCensus => "unknown: no census was taken",
        UnknownCause::EventsLost => "unknown: no known cause fits what was seen, and events were lost",
        UnknownCause::BusNotFollowed => {
            "unknown: runc waits for systemd over D-Bus, which was not followed to the end"
        }
        UnknownCause::NothingFits => "unknown: no known cause fits",
    }
}

fn by_itself(slow: &Slow) -> &'static str {
    match &slow.what {
        SlowKind::Recent(RecentKind::Cni { .. }) => "the plugin itself; every new pod waits for it",
        SlowKind::Recent(RecentKind::Hook(_)) => "the hook itself; every container that has it starts late",
        SlowKind::Recent(RecentKind::Shim(_)) => {
            "the shim itself, which runs only now and then; only its own pod is late"
        }
        _ => "unknown: no known cause fits",
    }
}

/// What to do about it.
pub(super) fn step(slow: &Slow) -> &'static str {
    match &slow.what {
        SlowKind::Recent(RecentKind::Cni { .. }) => {
            "check its log, and the agent or the address pool that it asks"
        }
        SlowKind::Recent(RecentKind::Hook(_)) => "run it by hand, and check what it waits for",
        SlowKind::Recent(RecentKind::Shim(_)) => {
            "find who stops it (kill -STOP, a freezer); check the CPU quota of its cgroup, and swapped memory"
        }
        _ => "`sudo plegtrace --show relists,calls`: where the time goes",
    }
}
