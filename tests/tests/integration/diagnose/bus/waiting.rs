//! Who waits for an answer: one verdict with the whole chain, and nobody in it is to blame.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Diagnosis, UnknownCause, Verdict, diagnose};
use plegtrace::input::{BusFact, Command, Component, ContainerFact, Fact, OpenBusFact};
use plegtrace::render::{json, text};
use plegtrace::stuck::StuckKind;
use plegtrace_common::rec::{PROCESS_EXECED, PROCESS_INIT};
use plegtrace_common::role::Role;
use plegtrace_tests::found::{lists, process, relist, update};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{S, Story, at};

use super::super::{CHILD, RUNC, SHIM, culprit, ids, none, only, runc};
use super::{DAEMON, after, call, idle_bus, idle_systemd, late, peer, read};

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

/// What was there before is as old as it was seen to be, at least, and who waits is told by its goroutine.
#[test]
fn a_call_that_was_there_before_is_older() {
    let before = OpenBusFact { before: true, serial: u32::MAX, ..call("SetUnitProperties") };
    let snapshot = late(before, &[idle_bus(), idle_systemd()]);
    let finding = only(&snapshot, "D3");
    let since = finding.since.unwrap();
    assert_eq!((since.ns, since.at_least), (10 * S, true));
    let told = format!(
        "runc {RUNC} has a goroutine that has waited for Manager/SetUnitProperties for 10.0 s at least"
    );
    assert!(finding.evidence.iter().any(|it| it.text == told), "{:?}", finding.evidence);
    let mut page = Vec::new();
    text::report(
        &snapshot,
        &diagnose(&snapshot),
        &text::TextOptions { verbose: true, ..text::TextOptions::default() },
        &mut page,
    )
    .unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("or earlier, 10.0 s ago"), "{page}");
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
    text::report(
        snapshot,
        diagnosis,
        &text::TextOptions { verbose: true, ..text::TextOptions::default() },
        &mut page,
    )
    .unwrap();
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
            if owner == 1 { "systemd (pid 1)" } else { "org.freedesktop.systemd1" },
            "Manager/SetUnitProperties",
            &format!("runc update of c1 (pid {RUNC}) waits for it"),
            "holds up every list of containers",
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
        // Also without the wire, what goroutines wait for is read.
        let reading = BusFact { at_ns: at(20 * S).0, complete: followed, ..BusFact::default() };
        story.fact(20 * S, &Fact::BusCalls(reading));
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
