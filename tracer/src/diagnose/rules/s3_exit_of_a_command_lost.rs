//! S3: a command in a container has ended, and its shim never reports it.

use crate::{
    correlate::thresholds::UNREPORTED_NS,
    diagnose::{
        Area, Finding, Page, Proof, Rule, Scene,
        exits::{Lost, Series},
    },
    words::of_pod,
};

/// Of containerd; the shim comes with it.
const AFFECTED: &[Series] = &[(1, 6, 29, 30), (1, 7, 14, 14)];

pub(super) static RULE: Rule = Rule {
    id: "S3",
    title: "the exit of a command in a container was lost: its ExecSync never ends",
    area: Area::Shim,
    min_age_ns: UNREPORTED_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "While another command starts in the same container, the shim puts exits off, and in some versions it \
            forgets those of other commands meanwhile. The command has ended and was reaped, and its ExecSync waits for \
            the report. Exec probes of the pod time out in bursts; lists are answered, so PLEG stays healthy.",
        versions: "containerd 1.6.29, 1.6.30 and 1.7.14; fixed in 1.6.31 and 1.7.15. A shim keeps the program that it was \
            started with: pods from before an upgrade keep the bug",
        symptoms: &[
            "exec probes of one pod time out in bursts",
            "docker exec hangs after its command has ended",
        ],
        evidence: &[
            "the command's process (EXEC.pid in the bundle) is gone, reaped by its shim",
            "more ExecSync wait for the end of a command in that container than commands run there, for 10 s, found by every look",
            "its shim runs, and waits neither for a runc nor in the kernel",
        ],
        excluded_by: &[
            "a process holds the command's output open (R8)",
            "the ExecSync waits for the shim to answer (Start, Kill, Delete): not for an exit",
            "the shim is stopped or frozen (S10), or a runc of its own hangs",
            "the command's process was not reaped: a tracer holds it (S11), or the shim itself is stuck (S1)",
        ],
        next: &[
            "kill the shim if the pod's probes keep failing: the kubelet starts the pod anew",
            "upgrade containerd, and restart the pods that were started before",
        ],
        trap: "Do not kill the shim without need: that ends all containers of its pod; the ExecSync alone costs only \
            memory until it times out.",
        sources: &["containerd PR 9999", "containerd#10058"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let lost = Lost::all(scene).filter(|lost| lost.is_command && !lost.zombie);
    lost.map(|lost| finding(&lost, scene)).collect()
}

fn finding(lost: &Lost<'_>, scene: &Scene<'_>) -> Finding {
    let (shim, pod) = (lost.shim.fact.pid, of_pod(lost.stuck.container.as_ref()));
    let belief = lost.belief(scene);
    let headline =
        format!("a command in a container{pod} has ended, and shim {shim} never reported it: {belief}");
    lost.of_shim(&RULE, headline, AFFECTED, scene).advise(RULE.page.next.iter().copied())
}
