//! Who does not answer a call: told apart by the queues and by what each is doing.

use plegtrace::correlate::SystemdSerials;
use plegtrace::diagnose::{Confidence, Severity, diagnose};
use plegtrace::input::{
    BusFact, BusPeerFact, BusReaderFact, CensusFact, Command, Component, Fact, OpenBusFact, SystemdWork,
    VersionFact,
};
use plegtrace_common::rec::PROCESS_EXECED;
use plegtrace_common::role::Role;
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{S, Story, at};

use super::super::{RUNC, SHIM, culprit, ids, none, only};
use super::{DAEMON, call, confidence, idle_bus, idle_systemd, late, peer, read};

/// A bus that does not read or accept, or has no room: D14, and sure only when it is seen why.
#[test]
fn d14_needs_a_bus_that_does_not_read() {
    let unread = OpenBusFact { unread_by_bus: Some(96), ..call("StartTransientUnit") };
    let stopped = peer(DAEMON, 'T', "do_signal_stop", 0, None);
    let finding = only(&late(unread.clone(), std::slice::from_ref(&stopped)), "D14");
    assert_eq!(confidence(&finding), (Some(DAEMON), Confidence::High));
    assert_eq!((finding.severity, finding.since.unwrap().ns), (Severity::Stall, 10 * S));
    assert!(finding.next[0].contains(&format!("kill -CONT {DAEMON}")), "{:?}", finding.next);
    assert!(finding.next[1].contains(&format!("kill -9 {RUNC}")), "{:?}", finding.next);
    let frozen = peer(DAEMON, 'S', "do_freezer_trap", 0, None);
    let finding = only(&late(unread.clone(), &[frozen]), "D14");
    assert!(finding.next[0].contains(&format!("/proc/{DAEMON}/cgroup")), "{:?}", finding.next);
    // It may have read the call before it was stopped.
    let read_before = only(&late(call("StartTransientUnit"), &[stopped, idle_systemd()]), "D14");
    assert_eq!(confidence(&read_before), (Some(DAEMON), Confidence::High));
    // Nobody says why.
    let finding = only(&late(unread.clone(), &[idle_bus()]), "D14");
    assert_eq!(confidence(&finding), (Some(DAEMON), Confidence::Medium));
    let nobody = OpenBusFact { bus: 0, ..unread.clone() };
    assert_eq!(confidence(&only(&late(nobody, &[]), "D14")), (None, Confidence::Medium));
    // Not accepted, and no room.
    let connection = OpenBusFact {
        serial: 0,
        interface: String::new(),
        member: String::new(),
        destination: String::new(),
        accepted: Some(false),
        unread_by_bus: None,
        ..call("")
    };
    let finding = only(&late(connection, &[idle_bus()]), "D14");
    assert!(finding.headline.contains("has not accepted a new connection"), "{}", finding.headline);
    let full = OpenBusFact { unsent: true, ..unread };
    let finding = only(&late(full, &[idle_bus()]), "D14");
    assert!(finding.headline.contains("the socket is full"), "{}", finding.headline);
}

/// A bus that waits for something to do has answered what it has read: the answer was missed, or the end of a write was.
#[test]
fn d14_is_not_a_bus_that_has_nothing_to_do() {
    let own = OpenBusFact { destination: "org.freedesktop.DBus".into(), ..call("AddMatch") };
    none(&late(own.clone(), &[idle_bus()]));
    let unsent = OpenBusFact { unsent: true, ..own.clone() };
    none(&late(unsent.clone(), &[idle_bus()]));
    let connection =
        OpenBusFact { serial: 0, member: String::new(), destination: String::new(), ..own.clone() };
    none(&late(connection, &[idle_bus()]));
    // Without an answer of systemd it is systemd that is waited for.
    let frozen = peer(1, 'S', "do_freezer_trap", 0, Some(96));
    let unsent_call = OpenBusFact { unsent: true, ..call("StartTransientUnit") };
    let finding = only(&late(unsent_call, &[idle_bus(), frozen]), "D13");
    assert_eq!(confidence(&finding), (Some(1), Confidence::Medium), "how far the call came is not known");
    // dbus-daemon asks other services for the groups of a user, and waits for them.
    let elsewhere = peer(DAEMON, 'S', "unix_stream_data_wait", 0, None);
    assert_eq!(
        confidence(&only(&late(own.clone(), &[elsewhere]), "D14")),
        (Some(DAEMON), Confidence::Medium)
    );
    let unread = OpenBusFact { unread_by_bus: Some(96), ..own };
    only(&late(unread, &[idle_bus()]), "D14");
}

