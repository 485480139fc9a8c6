//! R9: a containerd that does not come to the end of its start, because a shim of the one before it does not answer.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Finding, Severity, Verdict, diagnose};
use plegtrace::input::{
    Component, ContainerFact, Fact, GoroutineGroup, MessagesFact, OpenMessageFact, ProcessFact, SocketFact,
};
use plegtrace_common::role::Role;
use plegtrace_tests::found::{about, group, process, stopped};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, S, Story, at};

use super::{SHIM, culprit, holder, ids, none, only};

const OTHER: u32 = SHIM + 1;
const OLD: u32 = CONTAINERD - 1;
/// When containerd is started, and when its start is judged.
const STARTED: u64 = 2 * S;
const NOW: u64 = 15 * S;

/// A bundle whose shim is this process; the id is that of its sandbox.
fn shim(pid: u32, id: &str) -> ProcessFact {
    let sandbox = Some(id.to_owned());
    let container = ContainerFact { id: id.into(), sandbox, ..ContainerFact::default() };
    ProcessFact { container: Some(container), ..process(Component::Shim, pid, 1, 0) }
}

/// One connection waits at its socket.
fn unaccepted(shim: ProcessFact) -> ProcessFact {
    let path = Some("/run/containerd/s/1c405ece".to_owned());
    let socket = SocketFact { path, listening: true, unread: 1, ..SocketFact::default() };
    ProcessFact { sockets: vec![socket], ..shim }
}

/// The goroutine of containerd 1.6 that asks the shim of this bundle.
fn load(id: Option<&str>) -> GoroutineGroup {
    let frames = [
        "github.com/containerd/ttrpc.(*Client).dispatch",
        "github.com/containerd/containerd/runtime/v2/task.(*taskClient).Connect",
        "github.com/containerd/containerd/runtime/v2.loadShim",
        "github.com/containerd/containerd/runtime/v2.(*ShimManager).loadShims",
        "github.com/containerd/containerd/services/server.New",
    ];
    let group = group(&[15], "select", &frames);
    id.map_or(group.clone(), |id| about(group, ".loadShim", id))
}

fn containerd(sockets: Vec<SocketFact>) -> ProcessFact {
    ProcessFact { sockets, ..process(Component::Containerd, CONTAINERD, 1, STARTED) }
}

fn listener(path: &str) -> SocketFact {
    SocketFact { path: Some(path.into()), listening: true, ..SocketFact::default() }
}

/// A containerd was killed, and the next one has these goroutines, beside these processes, at two looks.
fn told(processes: &[ProcessFact], goroutines: Option<&[GoroutineGroup]>) -> Story {
    let mut story = Story::node();
    story.target_at(0, Component::Containerd, OLD, "1.6.20").found(OLD, Role::Containerd).exit(S, OLD, 9);
    story.target_at(STARTED, Component::Containerd, CONTAINERD, "1.6.20");
    for ns in [STARTED + S, NOW] {
        story.census(ns, processes, goroutines.unwrap_or_default(), &[]);
    }
    story
}

fn seen(processes: &[ProcessFact], goroutines: &[GoroutineGroup]) -> Snapshot {
    told(processes, Some(goroutines)).snapshot(NOW)
}

fn resume(shim: u32) -> String {
    format!("`kill -CONT {shim}`: it answers, and containerd goes on")
}

fn has(finding: &Finding, text: &str) -> bool {
    finding.evidence.iter().any(|it| it.text.contains(text))
}

/// One shim is stopped: it is named, with its container, who waits, and since when; S10 is the nearer half, and that containerd
/// came back is not said.
#[test]
fn r9_names_the_shim() {
    let stopped = unaccepted(stopped(shim(SHIM, "s1")));
    let all = [containerd(Vec::new()), stopped, shim(OTHER, "s2")];
    let snapshot = seen(&all, &[load(None)]);
    let finding = only(&snapshot, "R9");
    assert_eq!((culprit(&finding), finding.confidence, finding.reach), (Some(SHIM), Confidence::High, 3));
    assert_eq!((finding.also.as_slice(), finding.behind), (&["S10"][..], Some(CONTAINERD)));
    assert_eq!((finding.since.unwrap().ns, finding.since.unwrap().at_least), (NOW - STARTED, false));
    assert_eq!(finding.culprit.as_ref().unwrap().container.as_ref().unwrap().id, "s1");
    assert_eq!(finding.next[0], resume(SHIM));
    assert!(has(&finding, "loadShim") && has(&finding, "1 connection"), "{:?}", finding.evidence);
    let diagnosis = diagnose(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::Stall);
    assert_eq!(diagnosis.unexplained().count(), 0, "{:?}", diagnosis.reasons);
}

