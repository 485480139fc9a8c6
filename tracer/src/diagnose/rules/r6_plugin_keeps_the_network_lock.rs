//! R6: a network plugin that hangs keeps the lock of the networks, and a reload makes `Status` wait for it.

use super::n1_cni_plugin_hangs as n1;
use crate::{
    correlate::{
        Request,
        thresholds::{CNI_NS, SECOND_NS},
    },
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, networks::Networks},
    input::Component,
    stuck::{Stuck, Waiter},
    words::of_pod,
};

pub(super) static RULE: Rule = Rule {
    id: "R6",
    title: "a hung network plugin keeps the network lock, so Status waits",
    area: Area::Runtime,
    min_age_ns: CNI_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "go-cni reads its configuration under a lock. From 1.1.12 on it keeps that lock until the last plugin \
            of a pod has ended. A reload, which any change in /etc/cni/net.d begins, waits to write; behind it waits \
            whoever wants to read: Status, and the network of every other pod. After 30 s the kubelet says \"container \
            runtime is down\". Lists need no such lock, so PLEG stays healthy.",
        versions: "containerd 2.0.3 and later (go-cni 1.1.12); reported of 1.3 and 1.4 as well",
        symptoms: &[
            "Status from runtime service failed … DeadlineExceeded",
            "container runtime is down",
            "`crictl ps` works, `crictl info` hangs",
        ],
        evidence: &[
            "a CNI plugin older than 10 s, a child of the runtime",
            "a goroutine in Status that waits for go-cni's lock",
            "a goroutine that reloads the configuration and waits for the same lock",
        ],
        excluded_by: &[
            "no plugin runs: go-cni has locked itself out (R5)",
            "the reload is past the lock: it reads a file that does not come (L2)",
        ],
        next: &[
            "kill the plugin: Status and the other pods go on at once",
            "check what the plugin waited for: its agent, the API server, a lock (N1, N2, N3)",
        ],
        trap: "Do not restart the runtime: that leaves the plugin running, and the next one hangs the same way. Nothing \
            shows in the relist.",
        sources: &["containerd#4666", "cri#1078", "go-cni PR 126"],
    },
    examine,
};

/// Is this why `Status` hangs?
pub(super) fn explains(scene: &Scene<'_>) -> bool {
    !examine(scene).is_empty()
}

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(networks) = Networks::of(scene) else { return Vec::new() };
    // Older ones keep the lock for a moment only, in which a look may find everybody at it.
    let waits = networks.status.stays || networks.status.since.ns > SECOND_NS;
    if networks.reload.is_none() || !waits {
        return Vec::new();
    }
    scene.stuck().filter_map(|stuck| finding(stuck, &networks, scene)).collect()
}

fn finding(stuck: &Stuck, networks: &Networks<'_>, scene: &Scene<'_>) -> Option<Finding> {
    let (words, pid) = n1::plugin(stuck)?;
    // Who started the plugin is past the lock, also when its goroutine was not seen.
    let of_runtime = stuck.waiters.iter().any(|waiter| match waiter {
        Waiter::Requests(Request { pid, .. }) | Waiter::Process { pid, .. } => *pid == networks.pid,
        Waiter::Relist { .. } => false,
    });
    if stuck.since.ns < RULE.min_age_ns || !of_runtime {
        return None;
    }
    let pod = of_pod(stuck.container.as_ref());
    let runtime = networks.component.name();
    let headline =
        format!("{words}{pod} hangs and keeps the network lock: Status of {runtime} waits behind it");
    let mut finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    let near = std::mem::replace(&mut finding.victims, networks.victims());
    finding.victims.extend(near);
    finding.evidence.extend(networks.evidence());
    Some(
        finding.advise([
            format!(
                "`kill {pid}`: Status and the other pods go on at once, and the kubelet tries this pod again"
            ),
            "check what the plugin waited for before it happens again: its agent, the API server, a lock"
                .to_owned(),
        ]),
    )
}
