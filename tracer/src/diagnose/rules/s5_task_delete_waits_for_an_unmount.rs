//! S5: the task of a container that has ended cannot be deleted, because its shim does not come back from an unmount.

use crate::{
    correlate::{
        Known,
        thresholds::{FILE_CALL_NS, TASK_DELETE_NS},
    },
    diagnose::{
        Area, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        kernel_wait::access,
        unmount::{Unmount, open_delete},
    },
    input::{Component, ParkedThreads},
    words::human,
};

pub(super) static RULE: Rule = Rule {
    id: "S5",
    title: "the task of a container that has ended cannot be deleted: its shim does not come back from an unmount",
    area: Area::Shim,
    min_age_ns: TASK_DELETE_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "When a container has ended, its shim says so, and containerd has the shim delete the task, which unmounts the \
            container's root. containerd gives that 10 s. When the unmount takes longer, containerd drops the exit, so the CRI goes \
            on saying that the container runs, and tries again later; StopContainer and the pod wait. In affected versions the \
            shim stays behind, without any child, even after the unmount has ended. An UpdateContainerResources that comes \
            meanwhile waits for the same shim, and every list for the update (R1).",
        versions: "all can wait; shims stay behind with containerd before 1.6.24 and 1.7.4, and with shims of version 1 before 1.6.25 \
            and 1.7.9",
        symptoms: &[
            "failed to delete task: context deadline exceeded",
            "failed to handle container TaskExit event",
            "failed to handle sandbox TaskExit event",
            "crictl ps shows Running minutes after the container has ended",
        ],
        evidence: &[
            "looks over 10 s find a thread of the shim in one and the same umount2 of the container's root",
            "the container's first process is gone and the runtime still reports it as running, or the request to delete its task \
             is open",
            "where the kernel says so, what the unmount waits for: the disk under an overlay (R3), a frozen file system (X4), the server \
             of one (X3, X6), or RCU (X9)",
        ],
        excluded_by: &[
            "no thread of the shim is in umount2: the exit may be lost (S4)",
            "the shim is stopped or frozen (S10)",
        ],
        next: &[
            "see to what the unmount waits for: `cat /proc/SHIM/task/*/stack` as root, dmesg for hung tasks, `iostat -x 1` for the disk",
            "containerd finishes by itself after that; a shim that stays behind then, without any child, does nothing more",
            "upgrade containerd",
        ],
        trap: "Do not kill the shim: the signal is not seen before the unmount ends. It has reported the exit: nothing \
            was lost.",
        sources: &["containerd#7496", "containerd#8931", "containerd#9309", "containerd#12344"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let census = &scene.snapshot.census;
    let known = Known::collect(census.round.as_ref(), census.processes.iter());
    let all = Unmount::all(scene, &known, RULE.min_age_ns, ParkedThreads::unmounts);
    let shims = all.iter().filter(|unmount| unmount.seen.fact.component == Component::Shim);
    shims.filter_map(|unmount| finding(unmount, &known, scene)).collect()
}

fn finding(unmount: &Unmount<'_>, known: &Known, scene: &Scene<'_>) -> Option<Finding> {
    // That of a command in a container is answered at once.
    let delete = open_delete(unmount.seen.fact.pid, scene).filter(|delete| delete.age_ns >= FILE_CALL_NS);
    if unmount.unreported(scene).is_none() && delete.is_none() {
        return None;
    }
    let (who, call, why) = (unmount.who(), access(unmount.park), why(unmount.park));
    let headline = format!(
        "a container has ended, and its runtime cannot delete the task: {who} waits in {call}: {why}"
    );
    let finding = unmount.finding(&RULE, headline, &unmount.waiters(known, scene), scene);
    let finding = match delete {
        Some(delete) => finding.seen(Evidence::new(
            Source::Wire,
            format!(
                "Delete of a task, asked of the shim {} ago, is not answered",
                human::duration(delete.age_ns)
            ),
        )),
        None => finding,
    };
    let finding =
        if why == UNKNOWN { finding.doubted("what the unmount waits for is not known") } else { finding };
    Some(finding.advise(RULE.page.next.iter().copied()))
}

/// Where the kernel does not say more.
const UNKNOWN: &str = "the kernel does not finish it";

/// What an unmount waits for, as the end of a sentence.
pub(super) fn why(park: &ParkedThreads) -> &'static str {
    if park.flushes_overlay() {
        return "the kernel first writes the whole file system under the overlay to the disk";
    }
    if park.waits_for_thaw() {
        return "a file system is frozen";
    }
    if park.waits_for_rcu() {
        return "the kernel does not finish an RCU grace period";
    }
    match park.waits_for_server() {
        Some("FUSE") => "a FUSE server does not answer",
        Some("NFS") => "an NFS server does not answer",
        Some("CIFS") => "a CIFS server does not answer",
        Some(_) => "the server of a network file system does not answer",
        None => UNKNOWN,
    }
}
