//! D8: systemd is not on the bus any more.

use crate::{
    correlate::BusRow,
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source},
    input::{Component, SYSTEMD},
    words::human,
};

/// What the bus itself answers for a name that nobody has, that nobody could be started for, or whose owner has left it
/// (D-Bus specification, "Standard error names"; dbus: bus/activation.c, bus/connection.c).
const NOBODY: [&str; 5] = ["ServiceUnknown", "NameHasNoOwner", "TimedOut", "NoReply", "Disconnected"];
/// Attempts to start somebody have a family of errors.
const SPAWN: &str = "Spawn.";

pub(super) static RULE: Rule = Rule {
    id: "D8",
    title: "systemd (PID 1) is no longer on the bus: what runc asks of it fails",
    area: Area::Bus,
    min_age_ns: 0,
    proof: Proof::Scripted,
    page: Page {
        mechanism: "A message bus drops a client that does not keep up, and a systemd that has crashed only reaps processes and \
            has left the bus. Nobody has the name org.freedesktop.systemd1 then. The bus tries to start somebody for it, for \
            25 s, and answers with an error; without a file for that, at once. Each runc with the systemd cgroup driver fails.",
        versions: "dbus-broker drops clients in storms of signals; any systemd that has aborted",
        symptoms: &[
            "Failed to activate service 'org.freedesktop.systemd1': timed out (service_start_timeout=25000ms)",
            "The name org.freedesktop.systemd1 was not provided by any .service files",
            "systemd[1]: Caught <ABRT>, freezing execution",
        ],
        evidence: &[
            "a call to systemd was answered by the bus, with an error that says that nobody has its name, while plegtrace observed",
        ],
        excluded_by: &["systemd has answered a later call: it was away for a moment, as with daemon-reexec"],
        next: &[
            "busctl status org.freedesktop.systemd1: has PID 1 that name again?",
            "systemctl status, which uses its private socket: if that answers, systemctl daemon-reexec",
            "journalctl _PID=1 -b: 'freezing execution' means that it has crashed, and only a reboot helps",
        ],
        trap: "Restarting the bus cuts every other service off from it, and does not bring systemd back.",
        sources: &["cri-o#3808", "systemd#18080"],
    },
    examine,
};

/// The last word of the error with which the bus answered for systemd.
fn refusal(row: &BusRow) -> Option<&str> {
    let error = row.last_error.as_deref()?.strip_prefix("org.freedesktop.DBus.Error.")?;
    let of_bus = NOBODY.contains(&error) || error.starts_with(SPAWN);
    (of_bus && row.names.destination == SYSTEMD).then_some(error)
}

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let bus = &scene.snapshot.bus;
    let refused = bus.rows.iter().filter_map(|row| Some((row, refusal(row)?)));
    let refused: Vec<(&BusRow, &str)> = refused.collect();
    let Some((last, error)) = refused.iter().max_by_key(|(row, _)| row.last_error_at) else {
        return Vec::new();
    };
    if bus.systemd_answered > last.last_error_at {
        return Vec::new();
    }
    let times = human::plural(refused.iter().map(|(row, _)| row.errors).sum(), "time");
    let words = format!("the bus has answered calls to systemd with an error {times}, the last one {error}");
    let finding = Finding::new(&RULE, format!("systemd is not on the bus: {words}"))
        .seen(Evidence::new(Source::Wire, words.clone()));
    let culprit = Culprit { component: Component::Systemd, pid: None, container: None, words };
    let finding = Finding { culprit: Some(culprit), ..finding };
    // It may be back, and nobody has asked it for anything since.
    vec![finding.into_notice().advise(RULE.page.next.iter().copied())]
}
