//! Causes in systemd and D-Bus: whoever does not answer a call is named, by the queues and by what it is doing.

use plegtrace::correlate::{BusRow, Latency, Snapshot, SystemdSerials};
use plegtrace::decode::{BusKind, BusNames};
use plegtrace::diagnose::{Confidence, Diagnosis, Finding, Severity, UnknownCause, Verdict, diagnose};
use plegtrace::input::{
    BusFact, BusPeerFact, BusReaderFact, CensusFact, Command, Component, ContainerFact, Fact, OpenBusFact,
    SYSTEMD, VersionFact,
};
use plegtrace::render::{json, text};
use plegtrace::stuck::StuckKind;
use plegtrace_common::rec::{PROCESS_EXECED, PROCESS_INIT};
use plegtrace_common::role::Role;
use plegtrace_tests::found::{lists, process, relist, update};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{S, Story, at};

use super::{CHILD, RUNC, SHIM, culprit, ids, none, only, runc};

const DAEMON: u32 = 700;

/// A call of `runc` to systemd that the bus has read.
fn call(member: &str) -> OpenBusFact {
    OpenBusFact {
        socket: 9,
        serial: 3,
        start_ns: at(2 * S).0,
        asker: RUNC,
        interface: "org.freedesktop.systemd1.Manager".into(),
        member: member.into(),
        destination: SYSTEMD.into(),
        accepted: Some(true),
        unread_by_bus: Some(0),
        unread: Some(0),
        bus: DAEMON,
        owner: 1,
        comm: "runc".into(),
        ..OpenBusFact::default()
    }
}

/// What a process does, a share of a CPU in percent included.
fn peer(pid: u32, state: char, wchan: &str, percent: u64, unread: Option<u32>) -> (BusPeerFact, u64) {
    let (is_init, comm) = (pid == 1, if pid == 1 { "systemd" } else { "dbus-daemon" }.into());
    (
        BusPeerFact { pid, is_init, comm, state, wchan: wchan.into(), frozen: false, ran_ns: 0, unread },
        percent,
    )
}

fn idle_bus() -> (BusPeerFact, u64) {
    peer(DAEMON, 'S', "ep_poll", 1, None)
}

fn idle_systemd() -> (BusPeerFact, u64) {
    peer(1, 'S', "ep_poll", 0, Some(0))
}

/// The calls and processes are read each second from the third to the last one.
fn read(story: &mut Story, last: u64, calls: &[OpenBusFact], peers: &[(BusPeerFact, u64)]) {
    for second in 3..=last {
        let ran = |(peer, percent): &(BusPeerFact, u64)| BusPeerFact {
            ran_ns: second * S / 100 * percent,
            ..peer.clone()
        };
        let (open, peers) = (calls.to_vec(), peers.iter().map(ran).collect());
        let reading = BusFact { at_ns: at(second * S).0, open, peers, complete: true, ..BusFact::default() };
        story.fact(second * S, &Fact::BusCalls(reading));
    }
}

fn after(last: u64, call: OpenBusFact, peers: &[(BusPeerFact, u64)]) -> Snapshot {
    let mut story = Story::node();
    story.relist(S, 0);
    story.census(S, &[], &[], &[]);
    read(&mut story, last, &[call], peers);
    story.read_open(last * S);
    story.snapshot(last * S)
}

/// Ten seconds after the call.
fn late(call: OpenBusFact, peers: &[(BusPeerFact, u64)]) -> Snapshot {
    after(12, call, peers)
}

fn confidence(finding: &Finding) -> (Option<u32>, Confidence) {
    (culprit(finding), finding.confidence)
}

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

/// Serial numbers run out before systemd 242, and only of one that reads everything, is idle and answers nobody.
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
    assert_eq!(confidence(&finding), (Some(1), Confidence::Low));
    assert!(finding.next.iter().any(|next| next.contains("daemon-reexec")), "{:?}", finding.next);
    let finding = only(&with("252", idle_systemd()), "D3");
    assert!(finding.evidence.iter().any(|it| it.text.contains("systemd 252")), "{:?}", finding.evidence);
    only(&with("219", peer(1, 'S', "ep_poll", 0, Some(77))), "D3");
    only(&with("219", peer(1, 'S', "do_freezer_trap", 0, Some(0))), "D13");
}

