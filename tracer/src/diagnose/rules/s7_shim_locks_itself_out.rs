//! S7: a shim waits for a lock that it holds itself, since a container's first process died at once.

use crate::{
    correlate::thresholds::STILL_NS,
    diagnose::{
        Area, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        exits::{Series, by_version},
    },
    input::Component,
    stuck::{ShimLock, Stuck, StuckKind},
    words::{self, of_pod},
};

/// Of containerd; the shim comes with it.
const AFFECTED: &[Series] = &[(1, 6, 22, 24), (1, 7, 3, 7)];

pub(super) static RULE: Rule = Rule {
    id: "S7",
    title: "a shim waits for a lock that it holds itself: a container's first process died at once",
    area: Area::Shim,
    min_age_ns: STILL_NS,
    proof: Proof::Rebuilt,
    page: Page {
        mechanism: "A shim holds a lock while it creates a container. When the container's first process dies before that is \
            over, affected shims handle the exit at once, and take the same lock again to do so: the shim waits for itself. \
            StartContainer hangs, and so does every later request about that pod. Other pods have shims of their own, and lists \
            do not ask shims, so PLEG stays healthy.",
        versions: "containerd 1.6.22 to 1.6.24 and 1.7.3 to 1.7.7; fixed in 1.6.25 and 1.7.8. A shim keeps the program that it \
            was started with: pods from before an upgrade keep the bug",
        symptoms: &[
            "a container that crashes at its start stays in state created, and nothing of its pod answers any more",
            "StartContainer, StopContainer and exec probes of one pod: DeadlineExceeded",
        ],
        evidence: &[
            "a goroutine of the shim that handles an exit inside of Create, and waits for a lock",
            "the shim runs no runc, at each look, 3 s apart or more",
            "a request that waits for its answer",
        ],
        excluded_by: &[
            "a runc of the shim runs: then the lock is merely held for as long as that takes",
            "the shim is stopped or frozen (S10)",
        ],
        next: &[
            "`kill -9` the shim: the kubelet starts the pod anew",
            "upgrade containerd to 1.6.25 or 1.7.8, and restart the pods that were started before",
            "find out why the container dies at its start",
        ],
        trap: "Do not restart containerd: it asks the same shim, and its start may wait for it (R9).",
        sources: &["containerd PR 8617", "containerd PR 9104"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::SilentShim { shim, lock: Some(ShimLock::Create), .. } = &stuck.what else { return None };
    let headline = format!(
        "shim {shim}{} waits for a lock that it holds itself: a container's first process died while it was created",
        of_pod(stuck.container.as_ref())
    );
    let text = format!("a goroutine of the shim: {}", words::go_stack(&stuck.frames, true));
    let finding = Finding::of_stuck(&RULE, headline, Component::Shim, stuck, scene)
        .seen(Evidence::new(Source::Goroutines, text));
    let kill = format!("`kill -9 {shim}`: the kubelet starts the pod anew");
    Some(by_version(finding, AFFECTED, scene.snapshot).advise([kill, RULE.page.next[1].to_owned()]))
}
