//! What a block device did while something waited for it. A slow one (X2), or one that has too much to do, is told from one that hardly
//! gets anything: what a cgroup or a file system holds back has not become a request yet.
//!
//! The measure is how many requests were under way on average: how long all of them took, by the time they took it in. The time for
//! which a device had something to do (`io_ticks`, iostat's %util) is no measure: from Linux 5.0 (commit 5b18b5a73760) to 6.9 it is
//! a sample, which loses requests that overlap, and counts a whole tick for each of the quick ones; 6.10 (99dc422335d8) is exact again.

use crate::{
    correlate::DeviceUse,
    words::{cut, human},
};

/// So many requests under way on average, in percent of one, are a disk that is slow or has too much to do, …
const BUSY: u64 = 50;
/// … and fewer than so many one that does nothing.
const IDLE: u64 = 10;
/// A disk that takes so long for each is slow, if it is not idle. Nanoseconds.
const SLOW_NS: u64 = 100_000_000;

/// How much a device has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// It is slow, or has too much to do.
    Busy,
    /// Neither can be said.
    Between,
    /// It has hardly anything to do.
    Idle,
}

impl Load {
    /// What is under way at the end has not taken any time yet: a device that has completed nothing is idle only if nothing is, and busy
    /// if it had something all the time.
    pub(super) fn of(device: &DeviceUse) -> Self {
        let reaches = |share: u64| device.took_ns.saturating_mul(100) >= device.over_ns.saturating_mul(share);
        let (is_busy, is_idle) = match device.took_ns.checked_div(device.completed) {
            Some(each) => (reaches(BUSY) || reaches(IDLE) && each >= SLOW_NS, !reaches(IDLE)),
            None => {
                (device.had > 0 && device.in_flight > 0 && device.over_ns >= SLOW_NS, device.in_flight == 0)
            }
        };
        match (is_busy, is_idle) {
            (true, _) => Self::Busy,
            (false, true) => Self::Idle,
            (false, false) => Self::Between,
        }
    }
}

/// `disk vdb completed 48 requests in 12.0 s, 240 ms each: 0.9 under way on average, 3 at the end`.
pub(super) fn evidence(device: &DeviceUse) -> String {
    let (name, over) = (cut(&device.name, 20), human::duration(device.over_ns));
    let left = human::count(device.in_flight);
    let Some(each) = device.took_ns.checked_div(device.completed) else {
        return format!("disk {name} completed no request in {over}: {left} under way at the end");
    };
    let (requests, each) = (human::plural(device.completed, "request"), human::duration(each));
    let tenths = device.took_ns.saturating_mul(10) / device.over_ns.max(1);
    let average = format!("{}.{}", human::count(tenths / 10), tenths % 10);
    format!(
        "disk {name} completed {requests} in {over}, {each} each: {average} under way on average, {left} at the end"
    )
}
