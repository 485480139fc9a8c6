//! U4: the cgroup of a container is frozen and stays frozen.

use crate::{
    correlate::thresholds::SECOND_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene},
    input::{Command, Component, ContainerFact, Freezer},
    stuck::StuckKind,
    words::{self, of_pod},
};

/// Commands of runc that freeze a container, change it, and thaw it.
const UPDATES: [&str; 3] = ["update", "create", "run"];

pub(super) static RULE: Rule = Rule {
    id: "U4",
    title: "a container's cgroup was frozen and left frozen",
    area: Area::Runc,
    min_age_ns: 5 * SECOND_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "runc freezes a container for a moment while it changes device rules. A runc that is killed \
            meanwhile, or one with the bug below, leaves it frozen: no process in it runs and no signal reaches it, \
            so StopContainer waits out its grace period and then forever.",
        versions: "runc 1.0.0 and Kubernetes 1.22.0; fixed in runc 1.0.2 and 1.1.0. A deliberate pause looks the same",
        symptoms: &["no logs", "FROZEN below kubepods", "pod stays Terminating"],
        evidence: &[
            "freezer.state FROZEN (cgroup v1) or cgroup.freeze 1 (v2) of a container, each time it was read",
        ],
        excluded_by: &[
            "a runc that changes this container is under way: it thaws it when it goes on (R1, D3)",
            "the container was paused on purpose, which looks the same from outside",
        ],
        next: &[
            "thaw it",
            "upgrade runc",
            "look for a runc that was killed while it waited for systemd (D-Bus)",
        ],
        trap: "Do not force-delete the pod: that leaves the frozen processes on the node.",
        sources: &["kubernetes#104280", "kubernetes#102508", "runc PR 3080, 3082, 3166"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let of = |stuck: &crate::stuck::Stuck| {
        let StuckKind::Frozen { component, freezer, .. } = &stuck.what else { return None };
        if *component != Component::Helper || stuck.since.ns < RULE.min_age_ns {
            return None;
        }
        if freezer.state == "FROZEN" && is_being_updated(stuck.container.as_ref(), scene) {
            return None;
        }
        let pod = of_pod(stuck.container.as_ref());
        let headline = format!("a container{pod} is frozen: it does not run and cannot be stopped");
        let finding = Finding::of_stuck(&RULE, headline, *component, stuck, scene).advise([thaw(freezer)]);
        let waits = stuck.waiters.iter().any(|waiter| {
            matches!(waiter, crate::stuck::Waiter::Requests(_) | crate::stuck::Waiter::Relist { .. })
        });
        Some(if waits {
            finding
        } else {
            finding.into_notice().doubted("it may be paused on purpose: no waiter was seen")
        })
    };
    scene.stuck().filter_map(of).collect()
}

/// Is there a runc that changes this container now? With the systemd cgroup driver it has frozen it, and waits for systemd.
fn is_being_updated(container: Option<&ContainerFact>, scene: &Scene<'_>) -> bool {
    let Some(container) = container else { return false };
    let updates = |command: &Command| match command {
        Command::Runc { sub, container: Some(id), .. } => {
            UPDATES.contains(&sub.as_str()) && *id == container.id
        }
        _ => false,
    };
    scene.snapshot.census.processes.iter().any(|seen| seen.fact.command.as_ref().is_some_and(updates))
}

/// What to type to let a cgroup run again.
pub(super) fn thaw(freezer: &Freezer) -> String {
    let path = freezer.path.trim_start_matches('/');
    // What a shell would read as more than a name is nothing to be copied.
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | ':' | '@' | '\\');
    if !path.chars().all(is_plain) {
        return format!("thaw cgroup {}", words::cut(path, words::LONG));
    }
    match freezer.version {
        1 => format!("`echo THAWED > /sys/fs/cgroup/freezer/{path}/freezer.state`"),
        _ => format!("`echo 0 > /sys/fs/cgroup/{path}/cgroup.freeze`"),
    }
}
