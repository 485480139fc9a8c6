//! D15: the bus daemon does not run: nobody listens where the bus is.

use crate::{
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, bus},
    input::SYSTEMD,
};

pub(super) static RULE: Rule = Rule {
    id: "D15",
    title: "the system bus is not there: nobody listens at its socket",
    area: Area::Bus,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "The bus daemon has ended, or its socket was removed. runc then goes to the private socket of systemd, if \
            that can be reached; whatever needs the bus itself fails, such as the node shutdown manager of the kubelet, and \
            what runs in a container that has only the bus.",
        versions: "all, with the systemd cgroup driver",
        symptoms: &[
            "dial unix /run/dbus/system_bus_socket: connect: connection refused (or: no such file or directory)",
            "Failed to connect to bus",
        ],
        evidence: &["connect(2) to the bus failed with ECONNREFUSED or ENOENT while plegtrace observed"],
        excluded_by: &["it failed with EAGAIN: the bus listens, and its queue is full (D7)"],
        next: &[
            "`systemctl status dbus.socket dbus dbus-broker`: systemctl does not need the bus",
            "`journalctl -u dbus -u dbus-broker`: why it ended",
            "`systemctl start dbus.socket`",
        ],
        trap: "A bus that was restarted does not have the services that were on it before: systemd connects again by itself, \
            some services have to be restarted.",
        sources: &["unix(7)", "coreos/go-systemd dbus/dbus.go: NewWithContext"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let absent = |error: &str| matches!(error, "ECONNREFUSED" | "ENOENT");
    // Without its private socket systemd is reached over the bus.
    let rows = bus::refusals(scene, absent).filter(|row| row.names.destination != SYSTEMD);
    let finding = |row| {
        bus::refused(&RULE, row, "nobody listens at the system bus")
            .doubted("whether it is back is not seen")
            .advise(RULE.page.next.iter().copied())
    };
    rows.map(finding).collect()
}
