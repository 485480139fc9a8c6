//! [`Quiet`]: for how long nothing has moved on the TCP connections of a runtime, and which of its goroutines wait for an image
//! meanwhile.

use std::collections::BTreeMap;

use crate::{
    decode::MonoNs,
    input::{CensusFact, Downloads, GoroutineGroup, GoroutinesFact},
};

/// The kernel's clock of connections counts milliseconds.
const MS: u64 = 1_000_000;
/// In which packages images are pulled and unpacked: containerd, CRI-O and Docker.
const PULLS: [&str; 16] = [
    "/remotes.",
    "/remotes/docker.",
    "/images.Dispatch",
    "/transfer/local.",
    "npacker).",
    "/rootfs.",
    "/diff/",
    "/archive.",
    "/content/local.",
    "containers/image/",
    "containers/storage/",
    "go.podman.io/image/",
    "go.podman.io/storage/",
    "docker/distribution",
    "/distribution/xfer.",
    "docker/layer.",
];
/// Those of them that speak to registries.
const SPEAKS: [&str; 4] =
    ["/remotes/docker.", "containers/image/v5/docker", "go.podman.io/image/v5/docker", "docker/distribution"];
/// What takes its time without a byte: a layer is unpacked, a blob gets to the disk.
const WORKS: [&str; 8] =
    ["Apply", "apply", "Commit", "Prepare", "Untar", "Sync", "Extract", "registerWithDescriptor"];

/// The connections that a runtime has opened, and since when nothing has changed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// As the last round found them.
    pub fact: Downloads,
    /// Since when every round found the same connections with the same bytes received.
    pub since: MonoNs,
    /// Goroutines of pulls that wait; `None` when not all goroutines were read, or one is at work: to unpack needs no byte.
    pub waits: Option<Vec<PullWait>>,
}

/// A goroutine of a pull that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullWait {
    /// Goroutine.
    pub goid: u64,
    /// For what.
    pub on: PullWaitsFor,
    /// Since when every look found it there.
    pub since: MonoNs,
    /// Full Go names, innermost first.
    pub frames: Vec<String>,
}

/// What a pull waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullWaitsFor {
    /// The answer of a registry, or more of it.
    Registry,
    /// A slot for one more download (`semaphore.Weighted`).
    Slot,
    /// The goroutine that takes its reports of progress.
    Progress,
}

impl Quiet {
    /// For how long the rounds found nothing changed, nanoseconds.
    #[must_use]
    pub fn looked_ns(&self) -> u64 {
        MonoNs(self.fact.at_ns).since(self.since)
    }

    /// For how long nothing was sent or received on any of these connections up to the last look, by the kernel's own clock,
    /// nanoseconds. Without connections: for as long as the looks cover. `None` when some were left out.
    #[must_use]
    pub fn silent_ns(&self) -> Option<u64> {
        let of = |quiet: u32, sent: u32| u64::from(quiet.min(sent)) * MS;
        let quiet = self.fact.connections.iter().map(|one| of(one.quiet_ms, one.sent_ms)).min();
        (self.fact.left_out == 0).then(|| quiet.unwrap_or_else(|| self.looked_ns()))
    }
}

/// Those of a round. One that did not ask for them ends what was known.
pub(super) fn find(round: &CensusFact, read: &BTreeMap<u32, GoroutinesFact>, before: &[Quiet]) -> Vec<Quiet> {
    let quiet = |fact: &Downloads| {
        let last = before.iter().find(|before| before.fact.pid == fact.pid);
        let same = last.filter(|last| is_alike(&last.fact, fact));
        let known = last.and_then(|last| last.waits.as_deref()).unwrap_or_default();
        Quiet {
            fact: fact.clone(),
            since: same.map_or(MonoNs(fact.at_ns), |last| last.since),
            waits: read.get(&fact.pid).and_then(|read| waits(read, known)),
        }
    };
    round.downloads.iter().map(quiet).collect()
}

/// The same connections, with not a byte more.
fn is_alike(one: &Downloads, other: &Downloads) -> bool {
    let bytes = |fact: &Downloads| {
        let mut all: Vec<(u64, u64)> = fact.connections.iter().map(|one| (one.inode, one.received)).collect();
        all.sort_unstable();
        all
    };
    one.left_out == 0 && other.left_out == 0 && bytes(one) == bytes(other)
}

/// Whoever runs cannot be read, and may be the one that unpacks.
fn waits(read: &GoroutinesFact, before: &[PullWait]) -> Option<Vec<PullWait>> {
    if read.unread > 0 || read.groups_left_out > 0 {
        return None;
    }
    let pulls = || read.groups.iter().filter(|group| is_of_pull(group));
    if pulls().any(works) {
        return None;
    }
    let mut found = Vec::new();
    for (group, on) in pulls().filter_map(|group| Some((group, waits_for(group)?))) {
        found.extend(group.goids.iter().map(|goid| {
            let same = before.iter().find(|one| one.goid == *goid && one.frames == group.frames);
            let since = same.map_or(MonoNs(read.at_ns), |one| one.since);
            PullWait { goid: *goid, on, since, frames: group.frames.clone() }
        }));
    }
    Some(found)
}

fn any(group: &GoroutineGroup, parts: &[&str]) -> bool {
    group.frames.iter().any(|frame| parts.iter().any(|part| frame.contains(part)))
}

fn is_of_pull(group: &GoroutineGroup) -> bool {
    any(group, &PULLS) && !any(group, &["._RuntimeService_"])
}

fn works(group: &GoroutineGroup) -> bool {
    let function = |frame: &String| frame.rsplit('/').next().unwrap_or(frame).to_owned();
    let is_work = |part: &str| WORKS.iter().any(|word| part.starts_with(word));
    group.state != "waiting" || group.frames.iter().any(|frame| function(frame).split('.').any(is_work))
}

fn waits_for(group: &GoroutineGroup) -> Option<PullWaitsFor> {
    let asks = |frame: &String| {
        frame.starts_with("net/http") && ["oundTrip", ").Read"].iter().any(|part| frame.contains(part))
    };
    if any(group, &["semaphore.(*Weighted).Acquire"]) && any(group, &SPEAKS) {
        return Some(PullWaitsFor::Slot);
    }
    // It hands a report to a goroutine that was never started.
    if any(group, &["rogressReporter).createProgressFunc"]) {
        return Some(PullWaitsFor::Progress);
    }
    // A connection that is not there yet receives nothing.
    let connects = any(group, &["(*Transport).getConn", "(*Transport).dial", "net.(*Dialer)"]);
    let at_registry = group.frames.iter().any(asks) && any(group, &SPEAKS) && !connects;
    at_registry.then_some(PullWaitsFor::Registry)
}