/// The same of a bus that is busy: D9; also when systemd is idle and has been given nothing.
#[test]
fn d9_needs_a_busy_bus() {
    let unread = OpenBusFact { unread_by_bus: Some(96), ..call("StartTransientUnit") };
    let busy = |percent| peer(DAEMON, 'R', "", percent, None);
    let finding = only(&late(unread.clone(), &[busy(97)]), "D9");
    assert_eq!(confidence(&finding), (Some(DAEMON), Confidence::Medium));
    only(&late(unread, &[busy(49)]), "D14");
    only(&late(call("StopUnit"), &[busy(97), idle_systemd()]), "D9");
    only(&late(call("StopUnit"), &[busy(97), peer(1, 'S', "ep_poll", 0, Some(500))]), "D3");
    only(&late(call("StopUnit"), &[busy(97), peer(1, 'R', "", 90, Some(0))]), "D2");
}

/// The bus has read the call, and systemd does not answer: by what systemd is doing.
#[test]
fn systemd_is_told_apart_by_what_it_does() {
    let (high, medium) = (Confidence::High, Confidence::Medium);
    let cases = [
        (peer(1, 'S', "ep_poll", 0, Some(0)), "D3", high),
        (peer(1, 'S', "unix_stream_read_generic", 3, Some(8000)), "D3", high),
        (peer(1, 'R', "", 49, Some(8000)), "D3", high),
        (peer(1, 'R', "", 51, Some(8000)), "D2", medium),
        (peer(1, 'D', "cgroup_kn_lock_live", 0, Some(8000)), "D12", medium),
        (peer(1, 'D', "__refrigerator", 0, Some(8000)), "D13", high),
        (peer(1, 'S', "do_freezer_trap", 0, Some(8000)), "D13", high),
        (peer(1, 't', "ptrace_stop", 0, Some(0)), "D13", high),
    ];
    for (systemd, id, confidence) in cases {
        let what = format!("{systemd:?}");
        let finding = only(&late(call("StopUnit"), &[idle_bus(), systemd]), id);
        assert_eq!((culprit(&finding), finding.confidence), (Some(1), confidence), "{what}");
        assert_eq!(finding.culprit.as_ref().unwrap().component, Component::Systemd);
        assert!(!finding.next.iter().any(|next| next.contains("kill -9 1:")), "{:?}", finding.next);
    }
    // Its private socket has no bus in between.
    let private = OpenBusFact { bus: 1, unread_by_bus: Some(200), ..call("StopUnit") };
    let finding = only(&late(private, &[peer(1, 'S', "do_freezer_trap", 0, None)]), "D13");
    assert!(finding.headline.contains("has not read Manager/StopUnit"), "{}", finding.headline);
    // A state that was seen once is a moment.
    let mut story = Story::node();
    read(&mut story, 11, &[call("StopUnit")], &[idle_bus(), idle_systemd()]);
    let d = peer(1, 'D', "cgroup_kn_lock_live", 0, Some(0)).0;
    let reading =
        BusFact { at_ns: at(12 * S).0, open: vec![call("StopUnit")], peers: vec![d], ..BusFact::default() };
    story.fact(12 * S, &Fact::BusCalls(reading));
    only(&story.snapshot(12 * S), "D3");
}

