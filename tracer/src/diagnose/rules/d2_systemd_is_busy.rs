//! D2: systemd is busy, as a rule with the mount table.

use crate::{
    correlate::thresholds::BUS_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, bus},
    stuck::BusParty,
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "D2",
    title: "systemd (PID 1) is busy, mostly reading the mount table, which each runc changes",
    area: Area::Bus,
    min_age_ns: BUS_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "systemd reads the whole mount table after every change of it. Each runc of the affected versions \
            mounts and unmounts its own program in the host's namespace, so a node with many pods and exec probes keeps \
            systemd busy with that, and runc waits for its answers without a deadline. Too many units, or a daemon-reload \
            in a loop (D10), look the same from outside.",
        versions: "runc 1.0.0-rc7 to 1.1.14; fixed in 1.1.15 and 1.2.0; systemd reads less often from 248 on",
        symptoms: &[
            "systemd at 50 to 100 % of a CPU",
            "Timeout waiting for systemd to create kubepods-...slice",
        ],
        evidence: &[
            "a call to systemd over D-Bus without an answer for 5 s",
            "systemd was on a CPU for half of the time or more since",
        ],
        excluded_by: &["systemd is idle (D3), frozen (D13), or in state D (D12)"],
        next: &[
            "see what it is busy with: timeout 5 strace -cp 1, or perf top -p 1",
            "if it reads /proc/self/mountinfo again and again: upgrade runc, use fewer exec probes, find leaked mounts (wc -l \
             /proc/1/mountinfo)",
            "if it reads unit files: systemctl list-units --all | wc -l, and the journal for reload after reload (D10)",
        ],
        trap: "Restarting the kubelet adds to the load: it starts every probe again.",
        sources: &["runc#2532", "runc#3925", "systemd#8703", "kubernetes#120103"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let stalls = bus::stalls(scene, BusParty::Systemd);
    stalls
        .filter(|(_, stall)| stall.busy().is_some() && !stall.is_halted() && !stall.hangs_in_kernel())
        .map(|(stuck, stall)| {
            let headline = format!("{}; {} for it", words::what(stuck), bus::wait(stuck, stall));
            let finding = bus::finding(&RULE, headline, stuck, stall, scene);
            let finding = finding.doubted(
                "with what it is busy is not seen: the mount table (D2), or units and reloads (D10), look the same",
            );
            finding.advise(RULE.page.next.iter().copied())
        })
        .collect()
}
