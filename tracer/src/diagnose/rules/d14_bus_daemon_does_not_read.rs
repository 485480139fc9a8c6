//! D14: the bus daemon is stopped, frozen or hangs, or does not read what is sent to it.

use crate::{
    correlate::{BusPeer, thresholds::BUS_NS},
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, bus},
    stuck::BusParty,
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "D14",
    title: "the D-Bus daemon does not read or accept: it is stopped, frozen, or hangs",
    area: Area::Bus,
    min_age_ns: BUS_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "With the systemd cgroup driver every runc asks systemd over the system bus, and waits without a \
            deadline. A bus daemon that does not run leaves connections unaccepted and calls unread in their sockets; \
            when a socket is full, the send itself blocks. Every runc that starts now hangs, and with it its shim's \
            request and whatever holds a lock meanwhile.",
        versions: "all, with the systemd cgroup driver",
        symptoms: &[
            "systemctl and busctl hang, or say: Connection timed out",
            "runc processes that do not end; pods stay ContainerCreating or Terminating",
            "Failed to activate service, Failed to connect to bus",
        ],
        evidence: &[
            "a call over D-Bus, or a connection to the bus, without an answer for 5 s",
            "its bytes unread in the socket of the bus, the connection not accepted, or no room to send it",
            "or: the bus has read it, and the daemon is stopped, frozen or in state D",
        ],
        excluded_by: &[
            "the daemon is on a CPU for half of the time or more: it is busy (D9)",
            "the daemon has read the call and runs: systemd has to answer (D3)",
        ],
        next: &[
            "`kill -CONT PID` when it is stopped; thaw its cgroup when it is frozen (`cat /proc/PID/cgroup`)",
            "in state D: `cat /proc/PID/stack` says in what it hangs",
            "`journalctl -u dbus -u dbus-broker`: limits that it has reached",
        ],
        trap: "Do not restart the bus: that cuts every service off from it, logind and systemd included; on many \
            distributions only a reboot mends that. Resuming the daemon costs nothing.",
        sources: &["dbus-daemon 1.14 of Debian 12, stopped by a signal"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let stalls = bus::stalls(scene, BusParty::Daemon).filter(|(_, stall)| stall.busy().is_none());
    stalls
        .map(|(stuck, stall)| {
            let headline = format!("{}; {} for it", words::what(stuck), bus::wait(stuck, stall));
            let finding = bus::finding(&RULE, headline, stuck, stall, scene);
            let pid = stall.pid;
            let stopped = stall.peer.as_ref().is_some_and(BusPeer::is_stopped);
            let (finding, first) = if stopped {
                (finding, format!("`kill -CONT {pid}`"))
            } else if stall.is_halted() {
                (finding, format!("cat /proc/{pid}/cgroup: thaw that cgroup (cgroup.freeze, freezer.state)"))
            } else if stall.hangs_in_kernel() {
                (finding, format!("cat /proc/{pid}/stack: in what it hangs"))
            } else {
                let why = "why it does not read is not seen: it is neither stopped nor frozen nor busy; it may be at a limit";
                let journal = "journalctl -u dbus -u dbus-broker: limits that it has reached".to_owned();
                (bus::at_most_medium(finding, why), journal)
            };
            finding.advise([first]).advise(bus::let_go(stuck, stall))
        })
        .collect()
}
