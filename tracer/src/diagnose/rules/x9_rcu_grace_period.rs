//! X9: the kernel does not finish an RCU grace period.

use crate::{
    correlate::thresholds::HOOK_NS,
    diagnose::{
        Area, Page, Proof, Rule,
        kernel_wait::{Wait, findings},
    },
    input::ParkedThreads,
};

pub(super) static RULE: Rule = Rule {
    id: "X9",
    title: "the kernel does not finish an RCU grace period",
    area: Area::Kernel,
    min_age_ns: HOOK_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "Many changes in the kernel (mounts, cgroups, network devices, probes) wait until each CPU has once left the kernel or slept (a grace period), which takes milliseconds. One CPU that stays in the kernel, or a virtual CPU that is not run by its host, holds them all up.",
        versions: "all kernels can; a bug of RHEL 8.1",
        symptoms: &[
            "rcu: INFO: rcu_sched detected stalls on CPUs",
            "a load of thousands",
            "runc init in state D",
        ],
        evidence: &["something of the node does not move, and waits in synchronize_rcu or the like"],
        excluded_by: &[
            "one thing waits there, for less than its threshold: grace periods take longer on many CPUs",
        ],
        next: &[
            "`dmesg | grep rcu`: which CPU is waited for",
            "find what keeps that CPU in the kernel (`perf top -C N`, /proc/PID/stack), and end it",
            "in a virtual machine: ask whether its host had no processor for it (steal time)",
        ],
        trap: "It looks like many broken programs at once: all of them wait for the same CPU.",
        sources: &["runc#3502", "kernel Documentation/RCU/stallwarn.rst"],
    },
    examine: |scene| findings(&RULE, &WAIT, scene),
};

const WAIT: Wait = Wait {
    is: ParkedThreads::waits_for_rcu,
    why: "the kernel does not finish an RCU grace period",
    culprit: "the kernel: one CPU keeps an RCU grace period from ending",
};
