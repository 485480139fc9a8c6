//! D10: systemd is busy with its unit files: a reload, or very many of them.

use crate::{
    correlate::{BusyWith, thresholds::BUS_NS},
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, bus},
};

pub(super) static RULE: Rule = Rule {
    id: "D10",
    title: "too many units, or one reload after the other, keep systemd (PID 1) busy",
    area: Area::Bus,
    min_age_ns: BUS_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "daemon-reload has systemd forget all its units and read every unit file again. It does nothing else \
            meanwhile: no call is answered, also none of runc, which waits without a deadline. With some hundred units \
            that takes a moment; with many thousands (leaked mounts and sessions are units, too) half a minute. A tool \
            that reloads again and again leaves no time in between.",
        versions: "all",
        symptoms: &[
            "systemd at 100 % of a CPU; systemctl hangs, and then works for a moment",
            "\"Reloading.\" again and again in the journal of PID 1",
            "Failed to reload daemon: No buffer space available",
        ],
        evidence: &[
            "a call to systemd over D-Bus without an answer for 5 s",
            "systemd was on a CPU for half of the time or more since",
            "its descriptors, looked at each second: at half of these readings or more a unit file, or the state that it keeps during a \
             reload, was open",
        ],
        excluded_by: &[
            "no unit file is open, and the mount table changes all the time (D2)",
            "systemd is idle (D3), frozen (D13), or in state D (D12)",
        ],
        next: &[
            "see who reloads, and how often: `journalctl -b _PID=1 -g Reload | tail`; from systemd 250 on it names the client",
            "stop what reloads in a loop: configuration management, package hooks, operators that write unit files",
            "count the units: `systemctl list-units --all | wc -l`; remove what has left them behind (mounts, sessions, slices)",
        ],
        trap: "Do not run `systemctl daemon-reload` or daemon-reexec: they do the same work once more.",
        sources: &["kubernetes#57345", "systemd#3241", "systemd#1961", "kops#5916"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let with_units = bus::busy_systemd(scene).filter(|(.., with)| *with == Some(BusyWith::Units));
    with_units
        .map(|(stuck, stall, _)| {
            let finding =
                bus::busy_finding(&RULE, "; systemd is reading its unit files", stuck, stall, scene);
            finding.advise(RULE.page.next.iter().copied())
        })
        .collect()
}