/// The doubt of every rule that is proved by stories alone.
const UNTESTED: &str = "this rule has never been tested on the real programs";

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
    assert_eq!((ids(&stall), &stall.findings[0].doubts), (vec!["D1"], &vec![UNTESTED.to_owned()]));
    assert!(stall.findings[0].evidence.iter().any(|it| it.text.contains("4,294,967,285 of 4,294,967,295")));
    let young = systemd("241", 70, 80, true);
    assert_eq!(ids(&young), ["D3"]);
    assert!(young.findings[0].evidence.iter().any(|it| it.text.contains("they have not run out (D1)")));
    // A thousand in ten seconds: 4,294 s for each 429,400.
    let coming = |last: u32| systemd("219", last - 1000, last, false);
    let notice = coming(u32::MAX - 100_000_000);
    assert_eq!((ids(&notice), notice.findings[0].severity), (vec!["D1"], Severity::Notice));
    assert!(notice.findings[0].headline.contains("in 11 d"), "{}", notice.findings[0].headline);
    assert_eq!(ids(&coming(u32::MAX - 300_000_000)), [""; 0], "34 days");
    assert_eq!(ids(&systemd("219", end, end, false)), ["D1"], "no pace, and near the end");
    assert_eq!(ids(&systemd("242", end, end, false)), [""; 0], "its numbers begin anew");
}

/// A call that is young, has been answered, or waits for its caller is nobody's fault; one that is late forbids "healthy".
#[test]
fn a_late_call_is_a_stall() {
    let verdict = |snapshot: &Snapshot| diagnose(snapshot).verdict;
    let peers = [idle_bus(), idle_systemd()];
    let young = after(7, call("StopUnit"), &peers);
    none(&young);
    assert_eq!(verdict(&young), Verdict::Healthy);
    assert_eq!(verdict(&after(8, call("StopUnit"), &peers)), Verdict::Stall);
    let for_caller = OpenBusFact { unread: Some(50), ..call("StopUnit") };
    none(&late(for_caller, &peers));
    let over = OpenBusFact { over: true, ..call("StopUnit") };
    none(&late(over, &peers));
    // Somebody else on the bus: no rule, but a stall all the same.
    let other = OpenBusFact { destination: "org.freedesktop.login1".into(), owner: 0, ..call("Inhibit") };
    let snapshot = late(other, &[idle_bus()]);
    none(&snapshot);
    let diagnosis = diagnose(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::Stall);
    assert!(matches!(&diagnosis.stuck[0].what, StuckKind::Bus(stall) if stall.call.fact.asker == RUNC));
}

/// The census knows the runc: with its init and its shim it waits, and none of them is stuck by itself; container and pod
/// are those that runc works for.
#[test]
fn the_runc_that_waits_is_named() {
    let pod = ContainerFact {
        id: "c1".into(),
        sandbox: Some("s1".into()),
        name: Some("web".into()),
        pod: Some("shop".into()),
        namespace: Some("prod".into()),
        source: "bundle".into(),
    };
    let mut story = Story::node();
    story.containers = vec![pod.clone()];
    let all = [runc("create", RUNC, SHIM), runc("init", CHILD, RUNC), process(Component::Shim, SHIM, 1, 0)];
    story.census(3 * S, &all, &[], &[]).census(12 * S, &all, &[], &[]);
    read(&mut story, 12, &[call("StartTransientUnit")], &[idle_bus(), idle_systemd()]);
    let snapshot = story.snapshot(12 * S);
    let diagnosis = diagnose(&snapshot);
    assert_eq!((ids(&diagnosis), diagnosis.stuck.len()), (vec!["D3"], 1), "{diagnosis:#?}");
    let finding = &diagnosis.findings[0];
    assert!(
        finding.headline.contains(&format!("runc create of c1 (pid {RUNC}) waits")),
        "{}",
        finding.headline
    );
    assert_eq!(finding.culprit.as_ref().unwrap().container, Some(pod));
    let victims = finding.victims.join("; ");
    assert!([RUNC, CHILD, SHIM].iter().all(|pid| victims.contains(&pid.to_string())), "{victims}");
    assert!(diagnosis.reasons.iter().all(|reason| diagnosis.explains(reason)), "{:?}", diagnosis.reasons);
    let page = page(&snapshot, &diagnosis);
    assert!(page.contains("STALL D3") && page.contains("prod/shop, container web"), "{page}");
}

