//! S10: a shim is stopped by a signal or frozen.

use crate::{
    diagnose::{Area, Finding, Page, Proof, Rule, Scene},
    input::Component,
    stuck::{StuckKind, is_shim_of_node, matters},
    words::of_pod,
};

pub(super) static RULE: Rule = Rule {
    id: "S10",
    title: "a shim is stopped by a signal, or in a frozen cgroup",
    area: Area::Shim,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "The shim of a pod answers the runtime's requests about its containers. When all its threads are \
            stopped or frozen, ExecSync (exec probes), StopContainer and UpdateContainerResources of that pod hang, \
            and its containers' exits are not reported. Lists do not ask the shim, so PLEG stays healthy, unless an \
            update holds a lock that lists need (R1).",
        versions: "all",
        symptoms: &[
            "ExecSync, StopContainer or UpdateContainerResources of one pod: DeadlineExceeded",
            "exec probes of one pod time out",
            "the pod stays Terminating",
        ],
        evidence: &[
            "all threads of the shim in state T, or its cgroup FROZEN",
            "unread bytes in its socket, and goroutines of the runtime that wait for the shim, if it was asked",
        ],
        excluded_by: &[
            "it was stopped for less than 3 s, as a debugger or a dump of its memory does, and nobody waits for it: a notice",
            "nobody waits for it, and its container is not the kubelet's (another namespace of containerd): a notice",
        ],
        next: &[
            "resume it (`kill -CONT PID`), or thaw its cgroup",
            "`kill -9 PID` ends its containers; the kubelet starts them again",
            "find out who stopped it: a debugger, a checkpoint tool, the freezer of a batch system",
        ],
        trap: "Do not kill the shim: that kills the containers of its pod. Resuming it costs nothing.",
        sources: &["reproduced with containerd 1.4 to 2.1"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let of = |stuck: &crate::stuck::Stuck| {
        let pid = stuck.what.pid();
        let pod = of_pod(stuck.container.as_ref());
        let (headline, next) = match &stuck.what {
            StuckKind::Stopped { component: Component::Shim, .. } => (
                format!(
                    "shim {pid}{pod} is stopped by a signal: nothing of its pod can be started, stopped or probed"
                ),
                format!("`kill -CONT {pid}`"),
            ),
            StuckKind::Frozen { component: Component::Shim, freezer, .. } => (
                format!(
                    "shim {pid}{pod} is in a frozen cgroup: nothing of its pod can be started, stopped or probed"
                ),
                super::u4_container_left_frozen::thaw(freezer),
            ),
            _ => return None,
        };
        let finding = Finding::of_stuck(&RULE, headline, Component::Shim, stuck, scene);
        let finding = finding.advise([next, "then find out who did it".to_owned()]);
        if matters(stuck, scene.snapshot) {
            return Some(finding);
        }
        let finding = if is_shim_of_node(stuck, scene.snapshot) {
            finding
        } else {
            finding.doubted("its container is not the kubelet's: containerd keeps it in another namespace")
        };
        Some(finding.into_notice())
    };
    scene.stuck().filter_map(of).collect()
}
