//! R1: an update of a container's resources holds the lock of its status, and every list waits for that.

use super::{r3_unmount_writes_back as r3, s5_task_delete_waits_for_an_unmount as s5};
use crate::{
    correlate::{Held, Known, Request, WaitsFor, thresholds::FILE_CALL_NS},
    cri::Method,
    diagnose::{
        Area, Evidence, Finding, Page, Proof, Rule, Scene, Source, bus, evidence::in_syscall,
        kernel_wait::access, scene::hostage, unmount::Unmount,
    },
    input::{Command, Component, ParkedThreads},
    stuck::{Stuck, StuckKind, Waiter, with_those_behind},
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "R1",
    title: "an UpdateContainerResources that does not return holds up every list of containers",
    area: Area::Runtime,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "containerd holds the write lock of a container's status while UpdateContainerResources goes \
            through the shim and runc. ListContainers takes the read lock of every container in turn, so one update \
            that does not return stops every list, and with it every relist. The update itself waits for something \
            else: a stopped shim, one that unmounts the root of the same container, which has just ended (R3, S5), a runc update \
            that is stopped or in the freezer, or systemd that does not answer.",
        versions: "containerd 1.4 to 2.1 as tested here, and its development branch (PR 11558 is open); behind a stopped runc update also \
            2.4.0-beta, where a shim that was stopped before the update does not cause it: the update gives up on that shim after 2 s",
        symptoms: &[
            "PLEG is not healthy",
            "get state for …: context deadline exceeded",
            "`crictl ps` hangs while `crictl pods` answers",
        ],
        evidence: &[
            "a containerd goroutine in UpdateContainerResources that holds a status lock (UpdateSync, Update)",
            "goroutines in ListContainers that wait for a status lock",
            "what the update waits for: a shim that is stopped or frozen, or that unmounts the container's root, or a runc that hangs or is stopped",
        ],
        excluded_by: &[
            "ListPodSandbox hangs as well: the runtime as a whole does not answer (R14, R15)",
            "the holder is in fsync, or a thread of the runtime is and the holder does not wait for a shim: the disk is slow",
        ],
        next: &[
            "unblock what the update waits for: resume or kill the shim, kill the runc update; an unmount ends when the disk has \
             taken what is dirty (R3, S5)",
            "the list answers at once when the update returns, with success or with an error",
            "the static CPU manager policy keeps updating every container: without it this is rare",
        ],
        trap: "Do not restart the kubelet: its next list waits for the same lock, and its first relist after the start \
            is a long one (K3).",
        sources: &["containerd#10583", "containerd#12680", "containerd#9770", "containerd PR 11300, 11558"],
    },
    examine,
};

/// Calls that write a container's status, or the metadata, to the disk.
const WRITES: [&str; 2] = ["fsync", "fdatasync"];

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let unmounts = behind_unmounts(scene);
    let holders: Vec<Request> = unmounts.iter().map(|(holder, _)| holder.clone()).collect();
    let others = scene.stuck().filter(|stuck| match &stuck.what {
        StuckKind::Request(request) => !holders.iter().any(|holder| holder.is(request)),
        _ => true,
    });
    let others = others.filter_map(|stuck| behind_a_process(stuck, scene).or_else(|| alone(stuck, scene)));
    unmounts.into_iter().map(|(_, finding)| finding).chain(others).collect()
}

/// What the update waits for is a shim that unmounts the root of the same container: each with the update.
fn behind_unmounts(scene: &Scene<'_>) -> Vec<(Request, Finding)> {
    let census = &scene.snapshot.census;
    let known = Known::collect(census.round.as_ref(), census.processes.iter());
    let all = Unmount::all(scene, &known, FILE_CALL_NS, ParkedThreads::unmounts);
    let shims: Vec<&Unmount<'_>> =
        all.iter().filter(|unmount| unmount.seen.fact.component == Component::Shim).collect();
    let updates = census.requests.iter().filter(|request| {
        let to_shim = matches!(request.waits_for, WaitsFor::Shim { .. });
        is_update(request) && to_shim && request.holds.contains(&Held::ContainerStatus)
    });
    let behind = |holder: &Request| {
        let of = |unmount: &&&Unmount<'_>| unmount.holds_up(holder, &known);
        let sure = shims.iter().find(|unmount| of(unmount) == Some(true));
        // With one that it may be for and none that it is for.
        let unmount = sure.or_else(|| shims.iter().find(|unmount| of(unmount).is_none()))?;
        let finding = behind_an_unmount(holder, unmount, &known, scene)?;
        Some((holder.clone(), if sure.is_some() { finding } else { finding.doubted(unknown_target(holder)) }))
    };
    updates.filter_map(behind).collect()
}

