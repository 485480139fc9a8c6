//! X12: the audit queue is full, and each audited system call waits.

use crate::{
    correlate::thresholds::HOOK_NS,
    diagnose::{
        Area, Page, Proof, Rule,
        kernel_wait::{Wait, findings},
    },
    input::ParkedThreads,
};

pub(super) static RULE: Rule = Rule {
    id: "X12",
    title: "the audit queue is full, and each audited system call waits",
    area: Area::Kernel,
    min_age_ns: HOOK_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "When the audit daemon does not keep up, the queue of the kernel fills, and each system call for which there is an audit rule waits for room in it, for a minute at most, again and again. With rules on execve or mount that is every runc.",
        versions: "all, with the default of backlog_wait_time, 60 s",
        symptoms: &["audit: backlog limit exceeded", "everything pauses in equal slices"],
        evidence: &["something of the node does not move, and waits in audit_log_start"],
        excluded_by: &["nothing that waits there is older than its threshold"],
        next: &[
            "`auditctl -s`: is the backlog at its limit?",
            "`auditctl --backlog_wait_time 0` lets them go on: events are dropped instead",
            "then see why auditd does not keep up: its disk, or its rules",
        ],
        trap: "The programs that pause have nothing to do with each other: look at what they wait for, not at them.",
        sources: &["eks-custom-amis#50"],
    },
    examine: |scene| findings(&RULE, &WAIT, scene),
};

const WAIT: Wait = Wait {
    is: ParkedThreads::waits_for_audit,
    why: "the audit queue is full",
    culprit: "the audit daemon, which does not keep up",
};
