//! D6: the bus takes no more calls to systemd, because systemd does not read those that it has.

use crate::{
    correlate::BusRow,
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source, bus},
    input::{Component, SYSTEMD},
    stuck::BusParty,
    words::human,
};

/// What the bus answers when the queue of the receiver is full, or the caller has too many calls without an answer (dbus: bus/bus.c,
/// bus/connection.c).
const FULL: &str = "org.freedesktop.DBus.Error.LimitsExceeded";

pub(super) static RULE: Rule = Rule {
    id: "D6",
    title: "a queue of the bus is full: systemd does not read what runc asks of it, and the bus refuses more",
    area: Area::Bus,
    min_age_ns: 0,
    proof: Proof::Scripted,
    page: Page {
        mechanism: "The bus keeps what its receiver has not read, up to a limit, and the number of calls of one client that have no \
            answer has one, too. A systemd that has not read for long gets there. From then on each new call fails at once, \
            while earlier ones hang, and the error does not mention systemd.",
        versions: "dbus-daemon; a dbus-broker drops the client that has sent too much instead",
        symptoms: &[
            "Rejected: destination has a full message queue",
            "The maximum number of pending replies per connection has been reached",
            "No buffer space available",
        ],
        evidence: &["the bus has answered a call to systemd with LimitsExceeded while plegtrace observed"],
        excluded_by: &[
            "systemd has answered a later call: it reads again",
            "a call to systemd has no answer: what systemd does meanwhile says more (D1, D2, D3, D10, D12, D13)",
        ],
        next: &[
            "look at what systemd does: `ps -o stat,wchan,pcpu 1`, and `plegtrace -d 60`, which waits for a call that hangs",
            "`systemctl status` uses its private socket: if that answers, `systemctl daemon-reexec` empties the queue",
        ],
        trap: "Do not raise the limits of the bus: that only makes the wait longer.",
        sources: &["systemd-rhel#266", "kubernetes#94913", "kubernetes#57345"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let snapshot = &scene.snapshot.bus;
    let is_refused =
        |row: &&BusRow| row.names.destination == SYSTEMD && row.last_error.as_deref() == Some(FULL);
    let refused: Vec<&BusRow> = snapshot.rows.iter().filter(is_refused).collect();
    let Some(last) = refused.iter().map(|row| row.last_error_at).max() else { return Vec::new() };
    if snapshot.systemd_answered > last || bus::stalls(scene, BusParty::Systemd).next().is_some() {
        return Vec::new();
    }
    let times = human::plural(refused.iter().map(|row| row.errors).sum(), "time");
    let words = format!("the bus has refused calls to systemd {times}, the last one with LimitsExceeded");
    let finding = Finding::new(&RULE, format!("a queue of the bus is full: {words}"))
        .seen(Evidence::new(Source::Wire, words.clone()));
    let culprit = Culprit { component: Component::Systemd, pid: None, container: None, words };
    let finding = Finding { culprit: Some(culprit), ..finding };
    // What is refused does not hang, and whether it still is, is not seen.
    let finding =
        finding.doubted("the error does not say which limit was reached: its text in runc's log does");
    vec![finding.into_notice().advise(RULE.page.next.iter().copied())]
}