fn behind_an_unmount(
    holder: &Request,
    unmount: &Unmount<'_>,
    known: &Known,
    scene: &Scene<'_>,
) -> Option<Finding> {
    let waiters = with_those_behind(vec![holder.clone()], known, scene.snapshot);
    let lock = WaitsFor::Lock(Held::ContainerStatus);
    let at_lock = |waiter: &Waiter| matches!(waiter, Waiter::Requests(request) if request.waits_for == lock);
    if !waiters.iter().any(at_lock) {
        return None;
    }
    let headline = format!(
        "{} waits in {} ({}), which holds up every list of containers",
        unmount.who(),
        access(unmount.park),
        s5::why(unmount.park)
    );
    let mut finding = unmount.finding(&RULE, headline, &waiters, scene);
    if holder.since.ns > unmount.age.ns {
        finding.since = Some(holder.since);
    }
    let flushes = unmount.park.flushes_overlay();
    if flushes {
        finding.evidence.extend(r3::evidence(unmount, scene));
    }
    let next = if flushes { r3::advice(unmount, scene) } else { s5::RULE.page.next.to_vec() };
    Some(
        finding.advise(["the lists answer when the unmount ends: there is no runc to be ended"]).advise(next),
    )
}

fn unknown_target(holder: &Request) -> String {
    format!(
        "which container the {} is about was not seen: it may be waiting for another shim",
        holder.operation
    )
}

/// What the update waits for is known.
fn behind_a_process(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let (holder, _) = hostage(stuck, Held::ContainerStatus)?;
    if !is_update(holder) {
        return None;
    }
    let component = match &stuck.what {
        StuckKind::Stopped { component, .. } | StuckKind::Frozen { component, .. } => *component,
        StuckKind::Bus(stall) => stall.component(),
        StuckKind::Jammed { .. } => holder.component,
        StuckKind::SilentShim { .. } => Component::Shim,
        _ => Component::Runc,
    };
    let headline = format!("{} holds up every list of containers", fault(stuck));
    let mut finding = Finding::of_stuck(&RULE, headline, component, stuck, scene);
    // That a process is stopped is first seen when we look; how long the update waits, its goroutine knows.
    if holder.since.ns > stuck.since.ns {
        finding.since = Some(holder.since);
    }
    if let (Some(culprit), [container]) = (finding.culprit.as_mut(), holder.containers.as_slice()) {
        culprit.container = Some(container.clone());
    }
    if !holder.target_known {
        finding = finding.doubted(unknown_target(holder));
    }
    let pid = stuck.what.pid();
    Some(match &stuck.what {
        StuckKind::Stopped { component: Component::Runc, .. } => finding.advise([
            format!("`kill -CONT {pid}`: the update goes on, and the lists answer when it ends"),
            format!("if it stays stopped: `kill -9 {pid}`: the update fails, and the lists answer"),
            "then find out who stopped it".to_owned(),
        ]),
        StuckKind::Stopped { .. } => finding.advise([
            format!("`kill -CONT {pid}`"),
            format!("if it stays stopped: `kill -9 {pid}`, which restarts the containers of its pod"),
            "then find out who stopped it".to_owned(),
        ]),
        StuckKind::Frozen { freezer, .. } => finding.advise([
            super::u4_container_left_frozen::thaw(freezer),
            "then find out who froze it".to_owned(),
        ]),
        StuckKind::Bus(stall) => bus::with_facts(finding, stall).advise([
            match bus::caller(stuck, Some("update")) {
                Some((_, pid)) => {
                    format!("`kill -9 {pid}` (its runc): the update fails, and the lists answer")
                }
                None => "kill its runc update (`pgrep -af 'runc.* update'`), and the lists answer".to_owned(),
            },
            format!("then see to {}: the next runc waits for it as well", bus::name(stall)),
        ]),
        StuckKind::Jammed { .. } => finding.advise(super::s2_ttrpc_jam::advice(component, scene)),
        StuckKind::SilentShim { .. } => finding.advise([format!(
            "`kill -9 {pid}` (the shim): the lists answer, and the containers of its pod are restarted"
        )]),
        _ => finding.advise([
            format!("`kill -9 {pid}`: the update fails, and the lists answer"),
            "then check what it waited for".to_owned(),
        ]),
    })
}

