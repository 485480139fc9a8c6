//! [`held_off`]: does a daemon get the processor time that it needs?

use super::{Scene, SlowKind};
use crate::{
    correlate::{CpuShare, Snapshot, WaitsFor, thresholds::SECOND_NS},
    input::QuotaFact,
    stuck::{Stuck, StuckKind},
};

/// Held off for this share of the time or more, in percent.
const SHARE: u64 = 20;
/// Held off for this share of the time, in percent, it can be the cause of a stall.
pub(super) const STALLS: u64 = 50;
/// A shorter window says nothing about a share.
pub(super) const WINDOW_NS: u64 = 2 * SECOND_NS;

/// What holds a daemon off, and for which share of the time, in percent.
pub(super) enum HeldOff<'a> {
    Quota(&'a QuotaFact, u64),
    Others(u64),
}

impl HeldOff<'_> {
    pub(super) fn share(&self) -> u64 {
        match self {
            Self::Quota(_, share) | Self::Others(share) => *share,
        }
    }
}

/// What holds it off, when that is much.
pub(super) fn held_off(daemon: &CpuShare) -> Option<HeldOff<'_>> {
    let percent = |ns: u64| percent(ns, daemon.over_ns);
    if daemon.over_ns < WINDOW_NS {
        return None;
    }
    let tight = |quota: &&QuotaFact| {
        percent(quota.throttled_ns) >= SHARE && quota.throttled * 100 >= quota.periods * SHARE
    };
    if let Some(quota) = daemon.quotas.iter().filter(tight).max_by_key(|quota| quota.throttled_ns) {
        return Some(HeldOff::Quota(quota, percent(quota.throttled_ns)));
    }
    let waited = percent(daemon.waited_ns);
    (waited >= SHARE && daemon.waited_ns > daemon.ran_ns).then_some(HeldOff::Others(waited))
}

/// Share of the time in which it waited for a CPU, for whatever reason, in percent; `None` when that was not seen for long enough.
pub(super) fn waiting_share(daemon: &CpuShare) -> Option<u64> {
    let throttled = daemon.quotas.iter().map(|quota| quota.throttled_ns).max().unwrap_or(0);
    (daemon.over_ns >= WINDOW_NS).then(|| percent(daemon.waited_ns.max(throttled), daemon.over_ns))
}

fn percent(ns: u64, of_ns: u64) -> u64 {
    (u128::from(ns) * 100 / u128::from(of_ns.max(1))).min(100) as u64
}

/// Does a quota hold off the kubelet or a runtime?
pub(super) fn is_throttled(snapshot: &Snapshot) -> bool {
    snapshot.cpu.daemons.iter().any(|daemon| matches!(held_off(daemon), Some(HeldOff::Quota(..))))
}

/// A quota holds the runtime off most of the time, so that relists are late; and all that is open for too long are requests of
/// that runtime which wait for nothing that is seen, or for programs that it runs, of which none is old itself: they run below the
/// same quota. Then the age of a request proves no more than that.
pub(super) fn explains_all(scene: Scene<'_>) -> bool {
    let runtimes = scene.snapshot.cpu.daemons.iter().filter(|daemon| daemon.component.role().is_runtime());
    let is_throttled = |daemon: &&CpuShare| {
        held_off(daemon).is_some_and(|held| matches!(held, HeldOff::Quota(..)) && held.share() >= STALLS)
    };
    let is_late = |stuck: &Stuck, pid: u32| match &stuck.what {
        StuckKind::Request(request) => {
            let waits = matches!(request.waits_for, WaitsFor::Unknown | WaitsFor::Cni | WaitsFor::Child);
            request.pid == pid && waits
        }
        _ => false,
    };
    scene.slow().any(|slow| slow.what == SlowKind::Relists)
        && runtimes.filter(is_throttled).any(|daemon| scene.stuck().all(|stuck| is_late(stuck, daemon.pid)))
}
