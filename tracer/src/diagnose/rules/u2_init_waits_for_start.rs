//! U2: a created container whose creator is gone.

use crate::{
    correlate::{Request, WaitsFor, thresholds::SECOND_NS},
    diagnose::{Area, Finding, Page, Proof, Rule, Scene},
    input::{Command, Component, FdTarget, ParkedThreads},
    stuck::{Stuck, StuckKind, Waiter},
    words::of_pod,
};

pub(super) static RULE: Rule = Rule {
    id: "U2",
    title: "runc init waits at exec.fifo for a start that will never come",
    area: Area::Runc,
    min_age_ns: 10 * SECOND_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "Between runc create and runc start, a container's init waits in open() of exec.fifo. That is by \
            design; but if runc, its shim or the runtime dies in between, the init is never started and waits \
            forever.",
        versions: "all, by design; a race was fixed in runc 1.0.0-rc5 (PR 1698)",
        symptoms: &["container stays in state created", "runc init processes with parent 1"],
        evidence: &[
            "runc init older than 10 s, blocked in open of an exec.fifo",
            "no runc works for it any more: its parent is not a runc, and no request waits for it",
        ],
        excluded_by: &[
            "a runc create or start of the container still runs",
            "a runtime request waits for it",
            "a RunPodSandbox or StartContainer waits for a lock of the runtime or for a plugin of NRI: it may be the one that starts it",
        ],
        next: &["kill the init", "runc delete --force ID, or crictl rm ID"],
        trap: "The FIFO alone proves nothing: every container passes through it for a few milliseconds.",
        sources: &["runc#1432", "runc#2586", "runc#3448", "runc PR 2587, 3590"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::Process { command: Command::Runc { sub, .. }, pid, .. } = &stuck.what else { return None };
    let waits_for_it = |waiter: &Waiter| match waiter {
        Waiter::Process { component, .. } => *component == Component::Runc,
        // A request that is about something else is in flight on every node.
        Waiter::Requests(request) => request.target_known,
        Waiter::Relist { .. } => true,
    };
    let fifo = stuck.parks.iter().any(at_exec_fifo);
    let alone = !stuck.waiters.iter().any(waits_for_it);
    let is_young = stuck.since.ns < RULE.min_age_ns;
    if sub != "init" || !fifo || !alone || is_young || is_held_up(scene) {
        return None;
    }
    let pod = of_pod(stuck.container.as_ref());
    let headline = format!("runc init {pid}{pod} waits to be started, but its creator is gone");
    let finding = Finding::of_stuck(&RULE, headline, Component::Runc, stuck, scene);
    let id = stuck.container.as_ref().map_or("ID", |container| container.id.as_str());
    Some(finding.advise([
        format!("`kill -9 {pid}`"),
        format!("`crictl rm {id}`, or `runc delete --force {id}`: removes what is left of it on disk"),
        "find out what ended its creator: OOM kills, a killed shim (dmesg, journalctl)".to_owned(),
    ]))
}

/// Is a request held up that starts containers? NRI's plugins are asked between create and start, and which container a RunPodSandbox has
/// made shows nowhere.
fn is_held_up(scene: &Scene<'_>) -> bool {
    let held = |request: &Request| matches!(request.waits_for, WaitsFor::Lock(_) | WaitsFor::NriPlugin);
    let starts = |request: &Request| matches!(request.operation.as_str(), "RunPodSandbox" | "StartContainer");
    scene.snapshot.census.requests.iter().any(|request| starts(request) && held(request))
}

fn at_exec_fifo(park: &ParkedThreads) -> bool {
    let Some(syscall) = &park.syscall else { return false };
    let opens = matches!(syscall.name.as_deref(), Some("open" | "openat" | "openat2"));
    let by_fd = match syscall.fd.as_ref().map(|fd| &fd.target) {
        Some(FdTarget::Pipe(pipe)) => pipe.path.as_deref(),
        _ => None,
    };
    let is_fifo = |path: Option<&str>| path.is_some_and(|path| path.ends_with("/exec.fifo"));
    opens && (is_fifo(by_fd) || is_fifo(syscall.path.as_deref()))
}
