//! What a report must say of a fault of the lab: asked of a live observation, by the matrix, and of its recording, as often as one likes.

pub mod check;
pub mod kept;
pub mod said;
pub mod stream;

use std::time::Duration;

use plegtrace_lab::fault::{Facts, Kind};
use serde::{Deserialize, Serialize};

/// A cause is named so long after it could be, at most.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
/// Since when a thread waits in the kernel, nobody reads from a socket, or a shim runs nothing, only looks tell, of which the
/// first is due when its request is three seconds old.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// For the last look at the end of an observation.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// When plegtrace is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observer {
    /// Before the fault: it sees it begin.
    Early,
    /// When the fault is there.
    Late,
}

/// Moments on the monotonic clock, nanoseconds: those at which the injection began and at which it was seen to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// The injection began.
    pub from_ns: u64,
    /// It was seen to work.
    pub to_ns: u64,
    /// The observers that came later were started.
    pub late_ns: u64,
}

/// One injection of a fault as one observer met it: what there is to know to judge its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The fault.
    pub kind: Kind,
    /// Who observed.
    pub observer: Observer,
    /// Who is who. Without the path, which is of one machine.
    pub facts: Facts,
    /// When.
    pub injected: Injected,
    /// The process that made the fault: it has the processor that the hog takes.
    pub tester: u32,
}

/// [`needed_s`] of one that was there before the fault.
fn needed_early_s(kind: Kind) -> Option<u64> {
    match kind {
        // It has to last five seconds first.
        Kind::ExecStorm => Some(12),
        // A relist that was there before is seen to stand for five seconds, from the first look at the kubelet's goroutines.
        Kind::FullChannel => Some(12),
        // As the next ones; and two looks at the goroutines of a shim that does not answer, three seconds apart.
        Kind::SilentOldShim => Some(12),
        // One that was there before sees it made: for seconds containerd and kubelet are busy, and on a busy machine held off (O1).
        Kind::LargeList => Some(8),
        // One that was there before sees first that containerd is gone.
        Kind::ContainerdRestarted | Kind::LateRuntime | Kind::OldShim => Some(8),
        // One that was there before sees the shim stopped, which is how the fault is made, on a busy machine for half a minute: by then
        // its looks are up to 24 seconds apart, and two of them have to find the fault itself.
        Kind::JammedSocket | Kind::SelfLockedShim => Some(30),
        // The kubelet takes its time to start.
        Kind::ManyChangedPods => Some(11),
        // The sync loop has to wait for ten seconds, from the first of looks that come every ten.
        Kind::DevicePlugin | Kind::LockedKubelet => Some(25),
        // One request after the other for a minute, from the first of looks that come every ten seconds.
        Kind::SilentApiServer => Some(80),
        // A minute without a byte.
        Kind::SilentRegistry => Some(70),
        // Ten relists at least, also of a kubelet that waits half a second for each.
        Kind::Quota | Kind::Hog | Kind::ForkStorm => Some(15),
        _ => None,
    }
}

/// [`needed_s`] of one that comes when the fault is there. It has not seen how the fault was made: that containerd was gone, the shim
/// stopped, or the list grew. A runtime that came back late is over by itself within half a minute: what is not certain by then would
/// never be told.
fn needed_late_s(kind: Kind) -> Option<u64> {
    let ends = matches!(
        kind,
        Kind::JammedSocket | Kind::SelfLockedShim | Kind::LargeList | Kind::OldShim | Kind::SilentOldShim
    );
    needed_early_s(kind).filter(|_| !ends)
}

/// How long this observer has to see a fault, in seconds; `None`: what is certain ends the observation. A notice does not, and
/// a full channel comes with the lock that fills it: their report is due within the limit.
#[must_use]
pub fn needed_s(kind: Kind, observer: Observer) -> Option<u64> {
    match observer {
        Observer::Early => needed_early_s(kind),
        Observer::Late => needed_late_s(kind),
    }
}

/// How long after it could be named a fault has to be, at most.
#[must_use]
pub fn named_within(kind: Kind, observer: Observer) -> Duration {
    if let Some(needed) = needed_s(kind, observer) {
        return Duration::from_secs(needed) + LAST_LOOK;
    }
    let by_looks =
        matches!(kind, Kind::SlowUmount | Kind::UmountHostage | Kind::JammedSocket | Kind::DeadlockedShim);
    NAMED_WITHIN + if by_looks { FIRST_LOOK } else { Duration::ZERO }
}

/// Of a daemon that was not there when we came nothing but its files could tell; and what is over, is over.
#[must_use]
pub fn only_early(kind: Kind) -> bool {
    let restarted = matches!(kind, Kind::ContainerdRestarted | Kind::ManyChangedPods);
    restarted || matches!(kind, Kind::ContainerdKilled | Kind::KubeletKilled)
}
