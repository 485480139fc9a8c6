//! [`DiskWaits`]: how often the looks of the last minute found a thread of a runtime waiting for its disk, and what the disk did.
//! A single look is chance: any commit waits for a moment. An unmount that writes back what containers have written is not a write
//! of the runtime.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    correlate::thresholds::{RECENT_NS, SECOND_NS},
    decode::MonoNs,
    input::{DiskFact, ParkedThreads, ProcessFact, WriteLimit},
};

/// Looks that are kept: more than there are in a minute.
const LOOKS: usize = 256;
/// Looks in a row over so long say what a disk does: in less a slow one may complete nothing.
const ROW_NS: u64 = SECOND_NS;
/// Calls that end when something is on the disk.
const CALLS: [&str; 4] = ["fsync", "fdatasync", "sync", "syncfs"];
/// Functions in which the kernel waits for a disk, or for the journal of a file system.
const KERNEL: [&str; 8] = [
    "jbd2_log_wait_commit",
    "wait_transaction_locked",
    "io_schedule",
    "folio_wait_writeback",
    "wait_on_page_writeback",
    "submit_bio_wait",
    "xfs_log_force",
    "btrfs_sync_log",
];

/// What the looks at a process found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskWaits {
    /// How many there were.
    pub looks: u64,
    /// How many of them found a thread waiting for the disk.
    pub waiting: u64,
    /// The call of the last of those threads.
    pub call: Option<String>,
    /// What the device that they waited for, or that an unmount of an overlay waits for, did between the first and the last of
    /// those looks in a row, if that was seen twice.
    pub device: Option<DeviceUse>,
}

/// What a block device did in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Its name. Hostile text.
    pub name: String,
    /// How long that was, nanoseconds.
    pub over_ns: u64,
    /// So many requests it has completed …
    pub completed: u64,
    /// … which took so long together, nanoseconds.
    pub took_ns: u64,
    /// Requests that were under way at the beginning …
    pub had: u64,
    /// … and at the end.
    pub in_flight: u64,
    /// Bytes that were written.
    pub written: u64,
    /// What the process may write to it, if that is limited.
    pub limit: Option<WriteLimit>,
}

impl DeviceUse {
    /// Between two readings of the same device.
    fn between(first: &(MonoNs, DiskFact), last: &(MonoNs, DiskFact)) -> Option<Self> {
        let ((from, before), (to, after)) = (first, last);
        let ns = |after: u64, before: u64| after.saturating_sub(before).saturating_mul(1_000_000);
        (before.name == after.name && to > from).then(|| Self {
            name: after.name.clone(),
            over_ns: to.since(*from),
            completed: after.completed.saturating_sub(before.completed),
            took_ns: ns(after.took_ms, before.took_ms),
            had: before.in_flight,
            in_flight: after.in_flight,
            written: after.written.saturating_sub(before.written),
            limit: after.limit.clone(),
        })
    }
}

#[derive(Debug)]
struct Look {
    pid: u32,
    at: MonoNs,
    /// It found a thread that waits, in this call, as far as that is known.
    waits: Option<Option<String>>,
    disk: Option<DiskFact>,
}

/// The last looks at runtimes.
#[derive(Debug, Default)]
pub(super) struct Looks(VecDeque<Look>);

impl Looks {
    /// Takes a look; one that could not read the threads tells nothing, and one at others than runtimes only what a disk does.
    pub(super) fn look(&mut self, fact: &ProcessFact) {
        let is_meant = fact.component.role().is_runtime() || fact.disk.is_some();
        if !is_meant || fact.parked.is_empty() {
            return;
        }
        if self.0.len() >= LOOKS {
            self.0.pop_front();
        }
        let waits = fact.parked.iter().find(|park| waits(park)).map(call);
        self.0.push_back(Look { pid: fact.pid, at: MonoNs(fact.at_ns), waits, disk: fact.disk.clone() });
    }

    /// Those of the last minute before `now`.
    pub(super) fn waits(&self, now: MonoNs) -> BTreeMap<u32, DiskWaits> {
        let mut found: BTreeMap<u32, DiskWaits> = BTreeMap::new();
        for look in self.0.iter().filter(|look| now.since(look.at) <= RECENT_NS) {
            let waits = found.entry(look.pid).or_default();
            waits.looks += 1;
            if let Some(call) = &look.waits {
                waits.waiting += 1;
                waits.call.clone_from(call);
            }
        }
        for (pid, waits) in &mut found {
            let of = self.0.iter().filter(|look| look.pid == *pid && now.since(look.at) <= RECENT_NS);
            waits.device = device(of.rev());
        }
        found
    }
}

/// What the device did while the last looks in a row found somebody waiting for it, as a quiet time before them says nothing of these;
/// where they are too few, between all that did. Newest first.
fn device<'a>(looks: impl Iterator<Item = &'a Look> + Clone) -> Option<DeviceUse> {
    let is_at_it = |look: &&Look| look.waits.is_some() || look.disk.is_some();
    let row = looks.clone().skip_while(|look| !is_at_it(look)).take_while(is_at_it);
    used(row).filter(|row| row.over_ns >= ROW_NS).or_else(|| used(looks))
}

/// Between the first and the last reading, which comes first.
fn used<'a>(looks: impl Iterator<Item = &'a Look>) -> Option<DeviceUse> {
    let mut readings = looks.filter_map(|look| Some((look.at, look.disk.clone()?)));
    let last = readings.next()?;
    DeviceUse::between(&readings.last()?, &last)
}

fn call(park: &ParkedThreads) -> Option<String> {
    park.syscall.as_ref()?.name.clone()
}

fn waits(park: &ParkedThreads) -> bool {
    let in_call = call(park).is_some_and(|name| CALLS.contains(&name.as_str()));
    let in_kernel = || park.kernel_stack.iter().any(|name| KERNEL.contains(&name.as_str()));
    in_call || park.state == 'D' && in_kernel() && !park.flushes_overlay()
}