fn page(snapshot: &Snapshot, diagnosis: &Diagnosis) -> String {
    let mut page = Vec::new();
    text::report(snapshot, diagnosis, &text::TextOptions::default(), &mut page).unwrap();
    String::from_utf8(page).unwrap()
}

/// R1 whose update waits for D-Bus is one verdict with the whole chain: lists, update, runc update, the call, systemd.
#[test]
fn r1_names_the_chain_down_to_systemd() {
    for owner in [1, 0] {
        let mut story = Story::node();
        let all = [runc("update", RUNC, SHIM), process(Component::Shim, SHIM, 1, 0)];
        for second in [3, 12] {
            story.census(second * S, &all, &[update(), lists()], &[relist()]);
        }
        let call = OpenBusFact { owner, ..call("SetUnitProperties") };
        read(&mut story, 12, &[call], &[idle_bus(), idle_systemd()]);
        let snapshot = story.snapshot(12 * S);
        let finding = only(&snapshot, "R1");
        assert_eq!((culprit(&finding), finding.reach), ((owner != 0).then_some(owner), 3));
        assert_eq!(finding.also, ["D3"]);
        let chain = [
            "every ListContainers waits behind one UpdateContainerResources in containerd",
            &format!("runc update of c1 (pid {RUNC}) waits for D-Bus"),
            if owner == 1 { "systemd (pid 1)" } else { "org.freedesktop.systemd1" },
            "Manager/SetUnitProperties",
        ];
        let places: Vec<_> = chain.iter().map(|part| finding.headline.find(part)).collect();
        assert!(places.is_sorted() && places[0] == Some(0), "{places:?}: {}", finding.headline);
        assert!(finding.next[0].contains(&format!("kill -9 {RUNC}")), "{:?}", finding.next);
        assert!(finding.victims[0].contains("relist"), "{:?}", finding.victims);
    }
}

