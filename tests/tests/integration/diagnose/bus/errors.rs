//! What the bus itself says in its errors.

use plegtrace::correlate::{BusRow, Latency};
use plegtrace::decode::{BusKind, BusNames};
use plegtrace::diagnose::{Diagnosis, Severity, Verdict, diagnose};
use plegtrace::input::{OpenBusFact, SYSTEMD};
use plegtrace_tests::story::{S, Story, at};

use super::super::{ids, only};
use super::{call, idle_bus, late, peer};

const BUS: &str = "org.freedesktop.DBus";

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
    snapshot.bus.rows.push(refused_row(member, destination, error));
    diagnose(&snapshot)
}

fn refused_row(member: &str, destination: &str, error: &str) -> BusRow {
    BusRow {
        names: BusNames { member: member.into(), destination: destination.into(), ..BusNames::default() },
        kind: BusKind::Call,
        latency: Latency::default(),
        errors: 3,
        last_error: Some(error.into()),
        last_error_at: Some(at(2 * S)),
        unanswered: 0,
        open: 0,
    }
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

/// D6: the bus refuses calls to systemd for want of room, until systemd answers again; a call that hangs says more.
#[test]
fn d6_needs_a_call_to_systemd_that_is_refused() {
    let limits = "org.freedesktop.DBus.Error.LimitsExceeded";
    let diagnosis = refused("StartTransientUnit", SYSTEMD, limits);
    assert_eq!(ids(&diagnosis), ["D6"]);
    let finding = &diagnosis.findings[0];
    assert_eq!(finding.severity, Severity::Notice);
    assert!(finding.headline.contains("3 times"), "{}", finding.headline);
    assert_ne!(diagnosis.verdict, Verdict::Stall);
    let before = |answered: u64| ids(&refused_before("StopUnit", SYSTEMD, limits, Some(answered))).len();
    assert_eq!((before(S), before(3 * S)), (1, 0));
    let mut hangs =
        late(call("StopUnit"), &[idle_bus(), peer(1, 'S', "unix_stream_read_generic", 0, Some(8000))]);
    let row = refused_row("StartTransientUnit", SYSTEMD, limits);
    hangs.bus.rows.push(row);
    only(&hangs, "D3");
}

/// A node whose connections to somebody were refused three times.
fn unconnected(destination: &str, error: &str) -> Diagnosis {
    unconnected_after(destination, error, 3)
}

/// The same at this second.
fn unconnected_after(destination: &str, error: &str, second: u64) -> Diagnosis {
    let mut story = Story::node();
    story.relist(S, 0);
    let mut snapshot = story.snapshot(second * S);
    let row = BusRow { kind: BusKind::Refused, ..refused_row(error, destination, error) };
    snapshot.bus.rows.push(row);
    diagnose(&snapshot)
}

/// D7: connect(2) says that the queue is full, of the bus or of systemd; the same word of the bus itself would be none. A bus that
/// does not accept for long says more.
#[test]
fn d7_needs_a_full_queue() {
    let diagnosis = unconnected(BUS, "EAGAIN");
    assert_eq!(ids(&diagnosis), ["D7"]);
    let finding = &diagnosis.findings[0];
    assert_eq!(finding.severity, Severity::Notice);
    assert!(finding.headline.ends_with("the system bus failed 3 times with EAGAIN"), "{}", finding.headline);
    let private = unconnected(SYSTEMD, "EAGAIN");
    assert!(private.findings[0].headline.contains("the private socket of systemd"), "{private:?}");
    assert_eq!(ids(&refused("Hello", BUS, "EAGAIN")), [""; 0]);
    assert_eq!(ids(&unconnected(BUS, "EACCES")), [""; 0]);
    let after = |second| ids(&unconnected_after(BUS, "EAGAIN", second)).contains(&"D7");
    assert_eq!((after(62), after(63)), (true, false), "a minute ago");
    let mut waits = late(OpenBusFact { accepted: Some(false), serial: 0, ..call("") }, &[]);
    waits.bus.rows.push(BusRow { kind: BusKind::Refused, ..refused_row("EAGAIN", BUS, "EAGAIN") });
    only(&waits, "D14");
}

/// D15: nobody listens at the bus. Nodes have no private socket of systemd in every container.
#[test]
fn d15_needs_a_bus_that_is_not_there() {
    for error in ["ECONNREFUSED", "ENOENT"] {
        assert_eq!(ids(&unconnected(BUS, error)), ["D15"]);
        assert_eq!(ids(&unconnected(SYSTEMD, error)), [""; 0]);
    }
    assert_ne!(unconnected(BUS, "ENOENT").verdict, Verdict::Stall);
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
