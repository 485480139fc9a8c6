//! R2: what the runtime writes waits for a slow disk.

use crate::{
    correlate::{DeviceUse, DiskWaits, RecentKind, RequestTree, thresholds::RECENT_NS},
    cri::{Method, Takes},
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Reason, Rule, Scene, Severity, Slow, SlowKind, Source,
        device::{self, Load},
        excluded::percent,
    },
    input::{Component, WriteLimit},
    stuck::StuckKind,
    words::{self, human},
};

/// So many looks that find a thread waiting for the disk are no chance, …
const LOOKS: u64 = 2;
/// … and one is none when requests wait so long for the lock that each commit takes, in percent.
const SHARE: u64 = 20;
/// Functions of containerd's database: for the lock of those who write, and the commit under it.
const COMMITS: [&str; 2] = ["bbolt.(*DB).beginRWTx", "bbolt.(*Tx).Commit"];

pub(super) static RULE: Rule = Rule {
    id: "R2",
    title: "commits of containerd's database wait for a slow disk",
    area: Area::Runtime,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "Each step of making or removing a pod is a transaction of containerd's database (bbolt), and each \
            transaction ends with fdatasync. One writes at a time. On a disk that takes 100 ms for a commit, a \
            RunPodSandbox takes seconds, and a few of them at once take a minute, because they queue for the same lock. \
            Lists come from memory and stay fast.",
        versions: "all",
        symptoms: &[
            "pods take minutes to start while the node stays Ready",
            "context deadline exceeded on create and stop, then \"failed to reserve container name\"",
            "I/O pressure in /proc/pressure/io",
        ],
        evidence: &[
            "calls that write are slow or do not end",
            "threads of the runtime were found in fsync or fdatasync, or waiting for the journal, again and again",
            "requests wait for the write lock of the database",
            "what the device did meanwhile: busy is a slow disk (X2), idle is a limit of a cgroup (io.max, blkio.throttle.*), which \
             is told as well, or the file system",
        ],
        excluded_by: &["relists are slow as well: lists need no disk (O1)"],
        next: &[
            "find who writes: `iotop -oPa`, or `pidstat -d 1`; an image pull or a container that logs a lot is usual",
            "check the limits of the disk: a cloud volume may have used up its burst of IOPS",
            "put /var/lib/containerd on a faster disk or one of its own, and limit parallel image pulls",
        ],
        trap: "Do not restart containerd: its start reads and writes the same database.",
        sources: &["containerd#5325", "containerd#8980", "containerd#8698"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let stalls = scene.reasons().any(is_about_writing);
    let slow = scene.slow().find(|slow| writes_slowly(slow));
    if !stalls && slow.is_none() {
        return Vec::new();
    }
    let disk = scene.snapshot.census.disk.iter().max_by_key(|(_, waits)| waits.waiting);
    let queue = queueing(scene);
    let found = disk.filter(|(_, waits)| waits.waiting >= LOOKS || waits.waiting > 0 && queue >= SHARE);
    found.map(|(pid, waits)| finding(*pid, waits, queue, stalls, scene)).into_iter().collect()
}

fn writes(method: Method) -> bool {
    matches!(method.facts().takes, Takes::Disk | Takes::Forks | Takes::Network)
}

/// What to look at when the disk has nothing to do, and no limit was found.
pub(super) const HELD_BACK: &str = "the disk itself is idle: see who holds writes back, a limit for a disk below it (io.max), io.latency or \
    io.cost.qos of its cgroup, or a file system (X4)";

/// `cgroup /sys/fs/cgroup/system.slice/containerd.service lets no more than 2 writes and 1.0 MiB a second through to disk vda`.
fn limited(limit: &WriteLimit, disk: &str) -> String {
    let writes = limit.writes.map(|writes| human::plural(writes, "write"));
    let figures =
        [writes, limit.bytes.map(human::size)].into_iter().flatten().collect::<Vec<_>>().join(" and ");
    format!(
        "cgroup {} lets no more than {figures} a second through to disk {}",
        limit.path,
        words::cut(disk, 20)
    )
}

/// Does this limit hold anything back? Then the device has got about as much as it lets through, from whomever.
fn binds(limit: &WriteLimit, device: &DeviceUse) -> bool {
    let is_used = |got: u64, allowed: Option<u64>| {
        let in_all = |allowed: u64| u128::from(allowed) * u128::from(device.over_ns);
        allowed.is_some_and(|allowed| u128::from(got) * 2_000_000_000 >= in_all(allowed))
    };
    is_used(device.completed, limit.writes) || is_used(device.written, limit.bytes)
}

/// How to lift it.
fn raise(limit: &WriteLimit) -> String {
    let path = &limit.path;
    let unit = path.rsplit('/').next().filter(|name| name.ends_with(".service") || name.ends_with(".slice"));
    match unit {
        Some(unit) => {
            format!(
                "raise or remove the limit: systemctl set-property {unit} IOWriteIOPSMax= IOWriteBandwidthMax="
            )
        }
        None => format!("raise or remove the limit, in io.max or blkio.throttle.write_* of {path}"),
    }
}

/// What makes it wait, as far as the device tells.
fn headline(name: &str, device: Option<&DeviceUse>) -> String {
    let limit = |device: &DeviceUse| {
        let limit = device.limit.as_ref().filter(|limit| binds(limit, device))?;
        Some(format!("cgroup {} holds back what {name} writes for pods", limit.path))
    };
    match device.map(|device| (Load::of(device), limit(device))) {
        None | Some((Load::Busy, _)) => {
            format!("the disk of {name} is slow: what it writes for pods waits for it")
        }
        Some((Load::Idle, Some(limit))) => format!("{limit}, and the disk is idle"),
        Some((Load::Between, Some(limit))) => limit,
        Some((Load::Idle, None)) => {
            format!("what {name} writes for pods does not come to its disk, which is idle")
        }
        Some((Load::Between, None)) => format!("what {name} writes for pods waits for its disk"),
    }
}

/// A call that writes takes too long, and most of that in the runtime itself.
fn writes_slowly(slow: &Slow) -> bool {
    let in_runtime = slow.component().is_none_or(|component| component.role().is_runtime());
    matches!(&slow.what, SlowKind::Recent(RecentKind::Calls(method)) if writes(*method)) && in_runtime
}

/// Something that writes does not end.
fn is_about_writing(reason: &Reason) -> bool {
    let of = |operation: &str| Method::from_name(operation).is_some_and(writes);
    match reason {
        Reason::CallsOpen { operation, .. } | Reason::Abandoned { operation, .. } => of(operation),
        Reason::RequestsOpen { method, .. } => of(method),
        Reason::Stuck(stuck) => matches!(
            &stuck.what,
            StuckKind::Request(request) if of(&request.operation) && is_commit(&request.frames)
        ),
        _ => false,
    }
}

/// The share of the time of recent requests that write in which they waited for the database, in percent.
fn queueing(scene: &Scene<'_>) -> u64 {
    let now = scene.snapshot.now;
    let recent = |tree: &&RequestTree| tree.root().end.is_none_or(|end| now.since(end) <= RECENT_NS);
    let of_writing = |tree: &&RequestTree| tree.root().method().is_some_and(writes);
    let (mut all, mut queued) = (0_u64, 0_u64);
    for tree in scene.snapshot.requests.iter().filter(recent).filter(of_writing) {
        all += tree.root().duration_ns(now);
        let parks = tree.root().walk().flat_map(|span| &span.parks).filter(|park| is_commit(&park.stack));
        queued += parks.map(|park| park.end.since(park.start)).sum::<u64>();
    }
    u64::try_from(u128::from(queued) * 100 / u128::from(all.max(1))).unwrap_or(100).min(100)
}

/// Does it wait for its turn to write to the database, or for the write?
fn is_commit(stack: &[String]) -> bool {
    stack.iter().any(|name| COMMITS.iter().any(|commit| name.ends_with(commit)))
}

fn finding(pid: u32, waits: &DiskWaits, queue: u64, stalls: bool, scene: &Scene<'_>) -> Finding {
    let mut processes = scene.snapshot.census.processes.iter();
    let component =
        processes.find(|seen| seen.fact.pid == pid).map_or(Component::Containerd, |seen| seen.fact.component);
    let name = component.name();
    let call = waits.call.as_deref().map_or("the kernel's I/O".to_owned(), |call| words::cut(call, 20));
    let culprit = format!(
        "{name} {pid} waits for its disk: {} of {} looks found a thread in {call}",
        human::count(waits.waiting),
        human::count(waits.looks)
    );
    let headline = headline(name, waits.device.as_ref());
    let mut finding = Finding::new(&RULE, headline).seen(Evidence::new(Source::Census, culprit.clone()));
    if queue > 0 {
        let text = format!("calls that write spend {queue} % of their time queueing for its database");
        finding = finding.seen(Evidence::new(Source::Goroutines, text));
    }
    if let Some(pressure) = scene.snapshot.census.round.as_ref().and_then(|round| round.pressure) {
        let some = percent(pressure.io_some_avg10);
        let text = format!("some task of the node waited for a disk {some} % of the last 10 s");
        finding = finding.seen(Evidence::new(Source::Census, text));
    }
    if let Some(device) = &waits.device {
        finding = by_device(finding, device);
    }
    if waits.waiting < LOOKS {
        finding = finding.doubted("only one round found a thread that waits for the disk");
    }
    if scene.snapshot.census.processes.iter().any(super::r3_unmount_writes_back::holds_up) {
        finding = finding
            .doubted("an unmount that writes a whole file system back (R3) may be what keeps the disk busy");
    }
    finding.culprit = Some(Culprit { component, pid: Some(pid), container: None, words: culprit });
    finding.severity = if stalls { Severity::Stall } else { Severity::Slow };
    finding.reach = 2;
    finding.advise(RULE.page.next.iter().copied())
}

/// What the device did, and what a cgroup lets through to it.
fn by_device(finding: Finding, device: &DeviceUse) -> Finding {
    let mut finding = finding.seen(Evidence::new(Source::Census, device::evidence(device)));
    if let Some(limit) = &device.limit {
        finding = finding.seen(Evidence::new(Source::Census, limited(limit, &device.name)));
    }
    let load = Load::of(device);
    if load == Load::Busy {
        finding.also.push("X2");
        return finding;
    }
    match device.limit.as_ref().filter(|limit| binds(limit, device)) {
        Some(limit) => finding.advise([raise(limit)]),
        None if load == Load::Idle => finding.advise([HELD_BACK]),
        None => finding,
    }
}
