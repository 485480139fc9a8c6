//! K1: the relist waits to hand over an event that is never received.

use crate::{
    correlate::{Age, Request, WaitsFor, thresholds::SECOND_NS},
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source, evidence,
        unit::{fate, unit},
    },
    input::{Component, Layer},
    stuck::REACH_RELIST,
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "K1",
    title: "the relist blocks on sending an event that the kubelet's own sync loop does not receive",
    area: Area::Kubelet,
    min_age_ns: 3 * SECOND_NS,
    proof: Proof::Rebuilt,
    page: Page {
        mechanism: "The relist sends one event per changed container to a channel that holds 1000. The sync loop \
            receives none while the kubelet considers itself unhealthy. Once the channel is full, the relist blocks; \
            after 3 min PLEG is unhealthy as well, and from then on each waits for the other forever.",
        versions: "Kubernetes before 1.14; since then the event is dropped (PR 72709)",
        symptoms: &[
            "PLEG is not healthy, while the runtime answers everything at once",
            "with the fix, instead: Event channel is full, discard this relist() cycle event",
        ],
        evidence: &[
            "a kubelet goroutine in relist, blocked in a channel send",
            "no CRI call open inside the relist; other kubelet calls are answered quickly",
        ],
        excluded_by: &["a CRI call of the relist is open: the relist waits for that call"],
        next: &[
            "restart the kubelet; running containers are not touched",
            "upgrade Kubernetes to 1.14 or later",
        ],
        trap: "Do not restart the runtime: it is not at fault, and restarting it only produces a thousand more events.",
        sources: &["kubernetes#72482", "kubernetes PR 72709"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let sends = |request: &&Request| {
        let in_send = request.wait_reason.as_deref() == Some("chan send");
        request.is_relist() && in_send && !matches!(request.waits_for, WaitsFor::Runtime { .. })
    };
    scene.requests(Component::Kubelet).filter(sends).filter_map(|request| finding(request, scene)).collect()
}

fn finding(request: &Request, scene: &Scene<'_>) -> Option<Finding> {
    // The probes know the age; one look at a goroutine does not.
    let open = scene
        .snapshot
        .open
        .iter()
        .find(|call| call.span.layer() == Layer::Relist && call.span.id.tgid == request.pid);
    let since = open.map_or(request.since, |call| Age { ns: call.age_ns, at_least: false });
    if since.ns < RULE.min_age_ns {
        return None;
    }
    let stack = words::go_stack(&request.frames, false);
    let finding = Finding::new(
        &RULE,
        "the kubelet's own sync loop takes no events, so its relist waits: not the runtime",
    );
    let finding = match evidence::of_relist(scene) {
        Some(relist) => finding.seen(relist),
        None => finding.doubted("the relist itself is not traced: an open call inside it would go unseen"),
    };
    let finding = finding.seen(Evidence::new(
        Source::Goroutines,
        format!("goroutine of relist in kubelet {}: chan send, {stack}", request.pid),
    ));
    let finding = Finding {
        since: Some(since),
        culprit: Some(Culprit {
            component: Component::Kubelet,
            pid: Some(request.pid),
            container: None,
            words: format!("kubelet {}: its sync loop receives no events", request.pid),
        }),
        victims: vec![format!("relist of kubelet {}", request.pid)],
        reach: REACH_RELIST,
        ..finding
    };
    Some(finding.advise([
        format!("`systemctl restart {}`; {}", unit(Component::Kubelet, scene), fate(Component::Kubelet)),
        "upgrade Kubernetes: 1.14 and later drop the event instead".to_owned(),
    ]))
}
