//! X4: a file system is frozen.

use crate::{
    correlate::thresholds::HOOK_NS,
    diagnose::{
        Area, Page, Proof, Rule,
        kernel_wait::{Wait, findings},
    },
    input::ParkedThreads,
};

pub(super) static RULE: Rule = Rule {
    id: "X4",
    title: "a file system is frozen: whatever writes to it waits, and the disk is idle",
    area: Area::Kernel,
    min_age_ns: HOOK_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "A file system that is frozen (fsfreeze, or a snapshot by the agent of a hypervisor, of a backup or of a \
            storage driver) makes everything that writes to it wait until it is thawed, without a deadline and without using the \
            disk. An agent that dies in between leaves it frozen. A deadlock in the code of the file system looks alike, and no \
            thaw ends it.",
        versions: "all; a deadlock of ext4 came with Linux 5.15.72 and went with 5.15.87",
        symptoms: &[
            "task blocked for more than 120 seconds, in percpu_rwsem_wait",
            "pods stay ContainerCreating or Terminating, while the disk has nothing to do (iostat)",
        ],
        evidence: &[
            "two looks find a thread of the node, of the kubelet and of what it has started as well, in one and the same system call, \
             waiting in the kernel to be allowed to write",
        ],
        excluded_by: &["the thread waits for the disk itself, or for the journal (R2)"],
        next: &[
            "`fsfreeze --unfreeze MOUNTPOINT` thaws it (`findmnt -T PATH` names the mount point)",
            "then find who froze it: the agent of the hypervisor (`journalctl -u qemu-guest-agent`), a backup, a CSI snapshot",
            "if it was not frozen: take the stacks (echo w > /proc/sysrq-trigger), reboot, and change the kernel",
        ],
        trap: "Do not kill what waits: the signal is not seen before the thaw.",
        sources: &["fs/super.c (freeze_super)", "Flatcar#847", "k8s#45419"],
    },
    examine: |scene| findings(&RULE, &WAIT, scene),
};

const WAIT: Wait = Wait {
    is: ParkedThreads::waits_for_thaw,
    why: "the file system is frozen",
    culprit: "the file system, which somebody has frozen, or which is in a deadlock",
};
