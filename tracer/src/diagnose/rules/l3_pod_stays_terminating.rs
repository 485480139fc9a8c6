//! L3: the node is healthy, and a pod does not go.

use crate::{
    correlate::{
        Age,
        thresholds::{RELIST_OPEN_NS, stuck_after_ns},
    },
    diagnose::{Area, Culprit, Finding, Page, Proof, Rule, Scene, evidence},
    input::Layer,
};

pub(super) static RULE: Rule = Rule {
    id: "L3",
    title: "relists are fine, but a container cannot be stopped: its pod stays Terminating",
    area: Area::LookAlike,
    min_age_ns: RELIST_OPEN_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "StopContainer waits for a process that does not die, for a shim that does not answer, or for an exit \
            that was lost. The kubelet tries again every two minutes; the rest of the node is healthy.",
        versions: "lost exits: containerd 1.7.14 to 1.7.21, 1.6.29 to 1.6.35 (S4)",
        symptoms: &["pod Terminating for ever", "StopContainer: DeadlineExceeded", "KillContainerError"],
        evidence: &[
            "StopContainer, StopPodSandbox or a removal open beyond its time",
            "relists end with a list",
        ],
        excluded_by: &["a finding that names what the stop waits for (S10, U4, U10, N1)"],
        next: &[
            "is the container's first process alive, and in which state? D: a filesystem or the kernel (X6)",
            "it is gone, and the runtime still waits: restart the runtime, containers keep running (S4)",
        ],
        trap: "kubectl delete --force only removes the pod from the API; its processes and volumes stay.",
        sources: &["containerd#10589", "containerd#12678", "containerd#14081"],
    },
    examine,
};

/// Calls that take a pod down.
const STOPS: [&str; 4] = ["StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"];

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let stops = STOPS.iter().flat_map(|operation| scene.open(operation));
    let late = stops.filter(|call| {
        let limit = stuck_after_ns(call.span.operation());
        call.span.layer() == Layer::Handler && limit.is_some_and(|limit| call.age_ns > limit)
    });
    let Some(call) = late.max_by_key(|call| call.age_ns) else { return Vec::new() };
    if !scene.relists_end() {
        return Vec::new();
    }
    let (component, operation) = (call.span.component(), call.span.operation());
    let headline = format!("relists are fine, but a {operation} does not end: its pod stays Terminating");
    let finding = Finding::new(&RULE, headline).seen(evidence::of_call(call));
    let finding = Finding {
        since: Some(Age { ns: call.age_ns, at_least: false }),
        culprit: Some(Culprit {
            component,
            pid: Some(call.span.id.tgid),
            container: None,
            words: format!("{} {}: {operation}", component.name(), call.span.id.tgid),
        }),
        reach: 2,
        ..finding
    };
    vec![finding.advise(RULE.page.next.iter().copied())]
}
