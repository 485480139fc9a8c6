//! X3: the server of a network file system does not answer.

use crate::{
    correlate::thresholds::HOOK_NS,
    diagnose::{
        Area, Page, Proof, Rule,
        kernel_wait::{Wait, findings},
    },
    input::ParkedThreads,
};

pub(super) static RULE: Rule = Rule {
    id: "X3",
    title: "the server of a network file system does not answer",
    area: Area::Kernel,
    min_age_ns: HOOK_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "Whoever uses a file on a hard mount of NFS, CIFS, Ceph or 9p waits in the kernel until the server answers, without a deadline. When it is gone, runc, hooks, network plugins and the runtime hang in whatever call they made; a signal does not end it, or only SIGKILL.",
        versions: "all; soft mounts fail after their time-out",
        symptoms: &[
            "server … not responding, still trying",
            "tasks in state D",
            "ContainerCreating, or a pod stays Terminating",
        ],
        evidence: &[
            "something of the node does not move, or a shim or a program that the kubelet has started has been in one call for 5 s, and waits in a function of NFS, CIFS, Ceph or 9p",
        ],
        excluded_by: &[
            "a CreateContainer in os.Stat of a host path (R12), or the kubelet itself (K5)",
            "the file system is FUSE: then it is a program of this node (X6)",
        ],
        next: &[
            "restore the server, or the way to it",
            "unmount by force and lazily: `umount -f -l PATH`",
            "mount such volumes soft, so that calls fail instead of waiting",
        ],
        trap: "Do not restart the runtime or the kubelet: that leaves the mount as it is, and the next one that touches \
            it hangs again.",
        sources: &["k8s#94829", "containerd#1722"],
    },
    examine: |scene| findings(&RULE, &WAIT, scene),
};

/// A server of FUSE is a program of this node.
fn is_far(park: &ParkedThreads) -> bool {
    park.waits_for_server().is_some_and(|kind| kind != "FUSE")
}

const WAIT: Wait = Wait {
    is: is_far,
    why: "the server of its network file system does not answer",
    culprit: "the server of the network file system, which does not answer",
};