/// With what a busy systemd is busy: D2 is the mount table, D10 its units; when neither was seen often enough, D2 is a doubt.
#[test]
fn a_busy_systemd_is_told_apart_by_its_work() {
    let work = |looks, mounts_changed, units| SystemdWork { looks, mounts_changed, units };
    let busy = |work, id| {
        let (systemd, percent) = peer(1, 'R', "", 97, Some(8000));
        only(&late(call("StopUnit"), &[idle_bus(), (BusPeerFact { work, ..systemd }, percent)]), id)
    };
    // Ten readings.
    for (work, id, confidence) in [
        (work(12, 5, 0), "D2", Confidence::High),
        (work(12, 5, 4), "D2", Confidence::High),
        (work(12, 0, 5), "D10", Confidence::High),
        // A reload work the mount table, too.
        (work(12, 4, 12), "D10", Confidence::High),
        (work(12, 0, 0), "D2", Confidence::Medium),
        (work(0, 0, 0), "D2", Confidence::Medium),
    ] {
        let finding = busy(work, id);
        assert_eq!((culprit(&finding), finding.confidence), (Some(1), confidence), "{work:?}");
    }
    let table = busy(work(12, 5, 0), "D2");
    assert!(table.headline.contains("; the mount table changes all the time; "), "{}", table.headline);
    let wanted =
        "in 50 of 120 samples the mount table had changed again, in 0 systemd (pid 1) was reading its units";
    assert!(table.evidence.iter().any(|it| it.text == wanted), "{:?}", table.evidence);
    assert!(busy(work(0, 0, 0), "D2").next[0].contains("strace"));
    // One that is idle, frozen, or in the kernel is named by that, whatever it has open.
    for (state, wchan, id) in [('S', "ep_poll", "D3"), ('S', "do_freezer_trap", "D13"), ('D', "x", "D12")] {
        let systemd = BusPeerFact { work: work(12, 0, 12), ..peer(1, state, wchan, 0, Some(0)).0 };
        only(&late(call("StopUnit"), &[idle_bus(), (systemd, 0)]), id);
    }
}

/// systemd has answered with a job that is not done: D4, sure when runc is seen to wait, and when only systemd ends it.
#[test]
fn d4_needs_a_job_that_is_not_done() {
    let job = |member: &str| OpenBusFact { job: true, serial: 77, ..call(member) };
    let finding = only(&late(job("StartTransientUnit"), &[idle_bus(), idle_systemd()]), "D4");
    assert_eq!(confidence(&finding), (Some(1), Confidence::Medium));
    assert!(finding.headline.contains("has answered Manager/StartTransientUnit"), "{}", finding.headline);
    assert!(finding.evidence.iter().any(|it| it.text.contains("number 77")), "{:?}", finding.evidence);
    let seen = |member: &str, phase: &str| {
        let mut story = Story::node();
        story.found(SHIM, Role::Shim);
        let command = Command::Runc { sub: "create".into(), container: Some("c1".into()), bundle: None };
        story.fork(SHIM, RUNC, S).exec(RUNC, Role::Runc, PROCESS_EXECED, S).told(RUNC, &command);
        story.enter(RUNC, phase, 500, 2 * S).read_processes(12 * S).read_open(12 * S);
        read(&mut story, 12, &[job(member)], &[idle_bus(), idle_systemd()]);
        only(&story.snapshot(12 * S), "D4").confidence
    };
    assert_eq!(seen("StartTransientUnit", "startUnit"), Confidence::High);
    assert_eq!(seen("StartTransientUnit", "parseSync"), Confidence::Medium);
    assert_eq!(seen("StopUnit", "startUnit"), Confidence::Medium);
}

