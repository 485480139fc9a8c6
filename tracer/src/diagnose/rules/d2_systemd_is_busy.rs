//! D2: systemd is busy, as a rule with the mount table.

use std::iter;

use crate::{
    correlate::{BusyWith, thresholds::BUS_NS},
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, bus},
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
            systemd busy with that, and runc waits for its answers without a deadline.",
        versions: "runc 1.0.0-rc7 to 1.1.14; fixed in 1.1.15 and 1.2.0; systemd reads less often from 248 on",
        symptoms: &[
            "systemd at 50 to 100 % of a CPU",
            "Timeout waiting for systemd to create kubepods-...slice",
        ],
        evidence: &[
            "a call to systemd over D-Bus without an answer for 5 s",
            "systemd was on a CPU for half of the time or more since",
            "the mount table, looked at 40 times in 60 ms of each second: at half of these readings or more it had changed meanwhile; else what \
             systemd does is a doubt",
        ],
        excluded_by: &[
            "systemd reads its units (D10)",
            "systemd is idle (D3), frozen (D13), or in state D (D12)",
        ],
        next: &[
            "upgrade runc to 1.1.15 or 1.2, and use fewer exec probes",
            "find leaked mounts: `wc -l /proc/1/mountinfo`; a node with 100 pods has some hundred",
        ],
        trap: "Do not restart the kubelet: that adds to the load, it starts every probe again.",
        sources: &["runc#2532", "runc#3925", "systemd#8703", "kubernetes#120103"],
    },
    examine,
};

/// What to do where that was not seen.
const SEE: &str = "see what it is busy with: timeout 5 strace -cp 1, or perf top -p 1";

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let others = bus::busy_systemd(scene).filter(|(.., with)| *with != Some(BusyWith::Units));
    others
        .map(|(stuck, stall, with)| {
            let next = RULE.page.next.iter().copied();
            if with == Some(BusyWith::MountTable) {
                let with = "; the mount table changes all the time";
                return bus::busy_finding(&RULE, with, stuck, stall, scene).advise(next);
            }
            let finding = bus::busy_finding(&RULE, "", stuck, stall, scene);
            let finding = finding.doubted("with what it is busy was not seen");
            finding.advise(iter::once(SEE).chain(next))
        })
        .collect()
}
