//! What rules about D-Bus have in common: the calls that nobody answers, as a finding, and what is known of systemd.

use super::{Confidence, Culprit, Evidence, Finding, Rule, Scene, Source};
use crate::{
    correlate::{BusPeer, BusRow, BusWait, BusyWith, SystemdSerials},
    decode::BusKind,
    input::{Command, Component, SYSTEMD},
    stuck::{BusParty, BusStall, Stuck, StuckKind, Waiter},
    words::{self, human},
};

/// The first systemd whose serial numbers do not run out (systemd PR 11818).
const SERIALS_FIXED: u32 = 242;

/// Connections that were refused before that say nothing of now.
const RECENT_NS: u64 = 60_000_000_000;

/// What systemd sends between the last answer that is seen and the end is less: signals to everybody.
const NEAR_END: u32 = 1 << 20;

/// Who has come so near to the end and then says nothing has run out, whatever its version. Newer ones begin again in the middle, and
/// are rarely this near.
const AT_END: u32 = 1 << 12;

/// Calls that this party does not answer.
pub(super) fn stalls<'a>(
    scene: &Scene<'a>,
    party: BusParty,
) -> impl Iterator<Item = (&'a Stuck, &'a BusStall)> {
    let of = |stuck: &'a Stuck| match &stuck.what {
        StuckKind::Bus(stall) => Some((stuck, stall.as_ref())),
        _ => None,
    };
    scene.stuck().filter_map(of).filter(move |(_, stall)| stall.party == party)
}

/// A finding about such calls: who is waited for is the culprit, as far as it is known.
pub(super) fn finding(
    rule: &'static Rule,
    headline: String,
    stuck: &Stuck,
    stall: &BusStall,
    scene: &Scene<'_>,
) -> Finding {
    let finding = Finding::of_stuck(rule, headline, stall.component(), stuck, scene);
    with_facts(finding, stall)
}

/// What is known of a stall, for any finding that is about it.
pub(super) fn with_facts(mut finding: Finding, stall: &BusStall) -> Finding {
    finding.behind = Some(stall.call.fact.asker);
    if let Some(culprit) = finding.culprit.as_mut() {
        culprit.pid = (stall.pid != 0).then_some(stall.pid);
    }
    finding = finding.seen(Evidence::new(Source::Wire, call(stall)));
    for peer in stall.peer.iter().chain(&stall.daemon) {
        finding = finding.seen(Evidence::new(Source::Scheduler, words::bus_peer(peer)));
    }
    if stall.pid == 0 && !stall.is_absent() {
        let name = if stall.party == BusParty::Daemon { "the bus" } else { &stall.call.fact.destination };
        finding = finding.doubted(format!("which process is {} was not found", words::cut(name, 60)));
    }
    if stall.call.waits_for() == BusWait::Unknown {
        finding = finding
            .doubted("the queues of the connection could not be read: how far the call came is not known");
    }
    finding
}

/// Calls that systemd does not answer because it is busy, and with what.
pub(super) fn busy_systemd<'a>(
    scene: &Scene<'a>,
) -> impl Iterator<Item = (&'a Stuck, &'a BusStall, Option<BusyWith>)> {
    stalls(scene, BusParty::Systemd)
        .filter(|(_, stall)| stall.busy().is_some() && !stall.is_halted() && !stall.hangs_in_kernel())
        .map(|(stuck, stall)| (stuck, stall, stall.peer.as_ref().and_then(BusPeer::busy_with)))
}

/// A finding about such a systemd; `with` says with what, as the next clause.
pub(super) fn busy_finding(
    rule: &'static Rule,
    with: &str,
    stuck: &Stuck,
    stall: &BusStall,
    scene: &Scene<'_>,
) -> Finding {
    let (what, wait) = (words::what(stuck), wait(stuck, stall));
    let finding = finding(rule, format!("{what}{with}; {wait} for it"), stuck, stall, scene);
    let seen = stall.peer.as_ref().and_then(words::systemd_work);
    seen.into_iter().fold(finding, |finding, seen| finding.seen(Evidence::new(Source::Census, seen)))
}