/// What does not move, as who holds up others.
fn fault(stuck: &Stuck) -> String {
    let of = |component: Component, how: &str| {
        let what = if component == Component::Shim { "shim" } else { "runc update" };
        format!("a {how} {what}")
    };
    match &stuck.what {
        StuckKind::Stopped { component, .. } => of(*component, "stopped"),
        StuckKind::Frozen { component, .. } => of(*component, "frozen"),
        StuckKind::Bus(_) => {
            let runc = bus::caller(stuck, Some("update"));
            let runc = runc.map_or("the runc update".to_owned(), |(words, _)| words);
            format!("{}: {runc} waits for it, which", words::what(stuck))
        }
        StuckKind::Jammed { runtime, shim } => {
            format!("containerd {runtime} and shim {shim} each wait for the other to read, which")
        }
        StuckKind::SilentShim { .. } => "a shim that does not answer".to_owned(),
        StuckKind::Process { command: Command::Runc { sub, .. }, .. } => {
            format!("a runc {sub} that does not exit")
        }
        _ => "a program that does not exit".to_owned(),
    }
}

/// The update does not end, and what it waits for is not seen.
fn alone(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::Request(holder) = &stuck.what else { return None };
    if !is_update(holder) || holder.holds != [Held::ContainerStatus] || writes(holder, scene) {
        return None;
    }
    let waits = |other: &Request| other.waits_for == WaitsFor::Lock(Held::ContainerStatus);
    if !scene.requests(holder.component).any(waits) {
        return None;
    }
    let headline =
        format!("one {} in {} holds up every list of containers", holder.operation, holder.component.name());
    let stack = words::go_stack(&holder.frames, false);
    let finding = Finding::of_stuck(&RULE, headline, holder.component, stuck, scene)
        .seen(Evidence::new(Source::Goroutines, format!("its stack: {stack}")));
    Some(finding.doubted("what the update waits for is unknown").advise([
        "is there a runc update (`pgrep -af 'runc.* update'`)? Killing it makes the update fail, and the lists answer",
        "if there is none: what do the threads of the shim wait for (`cat /proc/SHIM/task/*/stack`, as root)?",
    ]))
}

fn is_update(request: &Request) -> bool {
    request.method() == Some(Method::UpdateContainerResources)
}

/// The request, or a thread of its runtime, waits for the disk: every status is written while its lock is held. One that waits for a
/// shim has not come to that.
fn writes(holder: &Request, scene: &Scene<'_>) -> bool {
    let of_disk = |frame: &String| {
        let name = frame.rsplit_once('.').map_or(frame.as_str(), |(_, name)| name).to_ascii_lowercase();
        WRITES.contains(&name.as_str())
            || frame.contains("(*File).Sync")
            || frame.contains("bbolt.(*Tx).Commit")
    };
    if matches!(holder.waits_for, WaitsFor::Shim { .. }) {
        return false;
    }
    let mut runtime = scene.snapshot.census.processes.iter().filter(|seen| seen.fact.pid == holder.pid);
    holder.frames.iter().any(of_disk) || runtime.any(|seen| in_syscall(&seen.fact.parked, &WRITES).is_some())
}
