//! How long a loop of a kubelet may wait at one place. That it has not gone on since is known by its stack, so these are times of one
//! wait, not of a piece of work with many.

use super::{LoopKind, LoopWait, PluginKind};
use crate::correlate::thresholds::SECOND_NS;

/// A plugin has allocated its devices within milliseconds, one that programs its hardware within seconds. The kubelet waits without a
/// deadline (`endpointImpl.allocate`).
pub(super) const DEVICE_NS: u64 = 10 * SECOND_NS;
/// A DRA driver may take longer, and gets 45 s at most (`PluginClientTimeout`, `defaultClientCallTimeout`).
pub(super) const DRA_NS: u64 = 30 * SECOND_NS;
/// A volume that is slow to mount takes 20 s, and one with a file system to check longer. The kubelet gives a driver two minutes for each
/// attempt (`csiTimeout`).
pub(super) const CSI_NS: u64 = 90 * SECOND_NS;
/// Whoever registers is asked for a second at most, and connected to for ten (`dialTimeoutDuration`).
pub(super) const REGISTERING_NS: u64 = 30 * SECOND_NS;
/// One request to the API server: it has 60 s for one, and answers in milliseconds. Connections that are dead are given up after 45 s.
pub(super) const API_NS: u64 = 30 * SECOND_NS;
/// Requests to the API server that follow each other, because each is given up (10 s in the report of the node's status): nearly every look
/// finds the loop in one.
pub(super) const API_AGAIN_NS: u64 = 60 * SECOND_NS;
/// The longest pause between two of them: 10 s and 4 % (`nodeStatusUpdateFrequency`, `JitterUntil`), and what a look may come late.
pub(super) const API_PAUSE_NS: u64 = 15 * SECOND_NS;
/// Nobody keeps a lock of the kubelet for a second; the sync loop takes dozens of them.
pub(super) const SYNC_LOCK_NS: u64 = 10 * SECOND_NS;
/// The same for loops that wait for a lock behind work that takes its time.
pub(super) const LOCK_NS: u64 = 30 * SECOND_NS;
/// A call to a file system whose stack does not change.
pub(super) const FILE_NS: u64 = 30 * SECOND_NS;
/// What the sync loop waits for and the stack does not tell.
pub(super) const SYNC_NS: u64 = 30 * SECOND_NS;
/// The same for other loops of which every pod, or the node, depends.
pub(super) const LOOP_NS: u64 = 60 * SECOND_NS;

/// The time from which this wait of this loop is late; `None`: never by itself. Who waits for the runtime, a program or the bus is judged
/// by how old the call or program is; a worker that waits for goroutines of its own waits for what they do, which may be the end of a pod
/// that drains its clients for an hour.
#[must_use]
pub(super) fn late_after_ns(kind: LoopKind, wait: &LoopWait) -> Option<u64> {
    let whole = kind.reach() == 2;
    match wait {
        LoopWait::Runtime | LoopWait::Program | LoopWait::Bus | LoopWait::Time => None,
        LoopWait::Plugin { plugin, .. } => Some(match plugin {
            PluginKind::Device if kind == LoopKind::SyncLoop => DEVICE_NS,
            PluginKind::Device | PluginKind::Dra => DRA_NS,
            PluginKind::Csi => CSI_NS,
            PluginKind::Registering => REGISTERING_NS,
            PluginKind::Other => CSI_NS,
        }),
        LoopWait::Lock { .. } if kind == LoopKind::SyncLoop => Some(SYNC_LOCK_NS),
        LoopWait::Lock { .. } => Some(LOCK_NS),
        LoopWait::Api { throttled: false } => Some(API_NS),
        LoopWait::Api { throttled: true } => Some(API_AGAIN_NS),
        LoopWait::File => whole.then_some(FILE_NS),
        LoopWait::Goroutine | LoopWait::Unknown if kind == LoopKind::SyncLoop => Some(SYNC_NS),
        LoopWait::Goroutine | LoopWait::Unknown => whole.then_some(LOOP_NS),
    }
}