/// Connections that the kernel has refused in the last minute, with one of these errors: nobody tells when they are taken again.
pub(super) fn refusals<'a>(
    scene: &Scene<'a>,
    is_meant: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = &'a BusRow> {
    let now = scene.snapshot.now;
    let is_recent = move |row: &&BusRow| row.last_error_at.is_some_and(|at| now.since(at) <= RECENT_NS);
    let rows = scene.snapshot.bus.rows.iter().filter(|row| row.kind == BusKind::Refused).filter(is_recent);
    rows.filter(move |row| row.last_error.as_deref().is_some_and(&is_meant))
}

/// A finding about such connections: a notice, for who is refused does not hang.
pub(super) fn refused(rule: &'static Rule, row: &BusRow, what: &str) -> Finding {
    let private = row.names.destination == SYSTEMD;
    let to = if private { "the private socket of systemd" } else { "the system bus" };
    let times = human::plural(row.errors, "time");
    let error = row.last_error.as_deref().unwrap_or_default();
    let words = format!("connecting to {to} failed {times} with {error}");
    let component = if private { Component::Systemd } else { Component::BusDaemon };
    let finding =
        Finding::new(rule, format!("{what}: {words}")).seen(Evidence::new(Source::Wire, words.clone()));
    let culprit = Culprit { component, pid: None, container: None, words };
    Finding { culprit: Some(culprit), ..finding }.into_notice()
}

/// `Manager/SetUnitProperties of runc 4711, sent 31.0 s ago, has no answer; nor have 3 further calls`.
fn call(stall: &BusStall) -> String {
    let fact = &stall.call.fact;
    let method = words::bus_method(&words::bus_names(fact), stall.call.kind());
    let (caller, age) = (words::bus_caller(fact), human::duration(stall.call.age_ns));
    let method = words::cut(&method, 60);
    let mut text = if fact.before {
        let what = match stall.call.kind() {
            BusKind::Connection => "its connection to the bus".to_owned(),
            BusKind::Job => format!("the {method}"),
            _ if fact.member.is_empty() => "an answer over D-Bus".to_owned(),
            _ => method,
        };
        format!("{caller} has a goroutine that has waited for {what} for {age} at least")
    } else if fact.job {
        format!(
            "{method} of {caller}, number {}, is not done {age} after systemd answered with it",
            fact.serial
        )
    } else {
        format!("{method} of {caller}, begun {age} ago, has no answer")
    };
    match stall.calls.saturating_sub(1) {
        0 => {}
        1 if fact.job => text.push_str(", nor is one further job"),
        more if fact.job => text.push_str(&format!(", nor are {} further jobs", human::count(more.into()))),
        1 => text.push_str(", nor has one further call"),
        more => text.push_str(&format!(", nor have {} further calls", human::count(more.into()))),
    }
    text
}

/// Who is waited for, for headlines: `systemd (pid 1)`.
pub(super) fn name(stall: &BusStall) -> String {
    let comm = stall.peer.as_ref().map(|peer| words::cut(&peer.fact.comm, 16));
    let name = match stall.component() {
        Component::BusDaemon => comm.filter(|comm| !comm.is_empty()).unwrap_or("the bus daemon".to_owned()),
        component => component.name().to_owned(),
    };
    if stall.pid == 0 { name } else { format!("{name} (pid {})", stall.pid) }
}

/// The first runc that waits, of those with this command: `runc update of c1 (pid 4711)`, and its process.
pub(super) fn caller(stuck: &Stuck, wanted: Option<&str>) -> Option<(String, u32)> {
    stuck.waiters.iter().find_map(|waiter| match waiter {
        Waiter::Process { command: Some(command @ Command::Runc { sub, .. }), comm, pid, .. }
            if sub != "init" && wanted.is_none_or(|wanted| sub == wanted) =>
        {
            Some((format!("{} (pid {pid})", words::command_words(command, comm)), *pid))
        }
        _ => None,
    })
}

