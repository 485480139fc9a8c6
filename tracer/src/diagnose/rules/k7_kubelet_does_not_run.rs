//! K7: the kubelet is stopped, frozen or gone.

use crate::{
    correlate::TracedState,
    diagnose::Reason,
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        unit::{fate, unit},
        unnamed::{gone_at, silent_client},
    },
    input::Component,
    stuck::{REACH_RELIST, StuckKind},
    words::cut,
};

pub(super) static RULE: Rule = Rule {
    id: "K7",
    title: "the kubelet is not running: no relists, no node status",
    area: Area::Kubelet,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "Without a kubelet, nothing queries the runtime and nothing renews the node's lease. After 40 s \
            the control plane marks the node NotReady (Unknown); after 5 min it marks its pods for deletion. Nothing \
            on the node acts on that, so the pods stay Terminating, and volumes that only one node may mount stay \
            attached: replacement pods cannot start elsewhere.",
        versions: "all",
        symptoms: &[
            "Kubelet stopped posting node status",
            "pods stuck in Terminating, Multi-Attach error for volume",
        ],
        evidence: &[
            "no kubelet process, although there is an enabled unit, a configuration, certificates or pods; or its \
                exit was seen",
            "or: all its threads in state T, or its cgroup FROZEN",
        ],
        excluded_by: &[
            "one of its relists has ended since",
            "it is not the node's kubelet but one in a container, or a program of another user",
            "a process of root's listens on its ports, or asks the runtime as a kubelet does, whatever it is called; one that is connected to \
                the runtime and asks nothing is a doubt",
        ],
        next: &[
            "start or resume the kubelet; leave the runtime and the containers alone",
            "if it exits again: `journalctl -u kubelet` (certificates, swap, full disk, cgroup driver)",
            "if the machine is lost: `kubectl taint node NAME node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`",
        ],
        trap: "Do not delete the node object: that speeds nothing up. ReadWriteOnce volumes are detached only once the \
            node is known to be off (out-of-service taint), otherwise after a timeout, at the risk of corrupting \
            data.",
        sources: &["kubernetes.io/docs/concepts/cluster-administration/node-shutdown (non-graceful)"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let halted = scene.stuck().filter_map(|stuck| {
        let (how, next) = match &stuck.what {
            StuckKind::Stopped { component: Component::Kubelet, pid, .. } => {
                ("stopped by a signal", format!("`kill -CONT {pid}`"))
            }
            StuckKind::Frozen { component: Component::Kubelet, freezer, .. } => {
                ("in a frozen cgroup", super::u4_container_left_frozen::thaw(freezer))
            }
            _ => return None,
        };
        let headline = format!("the kubelet is {how}: no relists, no node status");
        let finding = Finding::of_stuck(&RULE, headline, Component::Kubelet, stuck, scene);
        let finding = Finding { reach: REACH_RELIST, ..finding };
        Some(finding.advise([next, "then find out who did it".to_owned()]))
    });
    let down = scene.reasons().find_map(|reason| match reason {
        Reason::Down { component: Component::Kubelet, evidence } => Some(is_down(evidence, scene)),
        _ => None,
    });
    halted.chain(down).collect()
}

fn is_down(left: &str, scene: &Scene<'_>) -> Finding {
    let unit = unit(Component::Kubelet, scene);
    let headline = "no kubelet is running on this node: no relists, no node status";
    let gone = scene.snapshot.targets.iter().filter_map(|target| match &target.state {
        TracedState::Gone { at, .. } if target.fact.component == Component::Kubelet => Some(*at),
        _ => None,
    });
    let since =
        gone.max().map(|at| crate::correlate::Age { ns: scene.snapshot.now.since(at), at_least: false });
    let finding =
        Finding::new(&RULE, headline).seen(Evidence::new(Source::Census, format!("kubelet: {left}")));
    let finding = match runtime(scene) {
        Some(evidence) => finding.seen(evidence),
        None => finding,
    };
    let finding = match silent_client(scene.snapshot, gone_at(Component::Kubelet, scene.snapshot)) {
        Some(client) => finding.doubted(format!(
            "{} (pid {}) is connected to the runtime and asks nothing: it may be a kubelet of another name",
            cut(&client.name, 40),
            client.pid
        )),
        None => finding,
    };
    let finding = super::o5_no_more_files::with_what_keeps_down(finding, scene);
    Finding {
        since,
        culprit: Some(Culprit {
            component: Component::Kubelet,
            pid: None,
            container: None,
            words: format!("kubelet: {left}"),
        }),
        victims: vec!["the node's lease, and every change to its pods".to_owned()],
        reach: REACH_RELIST,
        ..finding
    }
    .advise([
        format!("`journalctl -u {unit} -e`: why it exited"),
        format!("`systemctl start {unit}`; {}", fate(Component::Kubelet)),
    ])
}

/// The runtime is well: it is the kubelet alone.
fn runtime(scene: &Scene<'_>) -> Option<Evidence> {
    let live = scene
        .snapshot
        .targets
        .iter()
        .find(|target| target.fact.component.role().is_runtime() && target.state == TracedState::Live)?;
    let (name, pid) = (live.fact.component.name(), live.fact.pid);
    Some(Evidence::new(Source::Census, format!("{name} {pid} runs")))
}