/// Several shims are stopped: the bundle on the goroutine's stack tells for which it waits now, and the others stay what they
/// are. Without that it is not told which, instead of a guess.
#[test]
fn r9_does_not_guess_among_several() {
    let all = [containerd(Vec::new()), stopped(shim(SHIM, "s1")), stopped(shim(OTHER, "s2"))];
    let diagnosis = diagnose(&seen(&all, &[load(Some("s2"))]));
    let first = &diagnosis.findings[0];
    assert_eq!((first.rule.id, culprit(first), first.confidence), ("R9", Some(OTHER), Confidence::High));
    assert!(first.next[..2] == [resume(OTHER), resume(SHIM)], "the next in its way: {:?}", first.next);
    let rest: Vec<_> = diagnosis.findings[1..].iter().map(|it| (it.rule.id, culprit(it))).collect();
    assert_eq!(rest, [("S10", Some(SHIM))]);
    let diagnosis = diagnose(&seen(&all, &[load(None)]));
    let first = &diagnosis.findings[0];
    assert_eq!((first.rule.id, culprit(first), first.confidence), ("R9", None, Confidence::Medium));
    assert!(first.doubts[0].contains("cannot tell which"), "{:?}", first.doubts);
    assert!(
        [SHIM, OTHER].iter().all(|pid| first.next.join(" ").contains(&pid.to_string())),
        "{:?}",
        first.next
    );
}

/// A shim that reads and does not answer has nothing in its socket: its bundle is on the stack, and the request on the wire.
#[test]
fn r9_of_a_shim_that_reads() {
    let all = [containerd(Vec::new()), shim(SHIM, "s1"), shim(OTHER, "s2")];
    let finding = only(&seen(&all, &[load(Some("s1"))]), "R9");
    assert_eq!((culprit(&finding), finding.confidence), (Some(SHIM), Confidence::Medium));
    assert!(finding.next[0].contains(&format!("kill -9 {SHIM}")), "{:?}", finding.next);
    let nameless = only(&seen(&all, &[load(None)]), "R9");
    assert_eq!((culprit(&nameless), nameless.confidence), (None, Confidence::Medium));
    assert!(nameless.next[0].contains(&format!("-USR1 {CONTAINERD}")), "{:?}", nameless.next);
    let asked = |sent: u64, over: bool| {
        let open = OpenMessageFact {
            start_ns: at(sent).0,
            asker: CONTAINERD,
            answerer: OTHER,
            service: "containerd.task.v2.Task".into(),
            method: "Connect".into(),
            over,
            ..OpenMessageFact::default()
        };
        let mut story = told(&all, Some(&[load(None)]));
        let fact = MessagesFact { at_ns: at(NOW).0, open: vec![open], complete: true };
        story.fact(NOW, &Fact::Messages(fact));
        only(&story.snapshot(NOW), "R9")
    };
    let finding = asked(STARTED + S, false);
    assert_eq!((culprit(&finding), finding.confidence), (Some(OTHER), Confidence::High));
    assert!(has(&finding, "no answer for 12.0 s"), "{:?}", finding.evidence);
    let young = asked(NOW - S, false);
    assert_eq!((culprit(&young), young.confidence), (Some(OTHER), Confidence::Medium));
    assert_eq!(culprit(&asked(STARTED + S, true)), None);
}

/// Goroutines that could not be read: the socket of the one shim that does not read tells, less surely.
#[test]
fn r9_by_sockets_alone() {
    let of = |processes: &[ProcessFact]| {
        let mut story = Story::node();
        let round = |ns| plegtrace::input::CensusFact {
            began_ns: at(ns).0,
            ended_ns: at(ns).0,
            ..plegtrace::input::CensusFact::default()
        };
        for ns in [STARTED + S, NOW] {
            for process in processes {
                story.fact(ns, &Fact::Process(ProcessFact { at_ns: at(ns).0, ..process.clone() }));
            }
            story.fact(ns, &Fact::Census(round(ns)));
        }
        story.snapshot(NOW)
    };
    let finding = only(&of(&[containerd(Vec::new()), unaccepted(shim(SHIM, "s1"))]), "R9");
    assert_eq!((culprit(&finding), finding.confidence), (Some(SHIM), Confidence::Medium));
    let unread = |peer| SocketFact { unread: 90, peers: vec![holder(peer)], ..SocketFact::default() };
    let with = |peer| ProcessFact { sockets: vec![unread(peer)], ..shim(SHIM, "s1") };
    assert_eq!(culprit(&only(&of(&[containerd(Vec::new()), with(CONTAINERD)]), "R9")), Some(SHIM));
    none(&of(&[containerd(Vec::new()), with(OTHER)]));
    none(&of(&[containerd(Vec::new()), shim(SHIM, "s1")]));
    let serves = containerd(vec![listener("/run/containerd/containerd.sock")]);
    none(&of(&[serves, unaccepted(shim(SHIM, "s1"))]));
}

