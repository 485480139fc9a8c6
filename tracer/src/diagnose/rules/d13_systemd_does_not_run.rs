//! D13: systemd is in a frozen cgroup, or stopped by a debugger.

use crate::{
    correlate::{BusPeer, thresholds::BUS_NS},
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, bus},
    stuck::BusParty,
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "D13",
    title: "systemd (PID 1) does not run: its cgroup is frozen, or a debugger has stopped it",
    area: Area::Bus,
    min_age_ns: BUS_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "Signals do not stop process 1 of a machine, but the freezer does (init.scope, or a cgroup above it), \
            and so does a debugger. The bus takes calls for it as before, so every runc with the systemd cgroup driver \
            waits for an answer that cannot come.",
        versions: "all",
        symptoms: &[
            "systemctl hangs",
            "no service starts or stops, zombies pile up",
            "runc processes that do not end",
        ],
        evidence: &[
            "a call to systemd over D-Bus without an answer for 5 s",
            "systemd in state T, or waiting in the freezer of the kernel, at each look for 2 s or more",
        ],
        excluded_by: &["systemd was seen to run or to wait elsewhere in between"],
        next: &[
            "`cat /proc/1/cgroup`, then thaw that cgroup: `echo 0 > /sys/fs/cgroup/init.scope/cgroup.freeze` \
             (v2), or `echo THAWED > freezer.state` (v1)",
            "when a debugger holds it (TracerPid in /proc/1/status): detach it",
            "the calls are answered at once after that",
        ],
        trap: "Do not kill the runc processes one by one: that frees nothing, the next ones hang in the same way.",
        sources: &["reproduced with runc, dbus-daemon and systemd of four Debian releases"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let stalls = bus::stalls(scene, BusParty::Systemd).filter(|(_, stall)| stall.is_halted());
    stalls
        .map(|(stuck, stall)| {
            let headline = format!("{}; {} for it", words::what(stuck), bus::wait(stuck, stall));
            let finding = bus::finding(&RULE, headline, stuck, stall, scene);
            let pid = stall.pid;
            let frozen = stall.peer.as_ref().is_some_and(BusPeer::is_frozen);
            finding.advise([
                if frozen {
                    format!("`cat /proc/{pid}/cgroup`: thaw that cgroup (`echo 0 > /sys/fs/cgroup/init.scope/cgroup.freeze`)")
                } else {
                    format!("`grep TracerPid /proc/{pid}/status`: detach that debugger; else `kill -CONT {pid}`")
                },
                "the calls are answered at once after that".to_owned(),
            ])
        })
        .collect()
}
