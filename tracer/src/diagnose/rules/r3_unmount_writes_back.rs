//! R3: the unmount of an overlay waits until the whole file system under it is on the disk.

use super::r2_slow_disk as r2;
use crate::{
    correlate::{
        Age, BlockedThread, DeviceUse, Known, ProcessSeen, Request, WaitsFor, thresholds::FILE_CALL_NS,
    },
    cri::Method,
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Severity, Source, excluded::percent,
        finding::victims, kernel_wait::access,
    },
    input::{Component, ContainerFact, ParkedThreads, Unwritten},
    stuck::{Stuck, StuckKind, Waiter},
    words::{self, human, of_pod},
};

/// With less than this left to be written, on all disks, it is hardly what has to be written that takes so long.
const LITTLE: u64 = 1 << 20;
/// Requests that do not end before the task of their container is deleted, which its unmount is part of.
const ENDS: [Method; 4] =
    [Method::StopContainer, Method::StopPodSandbox, Method::RemoveContainer, Method::RemovePodSandbox];

pub(super) static RULE: Rule = Rule {
    id: "R3",
    title: "unmounting an overlay writes the whole file system under it to the disk first",
    area: Area::Runtime,
    min_age_ns: FILE_CALL_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "When an overlay is unmounted, the kernel first syncs the whole file system that its upper directory is on: \
            what this container has written, and what everybody else has. With gigabytes of dirty pages or a slow disk that takes \
            minutes. A shim does it for each container that has ended, before containerd learns that its task is deleted: \
            StopContainer waits, and the container counts as running meanwhile. containerd gives the shim 10 s, then asks again \
            and again (S5). Older versions of containerd do the same in each CreateContainer, to look up a user in the image.",
        versions: "all; temporary mounts are read-only since containerd 1.6.21 and 1.7.1, so they have nothing to sync. The option \
            volatile (Linux 5.10) leaves the sync out, in patch releases of containerd 1.6 and 1.7 since the middle of 2024, and in 2.0",
        symptoms: &[
            "failed to handle container TaskExit event: failed to stop container: failed to delete task: context deadline exceeded",
            "get state for ID: context deadline exceeded",
            "failed to reserve container name",
            "task blocked for more than 120 seconds, in sync_inodes_sb or wb_wait_for_completion below ovl_sync_fs",
        ],
        evidence: &[
            "looks over 5 s find a thread of the runtime, a shim or runc in one and the same umount2, and its kernel stack in \
             ovl_sync_fs, syncing the file system below",
            "who waits: requests about the container whose rootfs that is, or the request that unmounts",
            "how much is left to be written on the node (Dirty and Writeback in /proc/meminfo), I/O pressure, and what the disk with the \
             overlays did meanwhile: busy is a slow disk (X2), or there is much to write; idle is a limit, or the file system (X4)",
        ],
        excluded_by: &[
            "the thread waits for a file system that is frozen (X4), for a FUSE or network server (X6, X3), or for RCU (X9)",
            "it is in fsync or fdatasync: those are containerd's own files (R2)",
        ],
        next: &[
            "it ends when the disk has taken what is dirty: grep -E 'Dirty|Writeback:' /proc/meminfo says how much that is, iotop -oPa \
             who writes",
            "limit what can pile up: sysctl vm.dirty_background_bytes and vm.dirty_bytes, some 100 MB each, instead of shares of the memory",
            "leave the sync out: mount_options = [\"volatile\"] for the snapshotter overlayfs in containerd's config.toml; it is for \
             containers that start from now on",
            "give what writes much a volume on another file system: one on the same disk is synced as well",
        ],
        trap: "Killing the shim does not help: the signal is not seen before the unmount ends. Restarting containerd only asks the \
            same shim again. After a crash of the node, layers that were mounted with volatile must not be used again.",
        sources: &[
            "containerd#4485",
            "containerd#6406",
            "containerd#8698",
            "containerd PR 6478 (its stack)",
            "reproduced with containerd 1.4, 1.6, 1.7 and 2.1, on Linux 5.10 to 7",
            "containerd PR 8961, 9005, 10332, 10333",
            "moby#47630",
            "fs/overlayfs/super.c (ovl_sync_fs)",
        ],
    },
    examine,
};

/// What only versions before these do.
const UPGRADE: &str = "containerd before 1.6.21 or 1.7.1 mounts an image to look up a user: upgrade";

/// Does a thread of this process write a file system to the disk before it has unmounted an overlay?
pub(super) fn holds_up(seen: &ProcessSeen) -> bool {
    seen.flushes_overlays().next().is_some()
}

