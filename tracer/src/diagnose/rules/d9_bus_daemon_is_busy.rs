//! D9: the bus daemon is the bottleneck.

use crate::{
    correlate::thresholds::BUS_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, bus},
    stuck::BusParty,
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "D9",
    title: "the D-Bus daemon is the bottleneck: every runc hears of every job",
    area: Area::Bus,
    min_age_ns: BUS_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "The daemon is one thread. Every runc that waits for a job of systemd subscribes to JobRemoved, so \
            the end of each job is sent to every runc that waits. When many containers start at once, the daemon \
            spends all its time on that, and calls wait unread.",
        versions: "all, with the systemd cgroup driver",
        symptoms: &[
            "busctl takes 10 s and more while many containers start",
            "dbus-daemon at 100 % of a CPU",
        ],
        evidence: &[
            "a call over D-Bus without an answer for 5 s",
            "that the daemon has not read, or that systemd, which is idle, has not been given",
            "the daemon was on a CPU for half of the time or more since",
        ],
        excluded_by: &[
            "the daemon is stopped, frozen or idle (D14)",
            "systemd has not read what it was given (D2)",
        ],
        next: &[
            "start fewer containers at a time (registry and scheduler limits, rolling restarts)",
            "look for who calls most: `busctl monitor`, or `dbus-monitor --system`, for a few seconds",
            "use the cgroupfs driver, or dbus-broker in place of dbus-daemon",
        ],
        trap: "Do not leave a monitor of the bus running: it is one more receiver of every message.",
        sources: &["runc#4853", "systemd#1961"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let stalls = bus::stalls(scene, BusParty::Daemon).filter(|(_, stall)| stall.busy().is_some());
    stalls
        .map(|(stuck, stall)| {
            let headline = format!("{}; {} for it", words::what(stuck), bus::wait(stuck, stall));
            let finding = bus::finding(&RULE, headline, stuck, stall, scene);
            finding.advise(RULE.page.next.iter().copied())
        })
        .collect()
}
