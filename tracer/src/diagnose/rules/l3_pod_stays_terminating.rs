//! L3: the node is healthy, and a pod does not go.

use std::cmp::Reverse;

use crate::{
    correlate::{
        Age, OpenCall,
        thresholds::{RELIST_OPEN_NS, STOP_CONTAINER_NS, stuck_after_ns},
    },
    cri::Method,
    decode::MonoNs,
    diagnose::{
        Area, Culprit, Finding, Page, Proof, Rule, Scene, Severity, SlowKind, evidence,
        held_off::explains_all,
    },
    input::Layer,
    words::human::duration,
};

pub(super) static RULE: Rule = Rule {
    id: "L3",
    title: "relists are fine, but a container cannot be stopped or removed",
    area: Area::LookAlike,
    min_age_ns: RELIST_OPEN_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "StopContainer waits for a process that does not die, for a shim that does not answer, or for an \
            exit event that was lost. The kubelet tries again every two minutes; the rest of the node is healthy.",
        versions: "lost exits: containerd 1.7.14 to 1.7.21, 1.6.29 to 1.6.35 (S4)",
        symptoms: &["pod stuck in Terminating", "StopContainer: DeadlineExceeded", "KillContainerError"],
        evidence: &[
            "a StopContainer or StopPodSandbox that the kubelet has given up on, or a removal that is overdue",
            "relists still get their lists",
        ],
        excluded_by: &[
            "a finding that names what the stop waits for (S10, U4, U10, N1)",
            "the stop waits for a lock of the runtime, or for a plugin of NRI: no process of the pod is to blame (R16)",
            "the kubelet is still waiting for the stop: a grace period may last hours (reported as a notice)",
        ],
        next: &[
            "is the container's first process alive, and in which state? D: suspect a filesystem or the kernel (X6)",
            "if it is gone and the runtime still waits: restart the runtime; containers keep running (S4)",
        ],
        trap: "Do not run `kubectl delete --force`: it only removes the pod from the API; its processes and volumes stay.",
        sources: &["containerd#10589", "containerd#12678", "containerd#14081"],
    },
    examine,
};

/// Calls that stop a pod, and those that remove what is left of it.
const STOPS: [Method; 2] = [Method::StopContainer, Method::StopPodSandbox];
const REMOVALS: [Method; 2] = [Method::RemoveContainer, Method::RemovePodSandbox];

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    // What a quota holds up is merely late.
    if !scene.relists_end() || explains_all(*scene) {
        return Vec::new();
    }
    let now = scene.snapshot.now;
    let calls = STOPS.iter().chain(&REMOVALS).flat_map(|method| scene.open(*method));
    let calls = calls.filter(|call| !scene.waits_for_exit(call) && !scene.waits_for_lock(call));
    let late = calls.filter_map(|call| Some((call, severity(call, now)?)));
    let worst = late.min_by_key(|(call, severity)| (*severity, Reverse(call.age_ns)));
    worst.map(|(call, severity)| finding(call, severity, scene)).into_iter().collect()
}

/// How bad it is that this handler is open. Of a stop the age says little: the grace period of its pod is part of it.
fn severity(call: &OpenCall, now: MonoNs) -> Option<Severity> {
    let method = call.span.method()?;
    if call.span.layer() != Layer::Handler {
        return None;
    }
    if STOPS.contains(&method) && call.is_abandoned(now) {
        return Some(Severity::Stall);
    }
    let limit =
        if method == Method::StopContainer { Some(STOP_CONTAINER_NS) } else { stuck_after_ns(method.name()) };
    let late = limit.is_some_and(|limit| call.age_ns > limit);
    let severity = if REMOVALS.contains(&method) { Severity::Stall } else { Severity::Notice };
    late.then_some(severity)
}

fn finding(call: &OpenCall, severity: Severity, scene: &Scene<'_>) -> Finding {
    let slow = scene.slow().any(|slow| slow.what == SlowKind::Relists);
    let relists = if slow { "relists are slow but end" } else { "relists are fine" };
    let (component, operation) = (call.span.component(), call.span.operation());
    let removes = call.span.method().is_some_and(|method| REMOVALS.contains(&method));
    let headline = if removes {
        format!("{relists}, but a {operation} hangs: what it removes stays on the node")
    } else if severity == Severity::Stall {
        format!(
            "{relists}, but a {operation} that the kubelet gave up on is still running: its pod stays \
                Terminating"
        )
    } else {
        let age = duration(call.age_ns);
        format!("{relists}; a {operation} has been open for {age}: its age is the only symptom")
    };
    let finding = Finding::new(&RULE, headline).seen(evidence::of_call(call));
    let finding = Finding {
        since: Some(Age { ns: call.age_ns, at_least: false }),
        culprit: Some(Culprit {
            component,
            pid: Some(call.span.id.tgid),
            container: None,
            words: format!("{} {}: {operation}", component.name(), call.span.id.tgid),
        }),
        severity,
        reach: if severity == Severity::Stall { 2 } else { 0 },
        ..finding
    };
    let finding = if call.span.method() == Some(Method::StopContainer) && severity == Severity::Notice {
        finding.doubted("its pod may have a grace period this long, to drain its clients")
    } else {
        finding
    };
    finding.advise(RULE.page.next.iter().copied())
}
