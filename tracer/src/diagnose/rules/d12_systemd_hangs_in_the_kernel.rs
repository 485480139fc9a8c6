//! D12: systemd itself hangs in the kernel.

use crate::{
    correlate::thresholds::BUS_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, bus},
    stuck::BusParty,
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "D12",
    title: "systemd (PID 1) itself hangs in the kernel",
    area: Area::Bus,
    min_age_ns: BUS_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "systemd is in a system call that does not return and cannot be interrupted: a lock of the cgroup \
            code, a mount or unmount of a filesystem whose server is gone, a device that does not answer. Nobody on \
            the node can start, stop or change a unit meanwhile.",
        versions: "any; some kernels have bugs in removing cgroups that do this",
        symptoms: &["half of the node does not answer", "ps and systemctl hang", "load average rises"],
        evidence: &[
            "a call to systemd over D-Bus without an answer for 5 s",
            "systemd in state D, in one kernel function, at each look for 2 s or more",
        ],
        excluded_by: &["systemd waits in the freezer (D13)", "systemd was seen in another state in between"],
        next: &[
            "`cat /proc/1/stack`, and keep it: that is the bug report",
            "when it hangs in a filesystem: bring its server back, or `umount -l` that mount",
            "else reboot the node, with another kernel when it comes back",
        ],
        trap: "`systemctl reboot` needs systemd: `reboot -ff`, or sysrq, does not.",
        sources: &["cockpit bots#8970", "runc#4853"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let stalls = bus::stalls(scene, BusParty::Systemd).filter(|(_, stall)| stall.hangs_in_kernel());
    stalls
        .map(|(stuck, stall)| {
            let headline = format!("{}; {} for it", words::what(stuck), bus::wait(stuck, stall));
            let finding = bus::finding(&RULE, headline, stuck, stall, scene);
            finding.advise(RULE.page.next.iter().copied())
        })
        .collect()
}