/// An unmount that lasts.
struct Unmount<'a> {
    seen: &'a ProcessSeen,
    park: &'a ParkedThreads,
    age: Age,
    /// The container whose root it is, when the path tells.
    container: Option<ContainerFact>,
}

impl<'a> Unmount<'a> {
    /// The one that this process has been in for longest.
    fn of(seen: &'a ProcessSeen, known: &Known) -> Option<Self> {
        let component = seen.fact.component;
        let unmounts =
            component.role().is_runtime() || matches!(component, Component::Shim | Component::Runc);
        let oldest = |(thread, _): &(BlockedThread, _)| thread.since;
        let (thread, park) = seen.flushes_overlays().min_by_key(oldest).filter(|_| unmounts)?;
        let age = Age { ns: seen.fact.at_ns.saturating_sub(thread.since.0), at_least: true };
        let path = park.syscall.as_ref().and_then(|call| call.path.as_deref()).unwrap_or_default();
        let container = path.rsplit('/').find_map(|part| known.get(part)).cloned();
        (age.ns >= RULE.min_age_ns).then_some(Self { seen, park, age, container })
    }

    /// Does this request wait for its end?
    fn holds_up(&self, request: &Request, known: &Known) -> bool {
        if request.pid == self.seen.fact.pid {
            let calls = request.frames.iter().take(3).any(|frame| frame.contains("yscall"));
            return calls && request.frames.iter().any(|frame| frame.contains("nmount"));
        }
        let Some(container) = self.container.as_ref().filter(|_| request.target_known) else { return false };
        let exactly = || request.containers.iter().all(|target| target.id == container.id);
        let ends = request.method().is_some_and(|method| ENDS.contains(&method));
        let asks = matches!(request.waits_for, WaitsFor::Shim { .. }) && exactly();
        (ends || asks) && known.are_of(&request.containers, container) == Some(true)
    }

    /// What the disk with the overlays of the node did meanwhile.
    fn device<'s>(&self, scene: &Scene<'s>) -> Option<&'s DeviceUse> {
        scene.snapshot.census.disk.get(&self.seen.fact.pid)?.device.as_ref()
    }

    /// Functions of the kernel from the one that waits for the disk to the overlay.
    fn syncs(&self) -> &'a [String] {
        let stack = &self.park.kernel_stack;
        let place = |function: &str| stack.iter().position(|name| name == function).unwrap_or(0);
        stack.get(place("sync_filesystem").saturating_sub(1)..=place("ovl_sync_fs")).unwrap_or_default()
    }

    /// The process itself, when it should have ended long ago: a shim that cleans up after another, or runc.
    fn late<'s>(&self, scene: &Scene<'s>) -> Option<&'s Stuck> {
        let is_own = |stuck: &&Stuck| {
            matches!(stuck.what, StuckKind::Process { .. }) && stuck.what.pid() == self.seen.fact.pid
        };
        scene.stuck().find(is_own)
    }

    /// Who waits: requests, and whoever waits for the process.
    fn waiters(&self, known: &Known, scene: &Scene<'_>) -> Vec<Waiter> {
        let mut all = self.late(scene).map_or_else(Vec::new, |stuck| stuck.waiters.clone());
        let listed = |all: &[Waiter], request: &Request| {
            all.iter().any(|waiter| matches!(waiter, Waiter::Requests(other) if other.is(request)))
        };
        let requests = scene.snapshot.census.requests.iter();
        for request in requests.filter(|request| request.component.role().is_runtime()) {
            if self.holds_up(request, known) && !listed(&all, request) {
                all.push(Waiter::Requests(request.clone()));
            }
        }
        all
    }

    /// The process that has ended, and of which the runtime says that it runs, because its container is not deleted yet.
    fn unreported(&self, scene: &Scene<'_>) -> Option<u32> {
        let container = self.container.as_ref()?;
        scene.stuck().find_map(|stuck| match &stuck.what {
            StuckKind::Unreported { id, exec: None, pid, .. } if *id == container.id => Some(*pid),
            _ => None,
        })
    }
}

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let census = &scene.snapshot.census;
    let known = Known::collect(census.round.as_ref(), census.processes.iter());
    let unmounts = census.processes.iter().filter_map(|seen| Unmount::of(seen, &known));
    unmounts.map(|unmount| finding(&unmount, &known, scene)).collect()
}

