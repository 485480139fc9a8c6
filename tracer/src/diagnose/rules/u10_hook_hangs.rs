//! U10: an OCI hook does not end.

use crate::{
    correlate::thresholds::HOOK_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene},
    input::{Command, Component, ParkedThreads},
    stuck::{Stuck, StuckKind, Waiter},
    words::{command_words, of_pod},
};

pub(super) static RULE: Rule = Rule {
    id: "U10",
    title: "an OCI hook hangs, and runc waits for it",
    area: Area::Runc,
    min_age_ns: HOOK_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "runc runs the hooks of a container (GPU set-up, security agents, poststop clean-up) and waits for each \
            without a deadline, unless the hook has one. A hook that waits for a driver or a service holds up create, \
            start or delete of that container.",
        versions: "all",
        symptoms: &[
            "ContainerCreating",
            "StartContainer or RemoveContainer: DeadlineExceeded",
            "one core at 100 % (a hook that spins)",
        ],
        evidence: &[
            "a process older than 5 s whose parent is a runc",
            "that runc waits for it, and a shim waits for that runc",
        ],
        excluded_by: &[
            "it is runc's own init",
            "it waits until an agent permits an access to a file (X11), or for a FUSE server (X6)",
        ],
        next: &[
            "check what the hook is blocked on",
            "kill the hook: runc fails, and the kubelet tries again",
        ],
        trap: "Do not kill runc instead: that leaves the hook running.",
        sources: &["k8s-device-plugin#77", "k8s-device-plugin#301"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::Process { command: command @ Command::Other { .. }, comm, pid, .. } = &stuck.what else {
        return None;
    };
    let Some(Waiter::Process { component: Component::Runc, command: Some(runc), comm: program, .. }) =
        parent(stuck)
    else {
        return None;
    };
    if stuck.since.ns < RULE.min_age_ns || stuck.parks.iter().any(ParkedThreads::waits_for_answerer) {
        return None;
    }
    let (hook, pod) = (command_words(command, comm), of_pod(stuck.container.as_ref()));
    let headline =
        format!("hook {hook} (pid {pid}){pod} hangs; {} waits for it", command_words(runc, program));
    let finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    Some(
        finding.advise([
            format!(
                "check what {hook} waits for, then `kill {pid}`: runc fails, and the kubelet tries again"
            ),
            "find who configured it: hooks of the container's config.json, or of /etc/containers/oci/hooks.d"
                .to_owned(),
        ]),
    )
}

/// The nearest process that waits: the parent, unless that is another part of the hook.
fn parent(stuck: &Stuck) -> Option<&Waiter> {
    stuck
        .waiters
        .iter()
        .find(|waiter| matches!(waiter, Waiter::Process { component, .. } if *component != Component::Helper))
}
