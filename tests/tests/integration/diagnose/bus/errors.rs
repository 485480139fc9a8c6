//! What the bus itself says in its errors.

use plegtrace::correlate::{BusRow, Latency};
use plegtrace::decode::{BusKind, BusNames};
use plegtrace::diagnose::{Diagnosis, Severity, Verdict, diagnose};
use plegtrace::input::SYSTEMD;
use plegtrace_tests::story::{S, Story, at};

use super::super::ids;

/// A node on whose bus one method was answered with an error three times.
fn refused(member: &str, destination: &str, error: &str) -> Diagnosis {
    refused_before(member, destination, error, None)
}

/// The same, and then systemd has answered a call.
fn refused_before(member: &str, destination: &str, error: &str, answered: Option<u64>) -> Diagnosis {
    let mut story = Story::node();
    story.relist(S, 0);
    let mut snapshot = story.snapshot(3 * S);
    snapshot.bus.systemd_answered = answered.map(at);
    snapshot.bus.rows.push(BusRow {
        names: BusNames { member: member.into(), destination: destination.into(), ..BusNames::default() },
        kind: BusKind::Call,
        latency: Latency::default(),
        errors: 3,
        last_error: Some(error.into()),
        last_error_at: Some(at(2 * S)),
        unanswered: 0,
        open: 0,
    });
    diagnose(&snapshot)
}

/// D5: the bus has refused root's Hello for want of connections; runc has another way, so nothing is held up.
#[test]
fn d5_needs_the_word_of_the_bus() {
    let limits = "org.freedesktop.DBus.Error.LimitsExceeded";
    let diagnosis = refused("Hello", "", limits);
    assert_eq!(ids(&diagnosis), ["D5"]);
    let finding = &diagnosis.findings[0];
    assert_eq!(finding.severity, Severity::Notice);
    assert!(finding.headline.contains("3 times"), "{}", finding.headline);
    assert_ne!(diagnosis.verdict, Verdict::Stall);
    assert_eq!(ids(&refused("Hello", "", "org.freedesktop.DBus.Error.AccessDenied")), [""; 0]);
    assert_eq!(ids(&refused("StartTransientUnit", "", limits)), [""; 0]);
}

/// D8: it is the bus that answers for systemd, not systemd, and nobody else is meant.
#[test]
fn d8_needs_an_error_of_the_bus() {
    let start = |error: &str| refused("StartTransientUnit", SYSTEMD, error);
    for error in ["ServiceUnknown", "TimedOut", "NoReply", "Spawn.ChildExited"] {
        let diagnosis = start(&format!("org.freedesktop.DBus.Error.{error}"));
        assert_eq!(ids(&diagnosis), ["D8"], "{error}");
        let finding = &diagnosis.findings[0];
        assert_eq!(finding.severity, Severity::Notice);
        assert!(finding.headline.contains(&format!("3 times, the last one {error}")), "{}", finding.headline);
    }
    let away = |answered: u64| {
        let error = "org.freedesktop.DBus.Error.NoReply";
        refused_before("StartTransientUnit", SYSTEMD, error, Some(answered)).findings.len()
    };
    assert_eq!([away(S), away(5 * S / 2)], [1, 0], "it has answered before that, and since");
    assert_eq!(ids(&start("org.freedesktop.systemd1.NoSuchUnit")), [""; 0]);
    assert_eq!(ids(&start("org.freedesktop.DBus.Error.AccessDenied")), [""; 0]);
    let logind = refused("ListSeats", "org.freedesktop.login1", "org.freedesktop.DBus.Error.ServiceUnknown");
    assert_eq!(ids(&logind), [""; 0]);
}
