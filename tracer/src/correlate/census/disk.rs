//! [`DiskWaits`]: how often the looks of the last minute found a thread of a runtime waiting for its disk. A single look is
//! chance: any commit waits for a moment.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    correlate::thresholds::RECENT_NS,
    decode::MonoNs,
    input::{ParkedThreads, ProcessFact},
};

/// Looks that are kept: more than there are in a minute.
const LOOKS: usize = 256;
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
}

#[derive(Debug)]
struct Look {
    pid: u32,
    at: MonoNs,
    /// It found a thread that waits, in this call, as far as that is known.
    waits: Option<Option<String>>,
}

/// The last looks at runtimes.
#[derive(Debug, Default)]
pub(super) struct Looks(VecDeque<Look>);

impl Looks {
    /// Takes a look; one that could not read the threads tells nothing.
    pub(super) fn look(&mut self, fact: &ProcessFact) {
        if !fact.component.role().is_runtime() || fact.parked.is_empty() {
            return;
        }
        if self.0.len() >= LOOKS {
            self.0.pop_front();
        }
        let waits = fact.parked.iter().find(|park| waits(park)).map(call);
        self.0.push_back(Look { pid: fact.pid, at: MonoNs(fact.at_ns), waits });
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
        found
    }
}

fn call(park: &ParkedThreads) -> Option<String> {
    park.syscall.as_ref()?.name.clone()
}

fn waits(park: &ParkedThreads) -> bool {
    let in_call = call(park).is_some_and(|name| CALLS.contains(&name.as_str()));
    let in_kernel = || park.kernel_stack.iter().any(|name| KERNEL.contains(&name.as_str()));
    in_call || park.state == 'D' && in_kernel()
}