/// A containerd that serves, or has served since it started, has finished its start; one whose goroutines load nothing waits for
/// something else; a young one, and one whose shim came after it, is no R9.
#[test]
fn what_is_no_r9() {
    let deaf = unaccepted(stopped(shim(SHIM, "s1")));
    let named = |snapshot: &Snapshot| ids(&diagnose(snapshot));
    let serves = containerd(vec![listener("/run/containerd/containerd.sock")]);
    assert_eq!(named(&seen(&[serves, deaf.clone()], &[load(None)])), ["S10", "R15"]);
    let mut story = told(&[containerd(Vec::new()), deaf.clone()], Some(&[load(None)]));
    story.relist(NOW - S, 0);
    assert_eq!(named(&story.snapshot(NOW)), ["S10", "R15"], "a relist got its list");
    let locked =
        group(&[15], "sleep", &["go.etcd.io/bbolt.flock", "go.etcd.io/bbolt.Open", "services/server.New"]);
    assert_eq!(named(&seen(&[containerd(Vec::new()), deaf.clone()], &[locked])), ["S10", "R15"]);
    let frames =
        ["os/exec.(*Cmd).Wait", "runtime/v2.(*binary).Delete", "runtime/v2.(*ShimManager).loadShims"];
    let cleans = group(&[15], "select", &frames);
    assert_eq!(named(&seen(&[containerd(Vec::new()), deaf.clone()], &[cleans])), ["S10", "R15"]);
    let log = group(&[51], "IO wait", &["fifo.(*fifo).Read", "containerd/runtime/v2.loadShim.func4"]);
    assert_eq!(named(&seen(&[containerd(Vec::new()), deaf.clone()], &[log])), ["S10", "R15"]);
    let younger = ProcessFact { started_ns: Some(at(STARTED + S).0), ..deaf.clone() };
    let nameless = diagnose(&seen(&[containerd(Vec::new()), younger], &[load(None)]));
    assert!(culprit(&nameless.findings[0]).is_none(), "{:?}", nameless.findings[0]);
    let young = |age: u64, shim: &ProcessFact| {
        let mut young = Story::node();
        for ns in [STARTED + S, STARTED + age] {
            young.census(ns, &[containerd(Vec::new()), shim.clone()], &[load(None)], &[]);
        }
        named(&young.snapshot(STARTED + age))
    };
    assert_eq!([young(2 * S, &deaf), young(4 * S, &deaf)], [["S10"], ["R9"]], "stopped, it will not answer");
    let slow = unaccepted(shim(SHIM, "s1"));
    assert_eq!((young(9 * S, &slow), young(11 * S, &slow)), (vec![], vec!["R9"]), "it may be only slow");
}

/// A restart with shims that answer is over in a moment: R15 says that it happened, and nothing holds up.
#[test]
fn a_restart_with_healthy_shims_is_r15() {
    let serves = containerd(vec![listener("/run/containerd/containerd.sock")]);
    let mut story = told(&[serves, shim(SHIM, "s1")], Some(&[]));
    story.relist(STARTED + S, 0).relist(NOW - S, 0).read_open(NOW);
    let finding = only(&story.snapshot(NOW), "R15");
    assert_eq!((finding.severity, culprit(&finding)), (Severity::Notice, Some(CONTAINERD)));
    // In the moment itself the goroutine that asks a healthy shim is no cause.
    let mut moment = Story::node();
    moment.census(STARTED + S, &[containerd(Vec::new()), shim(SHIM, "s1")], &[load(Some("s1"))], &[]);
    none(&moment.snapshot(STARTED + S));
}

/// A containerd that is stopped as it starts is R14.
#[test]
fn a_start_that_is_stopped_is_r14() {
    let all = [stopped(containerd(Vec::new())), unaccepted(shim(SHIM, "s1"))];
    assert_eq!(ids(&diagnose(&seen(&all, &[load(None)])))[0], "R14");
}
