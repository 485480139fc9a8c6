//! S2: containerd and a shim each wait for the other to read.

use crate::{
    diagnose::{
        Area, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        exits::{Series, has_bug, list},
        unit::{fate, unit},
    },
    input::Component,
    stuck::{Stuck, StuckKind},
    words::{self, cut, of_pod},
};

/// Of containerd: its ttrpc client reads nothing while it writes, or needs for reading the lock of a writer.
const AFFECTED: &[Series] = &[(1, 3, 0, 99), (1, 4, 0, 99), (1, 5, 0, 7), (1, 7, 0, 16)];

pub(super) static RULE: Rule = Rule {
    id: "S2",
    title: "containerd and a shim each wait for the other to read",
    area: Area::Shim,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "containerd and a shim talk over one socket (ttrpc). Affected clients read no reply while they wait for room to \
            write a request, and the server in a shim reads no request while it waits for room to write a reply. When both \
            directions are full at once, neither ever reads again: many requests for figures (ContainerStats) of a pod whose shim \
            was slow for a moment are enough. Every request about that pod hangs; lists do not ask shims, so PLEG stays healthy \
            unless an update holds a lock that lists need (R1).",
        versions: "containerd before 1.5.8 (ttrpc before 1.1.0), and 1.7 before 1.7.17 (ttrpc before 1.2.4)",
        symptoms: &[
            "all requests about one pod: DeadlineExceeded; its exec probes time out, it stays Terminating",
            "ctr -n k8s.io task ls hangs",
        ],
        evidence: &[
            "both ends of the connection between containerd and the shim have bytes that are not read",
            "just as many at each look, 3 s apart or more, and neither process is stopped or frozen",
            "a goroutine of containerd that waits for room to write to a shim",
        ],
        excluded_by: &[
            "the shim or containerd is stopped or frozen (S10, R14)",
            "one end has nothing to read",
        ],
        next: &[
            "restart containerd: the connection goes, the shim answers the new one, and no container ends",
            "upgrade containerd to 1.5.8, 1.6 or 1.7.17",
        ],
        trap: "Do not kill the shim: that ends all containers of its pod. Restarting the kubelet changes nothing.",
        sources: &["ttrpc#72", "ttrpc PR 94", "ttrpc PR 168", "reproduced with containerd 1.4"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::Jammed { runtime, shim } = stuck.what else { return None };
    let (component, pod) = (Component::Containerd, of_pod(stuck.container.as_ref()));
    let headline = format!(
        "{} {runtime} and shim {shim}{pod} each wait for the other to read: nothing of this pod can be started, stopped or probed",
        component.name()
    );
    let finding = Finding::of_stuck(&RULE, headline, component, stuck, scene);
    let finding = match stuck.frames.as_slice() {
        [] => finding.doubted("no goroutine was found that waits for room to write to a shim"),
        frames => {
            let text = format!(
                "a goroutine of {} waits for room: {}",
                component.name(),
                words::go_stack(frames, true)
            );
            finding.seen(Evidence::new(Source::Goroutines, text))
        }
    };
    let finding = by_version(finding, component, scene);
    Some(finding.advise(advice(component, scene)))
}

/// What ends it, and what keeps it from coming back.
pub(super) fn advice(component: Component, scene: &Scene<'_>) -> [String; 2] {
    let restart = format!("`systemctl restart {}`: {}", unit(component, scene), fate(component));
    [restart, RULE.page.next[1].to_owned()]
}

/// Is it a version that does so?
fn by_version(finding: Finding, component: Component, scene: &Scene<'_>) -> Finding {
    let versions = &scene.snapshot.census.versions;
    let Some(fact) = versions.iter().find(|fact| fact.program == component.name()) else {
        return finding.doubted("the version of the runtime is not known");
    };
    let (version, known) = (cut(&fact.version, 24), list(AFFECTED));
    if has_bug(&fact.version, AFFECTED) {
        let text = format!("{} {version} has this bug", component.name());
        return finding.seen(Evidence::new(Source::Census, text));
    }
    finding.doubted(format!(
        "{} {version} is none of the versions with the known bug ({known})",
        component.name()
    ))
}
