//! S4: a container has ended, and its shim never reports it.

use crate::{
    correlate::thresholds::UNREPORTED_NS,
    diagnose::{
        Area, Finding, Page, Proof, Rule, Scene,
        exits::{Lost, Series},
    },
    words::of_pod,
};

/// Of containerd; the shim comes with it.
const AFFECTED: &[Series] = &[(1, 6, 29, 35), (1, 7, 14, 21)];

pub(super) static RULE: Rule = Rule {
    id: "S4",
    title: "the exit of a container was lost: the runtime believes that it runs",
    area: Area::Shim,
    min_age_ns: UNREPORTED_NS,
    proof: Proof::Rebuilt,
    page: Page {
        mechanism: "A shim puts the exit of a container off until the commands that run in it have been reported. When it \
            counts one that never started or that has long ended, it waits forever: the process is gone, and the runtime \
            goes on believing that it runs. The kubelet does not restart the container, exec probes fail, and StopContainer \
            waits for an exit that never comes, so the pod stays Terminating. Lists are answered, so PLEG stays healthy.",
        versions: "containerd 1.6.29 to 1.6.35 and 1.7.14 to 1.7.21; fixed in 1.6.36, 1.7.22 and 2.0. A shim keeps the \
            program that it was started with: pods from before an upgrade keep the bug",
        symptoms: &[
            "cannot exec in a stopped container",
            "StopContainer: DeadlineExceeded, again every 2 min",
            "crictl ps shows Running, and no process is left",
        ],
        evidence: &[
            "the container's first process (init.pid in its bundle) is gone, reaped by its shim",
            "the runtime, asked over the CRI, reports the container as running or its sandbox as ready",
            "both for 10 s, found by every look",
            "its shim runs, and waits neither for a runc nor in the kernel",
        ],
        excluded_by: &[
            "the shim is stopped or frozen (S10), or a runc of its own hangs (U4, U10, D3)",
            "a thread of the shim waits in the kernel, as in umount2 of the container's root (R3, S5), or containerd is having it delete \
             a task: then the end was reported",
            "the process has ended and was not reaped: a tracer holds it (S11), or the shim itself is stuck (S1)",
        ],
        next: &[
            "`ctr -n k8s.io task ls`: if the shim says STOPPED there, restarting containerd is enough, and ends no container",
            "if it says RUNNING, kill the shim: the runtime then notices the end, and the kubelet starts the pod anew",
            "upgrade containerd, and restart the pods that were started before",
        ],
        trap: "Do not kill the shim first: that ends all containers of its pod. Restarting containerd changes nothing \
            when the shim itself believes that the container runs.",
        sources: &["containerd#10589", "containerd#12678", "containerd PR 10603, 10651"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let lost = Lost::all(scene).filter(|lost| !lost.is_command && !lost.zombie);
    lost.map(|lost| finding(&lost, scene)).collect()
}

fn finding(lost: &Lost<'_>, scene: &Scene<'_>) -> Finding {
    let (shim, pod) = (lost.shim.fact.pid, of_pod(lost.stuck.container.as_ref()));
    let what = if lost.stuck.waiters.is_empty() {
        "the kubelet does not restart it"
    } else {
        "StopContainer waits forever"
    };
    let belief = lost.belief(scene);
    let headline = format!("shim {shim} never reported the exit of a container{pod}: {belief}, so {what}");
    lost.of_shim(&RULE, headline, AFFECTED, scene).advise([
        "`ctr -n k8s.io task ls`: if the shim says STOPPED there, restarting containerd is enough".to_owned(),
        format!("if it says RUNNING, `kill {shim}` (the shim): this ends its pod, and the kubelet starts the pod anew"),
        "upgrade containerd to 1.6.36, 1.7.22 or 2.0, and restart pods that are older than the upgrade".to_owned(),
    ])
}
