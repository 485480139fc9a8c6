//! X6: a process hangs in the kernel, because the program that serves a FUSE file system does not answer.

use super::r12_create_stats_a_dead_mount as r12;
use crate::{
    correlate::thresholds::HOOK_NS,
    diagnose::{
        Area, Finding, Page, Proof, Rule, Scene,
        kernel_victims::{self, Victim},
        kernel_wait::access,
        scene::{parked_in, parks_of},
    },
    input::ParkedThreads,
    stuck::{Stuck, StuckKind},
    words::{self, of_pod},
};

pub(super) static RULE: Rule = Rule {
    id: "X6",
    title: "a process hangs in the kernel, because a FUSE server does not answer",
    area: Area::Kernel,
    min_age_ns: HOOK_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "Whoever uses a file on FUSE waits in the kernel for the program that serves it. Once that program has \
            read the request and does not answer, not even SIGKILL ends the wait. Hooks, runc, network plugins and the \
            runtime hang so. A container hangs so at its end: its first process waits in zap_pid_ns_processes for the \
            last of the others, and the pod stays Terminating.",
        versions: "all; FUSE is used by s3fs, gcsfuse, sshfs, GlusterFS, lxcfs and many CSI drivers",
        symptoms: &["a pod stays Terminating", "hung task in request_wait_answer", "ContainerCreating"],
        evidence: &[
            "something of the node does not move, or a shim or a program that the kubelet has started has been in one call for 5 s, and waits \
             in request_wait_answer",
            "a process that holds /dev/fuse, and no other one does",
            "or a process of a container that was sent SIGKILL is there for 5 s, in state D",
        ],
        excluded_by: &[
            "a CreateContainer in os.Stat of a host path (R12)",
            "a thread of the kubelet waits there (K5)",
        ],
        next: &[
            "restart the FUSE server, or abort its connection: `echo 1 > /sys/fs/fuse/connections/N/abort`",
            "then unmount the file system lazily (`umount -l`)",
        ],
        trap: "Do not kill what waits: the signal is not seen before the server answers.",
        sources: &["moby#37627", "moby#31614", "fs/fuse/dev.c (request_wait_answer)"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let stuck = scene.stuck().filter_map(|stuck| finding(stuck, scene));
    let victims = kernel_victims::find(scene, ParkedThreads::waits_for_fuse);
    stuck.chain(victims.iter().map(|victim| of_victim(victim, scene))).collect()
}

fn of_victim(victim: &Victim<'_>, scene: &Scene<'_>) -> Finding {
    let (what, container, pid) = (access(victim.park), victim.container(), victim.pid);
    let headline =
        format!("the FUSE file system does not answer: {}{} hangs in {what}", victim.who, of_pod(container));
    let culprit = format!("the FUSE file system, for which {} waits in the kernel", victim.who);
    let finding = victim.finding(&RULE, headline, culprit);
    r12::served(finding, &what, container, pid, scene).advise(RULE.page.next.iter().copied())
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let park = parked_in(parks_of(stuck, scene)?, ParkedThreads::waits_for_fuse)?;
    if stuck.since.ns < RULE.min_age_ns || r12::is_meant(stuck) {
        return None;
    }
    let (what, pod) = (access(park), of_pod(stuck.container.as_ref()));
    let (component, waits) = match &stuck.what {
        StuckKind::Process { command, comm, pid, .. } => {
            (crate::input::Component::Helper, format!("{} (pid {pid})", words::command_words(command, comm)))
        }
        StuckKind::Request(request) => (request.component, words::requests(request)),
        _ => return None,
    };
    let headline = format!("the FUSE file system does not answer: {waits}{pod} hangs in {what}");
    let finding = Finding::of_stuck(&RULE, headline, component, stuck, scene);
    Some(
        r12::served(finding, &what, stuck.container.as_ref(), stuck.what.pid(), scene)
            .advise(RULE.page.next.iter().copied()),
    )
}
