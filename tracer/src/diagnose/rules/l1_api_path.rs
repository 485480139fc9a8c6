//! L1: the node is NotReady and the runtime is healthy: the way to the API server.

use crate::{
    correlate::{Age, LoopWait},
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene,
        api_connections::{self, ApiConnections},
        finding::Explained,
        kubelet_loops::{explained, stalls, told},
    },
    input::Component,
    stuck::{LoopStall, Stuck},
    words::human::plural,
};

pub(super) static RULE: Rule = Rule {
    id: "L1",
    title: "NotReady although the runtime is healthy: the path to the API server",
    area: Area::LookAlike,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "The kubelet works, but its reports do not arrive: a dead connection to the API server that is \
            never closed, an overloaded control plane, an expired certificate, a network partition. The node becomes \
            Unknown, and its pods Terminating. A cordoned or tainted node is no runtime problem either. Loops of the \
            kubelet that wait for an answer show that one does not come; requests that are refused at once, and an API \
            server that has another opinion of the node, show nowhere on it.",
        versions: "Kubernetes before 1.19 kept dead HTTP/2 connections for up to 15 min (fixed by Go's HTTP/2 health check)",
        symptoms: &[
            "Kubelet stopped posting node status",
            "use of closed network connection",
            "Error updating node status",
        ],
        evidence: &[
            "a loop of the kubelet is in one request to the API server for 30 s, at each look; or in one after the other for 60 s, at four \
             looks or more, and three for each pause",
            "which of both it is shows the kernel's account of the kubelet's TCP connections: what it has sent is acknowledged (the API \
             server, or a proxy before it), or sent again and again (the way to it, or its machine)",
            "or it waits for 60 s for its turn, because the kubelet limits its own requests (kubeAPIQPS)",
            "without such a loop: relists and CRI calls end normally and nothing is stuck, and the cause is elsewhere",
        ],
        excluded_by: &["any finding about the kubelet or the runtime, while no loop waits so"],
        next: &[
            "`journalctl -u kubelet | grep -iE 'lease|certificate|connection'`",
            "`curl -k https://APISERVER:6443/healthz` from this node",
            "`kubectl describe node`: conditions and taints, who set them and when",
        ],
        trap: "Do not restart the kubelet before you know why its connection died: a new connection seems to fix it.",
        sources: &["kubernetes#87615", "kubernetes#92164", "kubernetes#43516", "kubernetes#126711"],
    },
    examine,
};

/// A healthy node cannot tell that its control plane sees it otherwise: the report of a healthy node points here. A loop that waits for
/// the API server can.
fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let waits = |(_, stall): &(&Stuck, &LoopStall)| matches!(stall.oldest.wait, LoopWait::Api { .. });
    let mut all: Vec<(&Stuck, &LoopStall)> = stalls(scene).filter(waits).collect();
    all.sort_by_key(|(stuck, stall)| (stall.oldest.kind, std::cmp::Reverse(stuck.since.ns)));
    finding(&all, scene).into_iter().collect()
}

/// All of them are one finding; the worst gives it its words.
fn finding(all: &[(&Stuck, &LoopStall)], scene: &Scene<'_>) -> Option<Finding> {
    let (_, worst) = all.first()?;
    let kind = worst.oldest.kind;
    let throttled = all.iter().all(|(_, stall)| stall.oldest.wait == LoopWait::Api { throttled: true });
    let what = if throttled {
        "waits for its turn to ask the API server, because the kubelet limits its own requests"
    } else {
        "waits for the API server, which does not answer"
    };
    let others = match all.len() {
        1 => String::new(),
        many => format!(" (and {})", plural(many as u64 - 1, "other loop")),
    };
    let headline =
        format!("{} of kubelet {}{others} {what}: {}", kind.words(), worst.oldest.pid, kind.stops());
    let connections = (!throttled).then(|| api_connections::of(worst.oldest.pid, scene)).flatten();
    let words = match &connections {
        _ if throttled => "the kubelet's own limit of requests".to_owned(),
        Some(connections) => connections.culprit(),
        None => "the API server, or the way to it".to_owned(),
    };
    let culprit = Culprit { component: Component::Kubelet, pid: None, container: None, words };
    let goroutines = all.iter().flat_map(|(_, stall)| explained(stall).goroutines).collect();
    let mut victims: Vec<String> = Vec::new();
    for (_, stall) in all {
        let stops = stall.oldest.kind.stops().to_owned();
        if !victims.contains(&stops) {
            victims.push(stops);
        }
    }
    let mut evidence: Vec<Evidence> = all.iter().take(2).flat_map(|(_, stall)| told(stall, scene)).collect();
    // Where it got to says more than the functions that wait.
    evidence.splice(1..1, connections.iter().flat_map(ApiConnections::evidence));
    let oldest = all.iter().map(|(stuck, _)| stuck.since.ns).max();
    let finding = Finding {
        culprit: Some(culprit),
        since: oldest.map(|ns| Age { ns, at_least: true }),
        victims,
        reach: all.iter().map(|(stuck, _)| stuck.reach()).max().unwrap_or(0),
        evidence,
        explained: Explained { processes: Vec::new(), goroutines },
        ..Finding::new(&RULE, headline)
    };
    if throttled {
        let finding = finding
            .doubted("that a kubelet waits for its own limit has never been tested on the real programs");
        return Some(finding.advise([
            "find out who makes so many requests: volumes with claims, secrets, many changes of pods",
            "raise kubeAPIQPS and kubeAPIBurst of the kubelet (50 and 100 since Kubernetes 1.27, 5 and 10 before)",
        ]));
    }
    let refused = RULE.page.next[0].to_owned();
    let ask = || vec![RULE.page.next[1].to_owned()];
    let ask = connections.as_ref().and_then(ApiConnections::advice).unwrap_or_else(ask);
    Some(finding.advise(ask.into_iter().chain([refused])))
}
