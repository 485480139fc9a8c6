//! D5: the bus refuses new connections of root.

use crate::{
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source},
    input::Component,
    words::human,
};

/// What the bus answers to `Hello` when a user, or all users, have no connection left.
const REFUSED: &str = "org.freedesktop.DBus.Error.LimitsExceeded";

pub(super) static RULE: Rule = Rule {
    id: "D5",
    title: "root has no connection to the system bus left: 256, of which each runc takes two",
    area: Area::Bus,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "dbus-daemon allows 256 connections per user, and each runc with the systemd cgroup driver takes two. \
            Some 128 runc that hang, or a program that leaks connections, use them up; then the bus answers Hello with \
            an error. runc falls back to the private socket of systemd, other programs fail.",
        versions: "dbus-daemon (dbus-broker has no such limit); a leak in runc was fixed in 1.0.0-rc94",
        symptoms: &[
            "The maximum number of active connections for UID 0 has been reached (max_connections_per_user=256)",
        ],
        evidence: &["the bus has answered Hello with the error LimitsExceeded, while plegtrace observed"],
        excluded_by: &["Hello was answered otherwise"],
        next: &[
            "`busctl list`: who holds the connections",
            "runc processes that hang: find out for what they wait (D3, U4), then kill them",
            "raise max_connections_per_user in /etc/dbus-1/system-local.conf, and reload the bus",
        ],
        trap: "Do not restart the bus: that cuts every service off from it, logind and systemd included.",
        sources: &["cri-o#3808", "podman PR 11313", "fleet#1706"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let bus = &scene.snapshot.bus;
    let refused = |row: &&crate::correlate::BusRow| {
        row.names.member == "Hello" && row.last_error.as_deref() == Some(REFUSED)
    };
    let Some(row) = bus.rows.iter().find(refused) else { return Vec::new() };
    let times = human::plural(row.errors, "time");
    let words = format!("the bus has answered Hello with an error {times}, the last one LimitsExceeded");
    let finding = Finding::new(&RULE, format!("new connections to the system bus are refused: {words}"))
        .seen(Evidence::new(Source::Wire, words.clone()));
    let culprit = Culprit { component: Component::BusDaemon, pid: None, container: None, words };
    let finding = Finding { culprit: Some(culprit), ..finding };
    // Whether it still is so, and what it holds up, is not seen: runc has another way.
    vec![finding.into_notice().advise(RULE.page.next.iter().copied())]
}