/// Many runc behind one systemd are one thing, and JSON says so.
#[test]
fn many_calls_are_one_stall() {
    let mut story = Story::node();
    let of = |n: u32| OpenBusFact {
        socket: u64::from(n),
        asker: RUNC + n,
        start_ns: at(2 * S).0 + u64::from(n),
        ..call("StopUnit")
    };
    let calls: Vec<OpenBusFact> = (0..30).map(of).collect();
    read(&mut story, 12, &calls, &[idle_bus(), idle_systemd()]);
    let snapshot = story.snapshot(12 * S);
    let finding = only(&snapshot, "D3");
    assert!(
        finding.headline.contains(&format!("runc {RUNC} and 29 more calls wait")),
        "{}",
        finding.headline
    );
    let mut document = Vec::new();
    json::report(&snapshot, &diagnose(&snapshot), &mut document).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    let stuck = &document["stuck"][0];
    assert_eq!((&stuck["kind"], &stuck["component"]), (&"bus".into(), &"systemd".into()));
    assert_eq!((&stuck["bus"]["calls"], &stuck["bus"]["process"]), (&30.into(), &1.into()));
    assert_eq!(stuck["waiters"].as_array().unwrap().len(), 30);
    let peers: Vec<&str> = document["bus"]["peers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["component"].as_str())
        .collect();
    assert_eq!(peers, ["systemd", "bus-daemon"]);
}

/// A runc that no census has seen, but whose birth was: with its init it waits, and neither is left unexplained.
#[test]
fn a_runc_that_was_born_is_named() {
    let mut story = Story::node();
    story.found(SHIM, Role::Shim).fork(SHIM, RUNC, S).exec(RUNC, Role::Runc, PROCESS_EXECED, S);
    let told = |sub: &str, id: Option<&str>| Command::Runc {
        sub: sub.into(),
        container: id.map(str::to_owned),
        bundle: None,
    };
    story.told(RUNC, &told("create", Some("c1")));
    story.fork(RUNC, CHILD, S).exec(CHILD, Role::Runc, PROCESS_EXECED | PROCESS_INIT, S);
    story.told(CHILD, &told("init", None));
    read(&mut story, 12, &[call("StartTransientUnit")], &[idle_bus(), idle_systemd()]);
    story.read_processes(12 * S);
    let diagnosis = diagnose(&story.snapshot(12 * S));
    assert_eq!((ids(&diagnosis), diagnosis.stuck.len()), (vec!["D3"], 1), "{diagnosis:#?}");
    let finding = &diagnosis.findings[0];
    assert!(
        finding.headline.contains(&format!("runc create of c1 (pid {RUNC}) waits")),
        "{}",
        finding.headline
    );
    assert_eq!(finding.culprit.as_ref().unwrap().container.as_ref().unwrap().id, "c1");
    let unexplained: Vec<_> = diagnosis.unexplained().collect();
    assert!(unexplained.is_empty(), "{unexplained:?}");
}

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

/// A runc that waits for systemd, and nobody follows the bus: the report says how to find out. It does not when the bus is
/// followed, nor of a runc that waits for something else.
#[test]
fn an_unknown_cause_behind_the_bus_is_said_to_be_there() {
    let cause = |phase: &str, followed: bool| {
        let mut story = Story::node();
        story.found(SHIM, Role::Shim);
        let command = Command::Runc { sub: "create".into(), container: Some("c1".into()), bundle: None };
        story.fork(SHIM, RUNC, S).exec(RUNC, Role::Runc, PROCESS_EXECED, S).told(RUNC, &command);
        story.enter(RUNC, phase, 500, 2 * S).read_processes(20 * S).read_open(20 * S);
        let shim = process(Component::Shim, SHIM, 1, 0);
        story.census(20 * S, &[runc("create", RUNC, SHIM), shim], &[], &[]);
        if followed {
            let reading = BusFact { at_ns: at(20 * S).0, complete: true, ..BusFact::default() };
            story.fact(20 * S, &Fact::BusCalls(reading));
        }
        let diagnosis = diagnose(&story.snapshot(20 * S));
        assert_eq!(diagnosis.verdict, Verdict::Stall);
        diagnosis.unknown_cause.map(UnknownCause::name)
    };
    assert_eq!(cause("startUnit", false), Some("bus_not_followed"));
    assert_eq!(cause("startUnit", true), Some("nothing_fits"));
    assert_eq!(cause("destroy", false), Some("nothing_fits"));
}

/// The kubelet calls systemd too, for the slices of pods. Nobody is told to kill it.
#[test]
fn only_a_runc_may_be_killed() {
    let kills = |comm: &str| {
        let unread = OpenBusFact { unread_by_bus: Some(96), comm: comm.into(), ..call("StartTransientUnit") };
        let stopped = peer(DAEMON, 'T', "do_signal_stop", 0, None);
        let bus = only(&late(unread, &[stopped]), "D14");
        let systemd = only(&late(OpenBusFact { comm: comm.into(), ..call("StopUnit") }, &[idle_bus()]), "D3");
        [bus, systemd].map(|finding| finding.next.iter().any(|next| next.contains("kill -9")))
    };
    assert_eq!(kills("kubelet"), [false, false]);
    assert_eq!(kills("runc"), [true, true]);
}