/// Who answers no call ends no job, and who does not run does neither: the job is no cause of its own.
#[test]
fn a_job_is_not_blamed_for_what_keeps_systemd() {
    let job = || OpenBusFact { job: true, ..call("StopUnit") };
    only(&late(job(), &[idle_bus(), peer(1, 'S', "do_freezer_trap", 0, Some(0))]), "D13");
    only(&late(job(), &[idle_bus(), peer(1, 'R', "", 97, Some(0))]), "D2");
    let mut story = Story::node();
    let versions = vec![VersionFact { program: "systemd".into(), version: "219".into() }];
    let (began_ns, ended_ns) = (at(S).0, at(S).0);
    story.fact(S, &Fact::Census(CensusFact { began_ns, ended_ns, versions, ..CensusFact::default() }));
    read(&mut story, 12, &[job()], &[idle_bus(), idle_systemd()]);
    only(&story.snapshot(12 * S), "D4");
    only(&late(job(), &[peer(DAEMON, 'T', "do_signal_stop", 0, None), idle_systemd()]), "D14");
    let mut story = Story::node();
    read(
        &mut story,
        12,
        &[job(), OpenBusFact { serial: 9, ..call("StopUnit") }],
        &[idle_bus(), idle_systemd()],
    );
    let diagnosis = diagnose(&story.snapshot(12 * S));
    assert_eq!((ids(&diagnosis), diagnosis.stuck.len()), (vec!["D3"], 1), "{diagnosis:#?}");
    // The signal waits in a socket of its caller.
    let mut story = Story::node();
    let readers = vec![BusReaderFact { socket: 11, pid: RUNC, unread: 200 }];
    let open = vec![job()];
    let reading = BusFact { at_ns: at(12 * S).0, open, readers, complete: true, ..BusFact::default() };
    story.fact(12 * S, &Fact::BusCalls(reading));
    none(&story.snapshot(12 * S));
}

/// Who has systemd's name is not known, or the queues are not: that is said.
#[test]
fn d3_says_what_is_not_known() {
    let nobody = OpenBusFact { owner: 0, ..call("StopUnit") };
    let finding = only(&late(nobody, &[idle_bus()]), "D3");
    assert_eq!(confidence(&finding), (None, Confidence::Medium));
    assert!(finding.doubts[0].contains("which process is org.freedesktop.systemd1"), "{:?}", finding.doubts);
    let absent = OpenBusFact { owner: 0, no_owner: true, ..call("StopUnit") };
    let finding = only(&late(absent, &[idle_bus()]), "D8");
    assert_eq!((confidence(&finding), finding.severity), ((None, Confidence::High), Severity::Stall));
    assert!(
        finding.headline.starts_with("systemd is not on the bus, and nobody has answered"),
        "{finding:?}"
    );
    let blind = OpenBusFact {
        accepted: None,
        unread_by_bus: None,
        unread: None,
        bus: 0,
        owner: 0,
        ..call("StopUnit")
    };
    let finding = only(&late(blind, &[]), "D3");
    assert_eq!(confidence(&finding), (None, Confidence::Low));
}

/// What systemd is doing takes two looks to know: it may be frozen, and then that is the cause.
#[test]
fn d3_is_not_sure_after_a_glance() {
    let seen = |seconds: &[u64]| {
        let mut story = Story::node();
        story.relist(S, 0).census(S, &[], &[], &[]);
        for second in seconds {
            let peers = [idle_bus(), idle_systemd()].map(|(peer, _)| peer).to_vec();
            let (at_ns, open) = (at(second * S).0, vec![call("StopUnit")]);
            let reading = BusFact { at_ns, open, peers, complete: true, ..BusFact::default() };
            story.fact(second * S, &Fact::BusCalls(reading));
        }
        story.read_open(12 * S);
        only(&story.snapshot(12 * S), "D3").confidence
    };
    assert_eq!(seen(&[10, 11, 12]), Confidence::High);
    assert_eq!(seen(&[11, 12]), Confidence::Medium);
    assert_eq!(seen(&[12]), Confidence::Medium);
}

