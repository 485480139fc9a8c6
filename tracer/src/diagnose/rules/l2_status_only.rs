//! L2: lists are answered, only Status is not: the kubelet says "container runtime is down".

use crate::{
    correlate::{Age, thresholds::CALL_OPEN_NS},
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source, evidence},
    input::Layer,
};

pub(super) static RULE: Rule = Rule {
    id: "L2",
    title: "only Status is not answered: \"container runtime is down\", while lists are fine",
    area: Area::LookAlike,
    min_age_ns: CALL_OPEN_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "The kubelet asks the runtime for its Status every 5 s and calls it down after 30 s without an answer. \
            Status also asks the network configuration, whose lock a hanging plugin (R6) or a defect of go-cni (R5) \
            can hold. PLEG is healthy meanwhile.",
        versions: "containerd 2.0.1 and 2.0.2 (R5); go-cni since 1.1.12 (R6)",
        symptoms: &["container runtime is down", "container runtime status check may not have completed yet"],
        evidence: &["a Status call open for more than 10 s", "relists end with a list"],
        excluded_by: &["a relist hangs as well"],
        next: &[
            "is a CNI plugin alive for long? kill it and look at its agent (N1)",
            "none? read the goroutines: plegtrace goroutines $(pidof containerd), look for go-cni; restart containerd",
        ],
        trap: "The text sounds like a dead runtime, but containers are listed, started and stopped.",
        sources: &["containerd#11186", "containerd#11275", "containerd#4666"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let late = scene.open("Status").filter(|call| call.age_ns > RULE.min_age_ns);
    let Some(call) = late.max_by_key(|call| (call.age_ns, call.span.layer() == Layer::Handler)) else {
        return Vec::new();
    };
    if !scene.relists_end() {
        return Vec::new();
    }
    let component = call.span.component();
    let headline =
        "only Status is not answered: the kubelet says \"container runtime is down\", while lists are fine";
    let finding = Finding::new(&RULE, headline)
        .seen(evidence::of_call(call))
        .seen(Evidence::new(Source::Uprobes, "relists end, with their lists".to_owned()));
    let finding = Finding {
        since: Some(Age { ns: call.age_ns, at_least: false }),
        culprit: Some(Culprit {
            component,
            pid: Some(call.span.id.tgid),
            container: None,
            words: format!("{} {}: Status", component.name(), call.span.id.tgid),
        }),
        victims: vec!["the runtime's state in the node's conditions".to_owned()],
        reach: 2,
        ..finding
    };
    vec![finding.advise(RULE.page.next.iter().copied())]
}
