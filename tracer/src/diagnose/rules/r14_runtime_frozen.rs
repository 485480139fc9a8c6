//! R14: the container runtime itself does not run.

use crate::{
    diagnose::{
        Area, Finding, Page, Proof, Rule, Scene,
        unit::{fate, unit},
    },
    stuck::StuckKind,
};

pub(super) static RULE: Rule = Rule {
    id: "R14",
    title: "the container runtime is stopped by a signal, or in a frozen cgroup",
    area: Area::Runtime,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "The runtime's process exists and its socket accepts connections, because the kernel does that; \
            but none of its threads runs. Requests pile up unread, and every kubelet call ends at its deadline.",
        versions: "all",
        symptoms: &[
            "every CRI call: DeadlineExceeded",
            "PLEG is not healthy",
            "`crictl` hangs with every command",
        ],
        evidence: &[
            "all threads of the runtime in state T, or its cgroup FROZEN",
            "unread bytes in its sockets, or connections that it has not accepted",
        ],
        excluded_by: &[
            "one of its CRI handlers has answered since, or a relist got its list",
            "it does not serve this node's kubelet: it runs in a container, or next to the runtime that does",
        ],
        next: &[
            "resume it (`kill -CONT PID`) or thaw its cgroup",
            "restart its service if it does not recover; containers keep running, except Docker's without live-restore",
            "find out who stopped it: a debugger, a signal to the wrong process, the freezer of a batch system",
        ],
        trap: "Do not restart the kubelet: its calls hang in the same way.",
        sources: &["reproduced with containerd 1.4 to 2.1"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let of = |stuck: &crate::stuck::Stuck| {
        let (component, how, next) = match &stuck.what {
            StuckKind::Stopped { component, pid, .. } => {
                (*component, "stopped by a signal", format!("`kill -CONT {pid}`"))
            }
            StuckKind::Frozen { component, freezer, .. } => {
                (*component, "in a frozen cgroup", super::u4_container_left_frozen::thaw(freezer))
            }
            _ => return None,
        };
        if !component.role().is_runtime() {
            return None;
        }
        let headline = format!("{} is {how}: no CRI call is answered", component.name());
        let finding = Finding::of_stuck(&RULE, headline, component, stuck, scene);
        let (unit, fate) = (unit(component, scene), fate(component));
        let restart = format!("if it does not recover: `systemctl restart {unit}`; {fate}");
        Some(finding.advise([next, restart, "then find out who did it".to_owned()]))
    };
    scene.stuck().filter_map(of).collect()
}