/// Serial numbers run out before systemd 242, and only of one that work everything, is idle and answers nobody.
#[test]
fn d1_needs_an_old_systemd_that_is_silent() {
    let with = |version: &str, systemd: (BusPeerFact, u64)| {
        let mut story = Story::node();
        let versions = vec![VersionFact { program: "systemd".into(), version: version.into() }];
        let (began_ns, ended_ns) = (at(S).0, at(S).0);
        story.fact(S, &Fact::Census(CensusFact { began_ns, ended_ns, versions, ..CensusFact::default() }));
        read(&mut story, 12, &[call("StopUnit")], &[idle_bus(), systemd]);
        story.snapshot(12 * S)
    };
    let finding = only(&with("241", idle_systemd()), "D1");
    assert_eq!(confidence(&finding), (Some(1), Confidence::Medium));
    assert!(finding.next.iter().any(|next| next.contains("daemon-reexec")), "{:?}", finding.next);
    let finding = only(&with("252", idle_systemd()), "D3");
    assert!(finding.evidence.iter().any(|it| it.text.contains("systemd 252")), "{:?}", finding.evidence);
    only(&with("219", peer(1, 'S', "ep_poll", 0, Some(77))), "D3");
    only(&with("219", peer(1, 'S', "do_freezer_trap", 0, Some(0))), "D13");
}

/// Serial numbers of answers say whether D1 can be: near the end it is sure, far from it it is not, and before that it is coming.
#[test]
fn d1_by_the_numbers_of_answers() {
    let systemd = |version: &str, first: u32, last: u32, stalls: bool| {
        let mut story = Story::node();
        story.relist(S, 0);
        let versions = vec![VersionFact { program: "systemd".into(), version: version.into() }];
        let (began_ns, ended_ns) = (at(S).0, at(S).0);
        story.fact(S, &Fact::Census(CensusFact { began_ns, ended_ns, versions, ..CensusFact::default() }));
        if stalls {
            read(&mut story, 12, &[call("StopUnit")], &[idle_bus(), idle_systemd()]);
        }
        let mut snapshot = story.snapshot(12 * S);
        let seen = |serial: u32, ns: u64| (serial, at(ns));
        snapshot.bus.systemd_serials =
            Some(SystemdSerials { first: seen(first, S / 2), last: seen(last, S / 2 + 10 * S) });
        diagnose(&snapshot)
    };
    let end = u32::MAX - 10;
    let stall = systemd("241", end, end, true);
    assert_eq!((ids(&stall), &stall.findings[0].doubts), (vec!["D1"], &vec![]));
    assert!(stall.findings[0].evidence.iter().any(|it| it.text.contains("4,294,967,285 of 4,294,967,295")));
    let young = systemd("241", 70, 80, true);
    assert_eq!(ids(&young), ["D3"]);
    assert!(young.findings[0].evidence.iter().any(|it| it.text.contains("they have not run out (D1)")));
    let unknown = systemd("", end, end, true);
    assert_eq!((ids(&unknown), unknown.findings[0].confidence), (vec!["D1"], Confidence::Medium));
    assert_eq!(ids(&systemd("", end, u32::MAX - 5000, true)), ["D3"], "newer ones come that near, too");
    // A thousand in ten seconds: 4,294 s for each 429,400.
    let coming = |last: u32| systemd("219", last - 1000, last, false);
    let notice = coming(u32::MAX - 100_000_000);
    assert_eq!((ids(&notice), notice.findings[0].severity), (vec!["D1"], Severity::Notice));
    assert!(notice.findings[0].headline.contains("in 11 d"), "{}", notice.findings[0].headline);
    assert_eq!(ids(&coming(u32::MAX - 300_000_000)), [""; 0], "34 days");
    assert_eq!(ids(&systemd("219", end, end, false)), ["D1"], "no pace, and near the end");
    assert_eq!(ids(&systemd("242", end, end, false)), [""; 0], "its numbers begin anew");
}
