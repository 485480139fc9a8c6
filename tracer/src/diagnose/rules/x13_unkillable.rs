//! X13: a process of a container was killed and does not end.

use crate::{
    correlate::thresholds::FILE_CALL_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, kernel_victims, kernel_wait::access},
    input::ParkedThreads,
    words::of_pod,
};

pub(super) static RULE: Rule = Rule {
    id: "X13",
    title: "a process of a container cannot be killed: it waits in the kernel",
    area: Area::Kernel,
    min_age_ns: FILE_CALL_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "SIGKILL ends a process when it next leaves the kernel. One that waits there in state D (a disk or a driver that does not \
            answer, a file system in a deadlock) is not interrupted. As long as one process of a container is left, its first \
            process does not end, StopContainer waits until its deadline (2 min and the grace period), the kubelet tries again, and \
            the pod stays Terminating.",
        versions: "all",
        symptoms: &[
            "a pod stays Terminating",
            "StopContainer: DeadlineExceeded, again and again",
            "hung task: blocked for more than 120 seconds",
        ],
        evidence: &[
            "a process in the container's cgroup has SIGKILL pending (SigPnd or ShdPnd in /proc/PID/status)",
            "a thread of it is in state D, in the same call for 5 s, found by every look",
        ],
        excluded_by: &[
            "the call waits for FUSE (X6), a network file system (X3), a frozen file system (X4), an agent (X11), network namespaces (X7), \
             RCU (X9), the audit queue (X12) or an unmount: those say more",
            "the container's cgroup is frozen (U4)",
        ],
        next: &[
            "`cat /proc/PID/stack`: which driver or file system it waits in; dmesg has what that reports",
            "end what it waits for: the disk, the device, the server; the kernel then takes the signal",
            "if nothing ends it, only a reboot of the node does: drain it first",
        ],
        trap: "Do not send more signals, and do not restart shim, containerd or kubelet: nothing of that ends it. \
            kubectl delete --force only makes the API server forget the pod, and a StatefulSet may start it twice.",
        sources: &["kernel/signal.c (complete_signal)", "man 5 proc (SigPnd, ShdPnd)", "moby#31007"],
    },
    examine,
};

/// Other rules know why.
fn is_unnamed(park: &ParkedThreads) -> bool {
    !park.waits_in_kernel()
}

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let victims = kernel_victims::unkillable(scene, is_unnamed);
    victims
        .map(|victim| {
            let (pod, pid) = (of_pod(victim.container()), victim.pid);
            let headline = format!(
                "{}{pod} does not end: it waits in the kernel, in {}",
                victim.who,
                access(victim.park)
            );
            let culprit = format!("what process {pid} waits for in the kernel");
            let advice = [format!(
                "cat /proc/{pid}/stack; dmesg | tail: which disk, device or file system does not answer"
            )];
            let rest = RULE.page.next.iter().skip(1).map(|next| (*next).to_owned());
            victim.finding(&RULE, headline, culprit).advise(advice.into_iter().chain(rest))
        })
        .collect()
}
