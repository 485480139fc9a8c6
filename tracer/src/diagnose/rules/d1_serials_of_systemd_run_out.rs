//! D1: systemd has used up its serial numbers.

use crate::{
    correlate::thresholds::BUS_NS,
    diagnose::{Area, Evidence, Finding, Page, Proof, Rule, Scene, Source, bus},
    stuck::BusParty,
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "D1",
    title: "systemd (PID 1) has used up its serial numbers: it reads calls, and its own library refuses every answer",
    area: Area::Bus,
    min_age_ns: BUS_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "systemd numbers every message that it sends. Before version 242 the number may grow beyond the 32 \
            bits that D-Bus has for it; from then on its own library refuses to send anything on that connection. It \
            goes on reading, is idle, and answers nobody, for ever. A busy node gets there within months.",
        versions: "systemd before 242, also 219 of RHEL 7 without the fix; fixed by systemd PR 11818",
        symptoms: &[
            "Failed to propagate agent release message: Operation not supported",
            "Failed to introspect object: Connection timed out",
            "systemctl works over its private socket, while busctl times out",
        ],
        evidence: &[
            "a call to systemd over D-Bus without an answer for 5 s, and no other call answered since it began",
            "systemd has read everything from the bus, and is idle",
            "systemd is older than 242",
        ],
        excluded_by: &[
            "systemd is 242 or newer, or its version is not known (D3)",
            "it has answered another call since, or has not read what it was sent",
        ],
        next: &[
            "busctl status org.freedesktop.systemd1 times out while systemctl status answers: that confirms it",
            "systemctl daemon-reexec: a new connection begins at 1",
            "upgrade systemd",
        ],
        trap: "Restarting containerd or the kubelet changes nothing; a reboot only starts the count again.",
        sources: &["systemd#11804", "systemd#11809", "runc#1959", "cri-o#2584"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let of = |(stuck, stall)| {
        let bus::Serials::Finite(version) = bus::serials(stall, scene) else { return None };
        if !bus::is_silent(stall, scene) {
            return None;
        }
        let headline = format!("{}; {} for it", words::what(stuck), bus::wait(stuck, stall));
        let finding = bus::finding(&RULE, headline, stuck, stall, scene);
        let old = format!("systemd {version}: before 242 its serial numbers run out");
        let finding = finding.seen(Evidence::new(Source::Census, old)).doubted(
            "the serial numbers that systemd sends are not seen: it may be silent for another reason (D3)",
        );
        Some(finding.advise(RULE.page.next.iter().copied()))
    };
    bus::stalls(scene, BusParty::Systemd).filter_map(of).collect()
}
