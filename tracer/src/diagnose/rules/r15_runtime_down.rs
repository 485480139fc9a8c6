//! R15: the container runtime is gone.

use crate::{
    correlate::{Age, TracedProcess, TracedState},
    diagnose::Reason,
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source, evidence,
        unit::{fate, unit},
    },
    input::Component,
    stuck::REACH_RELIST,
    words::human::duration,
};

pub(super) static RULE: Rule = Rule {
    id: "R15",
    title: "the container runtime is not running: nothing listens on its socket",
    area: Area::Runtime,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "The process is gone: it crashed, was OOM-killed, was stopped by an upgrade, or fails to start. \
            Every kubelet call fails at once, so no relist gets its list. Running containers keep running; their \
            shims wait for the runtime's next start.",
        versions: "all",
        symptoms: &[
            "connection refused, or no such file or directory, on the socket of the runtime",
            "container runtime is down, PLEG is not healthy",
        ],
        evidence: &[
            "no runtime process, although its unit is enabled or its socket exists",
            "or: its exit was seen",
        ],
        excluded_by: &[
            "another runtime runs and serves the kubelet",
            "lists succeed, or a process listens on its socket, whatever its process is called",
            "it runs, and does not finish its start (R9)",
        ],
        next: &[
            "`journalctl -u containerd` (or crio, docker): why it exited; dmesg: OOM kills",
            "start it",
            "if it does not come up: a shim that does not answer can block it (R9)",
        ],
        trap: "Do not delete its state directory to \"start fresh\": that orphans every running container.",
        sources: &["reproduced with containerd 1.4 to 2.1"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let down = scene.reasons().find_map(|reason| match reason {
        Reason::Down { component, evidence } if component.role().is_runtime() => Some((*component, evidence)),
        _ => None,
    });
    match down {
        Some((component, evidence)) => vec![is_down(component, evidence, scene)],
        // It is not back as long as it does not serve, or the kubelet has not noticed.
        None if super::r9_start_waits_for_a_shim::explains(scene) => Vec::new(),
        None if super::k8_kubelet_waits_to_reconnect::explains(scene) => Vec::new(),
        None => came_back(scene).into_iter().collect(),
    }
}

/// The youngest end of a runtime that was watched.
pub(super) fn gone<'a>(scene: &Scene<'a>) -> Option<(&'a TracedProcess, Age, &'a str)> {
    let now = scene.snapshot.now;
    let gone = scene.snapshot.targets.iter().filter_map(|target| match &target.state {
        TracedState::Gone { at, how } if target.fact.component.role().is_runtime() => {
            Some((target, Age { ns: now.since(*at), at_least: false }, how.as_str()))
        }
        _ => None,
    });
    gone.min_by_key(|(_, age, _)| age.ns)
}

fn culprit(component: Component, words: String) -> Culprit {
    Culprit { component, pid: None, container: None, words }
}

fn is_down(component: Component, left: &str, scene: &Scene<'_>) -> Finding {
    let (name, unit) = (component.name(), unit(component, scene));
    let finding = Finding::new(&RULE, format!("{name} is not running: every CRI call fails at once"))
        .seen(Evidence::new(Source::Census, format!("{name}: {left}")));
    let finding = match evidence::of_relist(scene) {
        Some(relist) => finding.seen(relist),
        None => finding,
    };
    let finding = super::o5_no_more_files::with_what_keeps_down(finding, scene);
    Finding {
        since: gone(scene).map(|(_, age, _)| age),
        culprit: Some(culprit(component, format!("{name}: {left}"))),
        victims: vec!["every relist, every exec probe, every container start and stop".to_owned()],
        reach: REACH_RELIST,
        ..finding
    }
    .advise([
        format!("`journalctl -u {unit} -e`: why it exited (OOM kill: dmesg)"),
        format!("`systemctl start {unit}`; {}", fate(component)),
    ])
}

/// It went and came back while we looked: the node was down for that time.
fn came_back(scene: &Scene<'_>) -> Option<Finding> {
    let (target, age, how) = gone(scene)?;
    let component = target.fact.component;
    let name = component.name();
    let next = scene.snapshot.targets.iter().find(|other| {
        other.fact.component == component && other.state == TracedState::Live && other.seen > target.seen
    })?;
    let (old, new) = (target.fact.pid, next.fact.pid);
    let ago = duration(age.ns);
    let headline = format!("{name} {old} {how} {ago} ago and runs again as {new}");
    let finding = Finding::new(&RULE, headline)
        .seen(Evidence::new(Source::Processes, format!("{name} {old} {how}, {ago} ago")));
    let finding = Finding {
        since: Some(age),
        culprit: Some(Culprit { pid: Some(new), ..culprit(component, format!("{name} {old}: {how}")) }),
        ..finding
    };
    Some(finding.into_notice().advise([
        format!("`journalctl -u {} -e`: why it exited (OOM kill: dmesg)", unit(component, scene)),
        "calls in flight at that time have failed; the next relist works again".to_owned(),
    ]))
}
