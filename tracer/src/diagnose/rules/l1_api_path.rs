//! L1: the node is NotReady and the runtime is healthy: the way to the API server.

use crate::diagnose::{Area, Finding, Page, Proof, Rule, Scene};

pub(super) static RULE: Rule = Rule {
    id: "L1",
    title: "NotReady although the runtime is healthy: the path to the API server",
    area: Area::LookAlike,
    min_age_ns: 0,
    proof: Proof::Story,
    page: Page {
        mechanism: "The kubelet works, but its reports do not arrive: a dead connection to the API server that is \
            never closed, an overloaded control plane, an expired certificate, a network partition. The node becomes \
            Unknown, and its pods Terminating. A cordoned or tainted node is no runtime problem either.",
        versions: "Kubernetes before 1.19 kept dead HTTP/2 connections for up to 15 min (fixed by Go's HTTP/2 health check)",
        symptoms: &[
            "Kubelet stopped posting node status",
            "use of closed network connection",
            "Error updating node status",
        ],
        evidence: &["relists and CRI calls end normally and nothing is stuck: the cause is elsewhere"],
        excluded_by: &["any finding about the kubelet or the runtime"],
        next: &[
            "journalctl -u kubelet | grep -iE 'node status|lease|certificate|connection'",
            "curl -k https://APISERVER:6443/healthz from this node",
            "kubectl describe node: conditions and taints, who set them and when",
        ],
        trap: "Restarting the kubelet opens a new connection and seems to fix it: find out why the old one died.",
        sources: &["kubernetes#87615", "kubernetes#92164", "kubernetes#43516"],
    },
    examine,
};

/// A healthy node cannot tell that its control plane sees it otherwise: the report of a healthy node points here.
fn examine(_scene: &Scene<'_>) -> Vec<Finding> {
    Vec::new()
}
