//! D8: systemd is not on the bus any more.

use crate::{
    correlate::BusRow,
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source, bus},
    input::{Component, SYSTEMD},
    stuck::{BusParty, BusStall, Stuck},
    words::{self, human},
};

/// What the bus itself answers for a name that nobody has, that nobody could be started for, or whose owner has left it
/// (D-Bus specification, "Standard error names"; dbus: bus/activation.c, bus/connection.c).
const NOBODY: [&str; 5] = ["ServiceUnknown", "NameHasNoOwner", "TimedOut", "NoReply", "Disconnected"];
/// Attempts to start somebody have a family of errors.
const SPAWN: &str = "Spawn.";

pub(super) static RULE: Rule = Rule {
    id: "D8",
    title: "systemd (PID 1) is no longer on the bus: what runc asks of it hangs, or fails",
    area: Area::Bus,
    min_age_ns: 0,
    proof: Proof::Scripted,
    page: Page {
        mechanism: "A message bus drops a client that does not keep up, and a systemd that has crashed only reaps processes and \
            has left the bus. Nobody has the name org.freedesktop.systemd1 then. The bus tries to start somebody for it, for \
            25 s, and answers with an error; without a file for that, at once. Each runc with the systemd cgroup driver fails. \
            dbus-broker asks systemd to start services, so with it each runc hangs: the broker waits for systemd to start systemd.",
        versions: "dbus-broker drops clients in storms of signals; any systemd that has aborted",
        symptoms: &[
            "Failed to activate service 'org.freedesktop.systemd1': timed out (service_start_timeout=25000ms)",
            "The name org.freedesktop.systemd1 was not provided by any .service files",
            "systemd[1]: Caught <ABRT>, freezing execution",
        ],
        evidence: &[
            "a call to systemd was answered by the bus, with an error that says that nobody has its name, while plegtrace observed: a notice",
            "or the bus has read a call to systemd, nobody has answered it for 5 s, and process 1 has no connection to the bus: a stall",
        ],
        excluded_by: &["systemd has answered a later call: it was away for a moment, as with daemon-reexec"],
        next: &[
            "`busctl status org.freedesktop.systemd1`: has PID 1 that name again?",
            "`systemctl status`, which uses its private socket: if that answers, `systemctl daemon-reexec`",
            "`journalctl _PID=1 -b`: 'freezing execution' means that it has crashed, and only a reboot helps",
        ],
        trap: "Do not restart the bus: that cuts every other service off from it, and does not bring systemd back.",
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
    let absent = bus::stalls(scene, BusParty::Systemd).filter(|(_, stall)| stall.is_absent());
    let found: Vec<Finding> = absent.map(|(stuck, stall)| hangs(stuck, stall, scene)).collect();
    if found.is_empty() { fails(scene).into_iter().collect() } else { found }
}

/// Whoever asks waits.
fn hangs(stuck: &Stuck, stall: &BusStall, scene: &Scene<'_>) -> Finding {
    let headline = format!("{}; {} for it", words::what(stuck), bus::wait(stuck, stall));
    let finding = bus::finding(&RULE, headline, stuck, stall, scene);
    let text = "process 1 has no connection to the bus".to_owned();
    let finding = finding.seen(Evidence::new(Source::Census, text));
    finding.advise(RULE.page.next.iter().copied()).advise(bus::let_go(stuck, stall))
}

/// Whoever asks is told so.
fn fails(scene: &Scene<'_>) -> Option<Finding> {
    let bus = &scene.snapshot.bus;
    let refused = bus.rows.iter().filter_map(|row| Some((row, refusal(row)?)));
    let refused: Vec<(&BusRow, &str)> = refused.collect();
    let (last, error) = refused.iter().max_by_key(|(row, _)| row.last_error_at)?;
    if bus.systemd_answered > last.last_error_at {
        return None;
    }
    let times = human::plural(refused.iter().map(|(row, _)| row.errors).sum(), "time");
    let words = format!("the bus has answered calls to systemd with an error {times}, the last one {error}");
    let finding = Finding::new(&RULE, format!("systemd is not on the bus: {words}"))
        .seen(Evidence::new(Source::Wire, words.clone()));
    let culprit = Culprit { component: Component::Systemd, pid: None, container: None, words };
    let finding = Finding { culprit: Some(culprit), ..finding };
    // It may be back, and nobody has asked it for anything since.
    Some(finding.into_notice().advise(RULE.page.next.iter().copied()))
}