/// Who waits, for headlines: `runc update (pid 4711) waits`, or all of them.
pub(super) fn wait(stuck: &Stuck, stall: &BusStall) -> String {
    let caller = caller(stuck, None).map(|(words, _)| words);
    let caller = caller.unwrap_or_else(|| words::bus_caller(&stall.call.fact));
    match stall.calls.saturating_sub(1) {
        0 => format!("{caller} waits"),
        1 => format!("{caller} and one more call wait"),
        more => format!("{caller} and {} more calls wait", human::count(more.into())),
    }
}

/// How to get the node going before who is waited for works again. Only a runc may be killed: the kubelet and the runtime call
/// systemd too.
pub(super) fn let_go(stuck: &Stuck, stall: &BusStall) -> Option<String> {
    let fact = &stall.call.fact;
    let by_name = matches!(fact.comm.as_str(), "runc" | "crun").then_some(fact.asker);
    let pid = caller(stuck, None).map(|(_, pid)| pid).or(by_name)?;
    Some(format!(
        "`kill -9 {pid}`: the request behind it fails, and the kubelet tries again; calls of other runc stay \
         stuck until the cause is gone"
    ))
}

/// What is known of the serial numbers of systemd, which run out before version 242.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serials {
    /// They can have run out: its version; `None`: that is not known, and the last one that was seen is one of the very last.
    Finite(Option<u32>),
    /// They can run out, and have not: its version, and the last one that was seen.
    Left(u32, u32),
    /// They cannot.
    Endless(u32),
    /// The version is not known.
    Unknown,
}

/// Those of whoever is waited for. The version is known of process 1 of this node only.
pub(super) fn serials(stall: &BusStall, scene: &Scene<'_>) -> Serials {
    let known = if stall.pid == 1 { serials_of_node(scene) } else { Serials::Unknown };
    let at_end = |seen: &SystemdSerials| seen.left() <= AT_END;
    match known {
        Serials::Unknown if scene.snapshot.bus.systemd_serials.as_ref().is_some_and(at_end) => {
            Serials::Finite(None)
        }
        known => known,
    }
}

/// Those of process 1 of this node.
pub(super) fn serials_of_node(scene: &Scene<'_>) -> Serials {
    let versions = &scene.snapshot.census.versions;
    let version = versions.iter().find(|version| version.program == "systemd");
    let number = version.and_then(|it| it.version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    let seen = scene.snapshot.bus.systemd_serials.filter(|seen| seen.left() > NEAR_END);
    match (number, seen) {
        (Some(version), Some(seen)) if version < SERIALS_FIXED => Serials::Left(version, seen.last.0),
        (Some(version), _) if version < SERIALS_FIXED => Serials::Finite(Some(version)),
        (Some(version), _) => Serials::Endless(version),
        (None, _) => Serials::Unknown,
    }
}

/// systemd has read all that was sent to it, is neither busy nor halted, and has answered nobody since the oldest call.
pub(super) fn is_silent(stall: &BusStall, scene: &Scene<'_>) -> bool {
    let read_all = stall.peer.as_ref().is_some_and(|peer| peer.fact.unread == Some(0));
    let answered = scene.snapshot.bus.systemd_answered;
    let since = !stall.call.fact.job && answered.is_none_or(|at| at.0 < stall.call.fact.start_ns);
    read_all && since && stall.busy().is_none() && !stall.is_halted() && !stall.hangs_in_kernel()
}

/// At most this sure.
pub(super) fn at_most_medium(finding: Finding, why: &str) -> Finding {
    if finding.confidence == Confidence::High { finding.doubted(why) } else { finding }
}
