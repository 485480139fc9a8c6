//! R3: the unmount of an overlay waits until the whole file system under it is on the disk.

use super::{r2_slow_disk as r2, s5_task_delete_waits_for_an_unmount as s5};
use crate::{
    correlate::{DeviceUse, Known, ProcessSeen, thresholds::FILE_CALL_NS},
    diagnose::{
        Area, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        device::{self, Load},
        excluded::percent,
        kernel_wait::access,
        unmount::Unmount,
    },
    input::{Component, ParkedThreads, Unwritten},
    words::human,
};

/// With less than this left to be written, on all disks, it is hardly what has to be written that takes so long.
const LITTLE: u64 = 1 << 20;

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
            "it ends when the disk has taken what is dirty: `grep -E 'Dirty|Writeback:' /proc/meminfo` says how \
             much that is, `iotop -oPa` who writes",
            "limit what can pile up: `sysctl vm.dirty_background_bytes` and vm.dirty_bytes, some 100 MB each, instead of shares of the memory",
            "leave the sync out: mount_options = [\"volatile\"] for the snapshotter overlayfs in containerd's config.toml; it is for \
             containers that start from now on",
            "give what writes much a volume on another file system: one on the same disk is synced as well",
        ],
        trap: "Do not kill the shim: the signal is not seen before the unmount ends. Restarting containerd only asks \
            the same shim again. After a crash of the node, layers that were mounted with volatile must not be used \
            again.",
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

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let census = &scene.snapshot.census;
    let known = Known::collect(census.round.as_ref(), census.processes.iter());
    let all = Unmount::all(scene, &known, RULE.min_age_ns, ParkedThreads::flushes_overlay);
    all.iter().map(|unmount| finding(unmount, &known, scene)).collect()
}

fn finding(unmount: &Unmount<'_>, known: &Known, scene: &Scene<'_>) -> Finding {
    let headline = format!("{} waits in {}: {}", unmount.who(), access(unmount.park), s5::why(unmount.park));
    let mut finding = unmount.finding(&RULE, headline, &unmount.waiters(known, scene), scene);
    if finding.victims.is_empty() && unmount.late(scene).is_none() {
        finding = finding.into_notice();
    }
    finding.also.extend(device(unmount, scene).filter(|device| Load::of(device) == Load::Busy).map(|_| "X2"));
    finding.evidence.extend(evidence(unmount, scene));
    doubts(unmount, scene).into_iter().fold(finding, Finding::doubted).advise(advice(unmount, scene))
}

/// What the disk with the overlays of the node did meanwhile.
fn device<'s>(unmount: &Unmount<'_>, scene: &Scene<'s>) -> Option<&'s DeviceUse> {
    scene.snapshot.census.disk.get(&unmount.seen.fact.pid)?.device.as_ref()
}

/// Functions of the kernel from the one that waits for the disk to the overlay.
fn syncs(park: &ParkedThreads) -> &[String] {
    let stack = &park.kernel_stack;
    let place = |function: &str| stack.iter().position(|name| name == function).unwrap_or(0);
    stack.get(place("sync_filesystem").saturating_sub(1)..=place("ovl_sync_fs")).unwrap_or_default()
}

/// What the kernel syncs, how much that is, and what the disk does.
pub(super) fn evidence(unmount: &Unmount<'_>, scene: &Scene<'_>) -> Vec<Evidence> {
    let of = |text: String| Evidence::new(Source::Census, text);
    let syncs = syncs(unmount.park).join(" < ");
    let mut all = vec![of(format!("the kernel syncs the file system under the overlay: {syncs}"))];
    let round = scene.snapshot.census.round.as_ref();
    all.extend(round.and_then(|round| round.unwritten).map(|unwritten| of(left(unwritten))));
    all.extend(round.and_then(|round| round.pressure).map(|pressure| {
        let some = percent(pressure.io_some_avg10);
        of(format!("some task of the node waited for a disk {some} % of the last 10 s"))
    }));
    all.extend(device(unmount, scene).map(|device| of(device::evidence(device))));
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

pub(super) fn advice(unmount: &Unmount<'_>, scene: &Scene<'_>) -> Vec<&'static str> {
    let mut all = RULE.page.next.to_vec();
    if device(unmount, scene).is_some_and(|device| Load::of(device) == Load::Idle) {
        all.insert(0, r2::HELD_BACK);
    }
    if unmount.seen.fact.component.role().is_runtime() {
        all.push(UPGRADE);
    }
    all
}