fn finding(unmount: &Unmount<'_>, known: &Known, scene: &Scene<'_>) -> Finding {
    let fact = &unmount.seen.fact;
    let (waiters, unreported) = (unmount.waiters(known, scene), unmount.unreported(scene));
    let mut held_up = victims(&waiters);
    if unreported.is_some() {
        held_up.push("the kubelet, which is told that the container still runs".to_owned());
    }
    let stalls = !held_up.is_empty() || unmount.late(scene).is_some();
    let severity = if stalls { Severity::Stall } else { Severity::Notice };
    let container = unmount.container.as_ref().or(fact.container.as_ref());
    let who = format!("{} {}{}", fact.component.name(), fact.pid, of_pod(container));
    let headline = format!(
        "{who} waits in {}: the kernel first writes the whole file system under the overlay to the disk",
        access(unmount.park)
    );
    let culprit = Culprit {
        component: fact.component,
        pid: Some(fact.pid),
        container: container.cloned(),
        words: format!("{who}, whose unmount of an overlay waits for the disk"),
    };
    let finding = Finding {
        culprit: Some(culprit),
        behind: unreported,
        since: Some(unmount.age),
        severity,
        reach: reach(&waiters),
        victims: held_up,
        also: unmount.device(scene).filter(|device| r2::is_busy(device)).map(|_| "X2").into_iter().collect(),
        evidence: evidence(unmount, &waiters, scene),
        ..Finding::new(&RULE, headline)
    };
    doubts(unmount, scene).into_iter().fold(finding, Finding::doubted).advise(advice(unmount, scene))
}

fn reach(waiters: &[Waiter]) -> u8 {
    let of = |waiter: &Waiter| if matches!(waiter, Waiter::Requests(_)) { 2 } else { 1 };
    waiters.iter().map(of).max().unwrap_or(0)
}

fn evidence(unmount: &Unmount<'_>, waiters: &[Waiter], scene: &Scene<'_>) -> Vec<Evidence> {
    let of = |text: String| Evidence::new(Source::Census, text);
    let requests = waiters.iter().filter(|waiter| matches!(waiter, Waiter::Requests(_)));
    let mut all: Vec<Evidence> =
        requests.map(|waiter| Evidence::new(Source::Goroutines, words::waiter_line(waiter))).collect();
    all.push(of(words::park_line(unmount.park, false)));
    let syncs = unmount.syncs().join(" < ");
    all.push(of(format!("the kernel syncs the file system under the overlay: {syncs}")));
    all.push(of(format!("every look for {} found it in this call", human::duration(unmount.age.ns))));
    let round = scene.snapshot.census.round.as_ref();
    all.extend(round.and_then(|round| round.unwritten).map(|unwritten| of(left(unwritten))));
    all.extend(round.and_then(|round| round.pressure).map(|pressure| {
        let some = percent(pressure.io_some_avg10);
        of(format!("some task of the node waited for a disk {some} % of the last 10 s"))
    }));
    all.extend(unmount.device(scene).map(|device| of(r2::evidence(device))));
    if scene.relists_end() {
        all.push(Evidence::new(Source::Uprobes, "relists go on: lists need no disk"));
    }
    all
}

/// `512.0 MiB on the node wait to be written to disks, and 48.0 MiB are being written`.
fn left(unwritten: Unwritten) -> String {
    let Unwritten { dirty, writeback } = unwritten;
    format!(
        "{} on the node wait to be written to disks, and {} are being written",
        human::size(dirty),
        human::size(writeback)
    )
}

fn doubts(unmount: &Unmount<'_>, scene: &Scene<'_>) -> Vec<&'static str> {
    let mut all = Vec::new();
    let unwritten = scene.snapshot.census.round.as_ref().and_then(|round| round.unwritten);
    if unwritten.is_some_and(|unwritten| unwritten.dirty.saturating_add(unwritten.writeback) < LITTLE) {
        all.push("hardly anything is left to be written: the disk or its file system may hang (X4)");
    }
    if unmount.container.is_none() && unmount.seen.fact.component == Component::Shim {
        all.push("whose overlay it is was not seen: who waits for it is not known");
    }
    all
}

fn advice(unmount: &Unmount<'_>, scene: &Scene<'_>) -> Vec<&'static str> {
    let mut all = RULE.page.next.to_vec();
    if unmount.device(scene).is_some_and(|device| !r2::is_busy(device)) {
        all.insert(0, r2::HELD_BACK);
    }
    if unmount.seen.fact.component.role().is_runtime() {
        all.push(UPGRADE);
    }
    all
}
