//! Each cause is named when its evidence is there, and only then; the one that explains most comes first.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Diagnosis, Finding, Verdict, diagnose};
use plegtrace::input::{
    CensusFact, Command, Component, Fact, FdFact, FdTarget, Freezer, GoroutineGroup, Holder, ParkedThreads,
    ProcessFact, SyscallFact,
};
use plegtrace::render::text;
use plegtrace_tests::found::{process, stopped};
use plegtrace_tests::story::{CONTAINERD, MS, S, Story, at};

mod answerers;
mod bus;
mod chain;
mod dead_volume;
mod docker;
mod execs;
mod exits;
mod failing;
mod helpers;
mod jams;
mod kernel;
mod kernel_victims;
mod kubelet;
mod kubelet_loops;
mod lasting;
mod limits;
mod node;
mod nri;
mod oci;
mod pulls;
mod reconnect;
mod runc;
mod runtime;
mod settled;
mod silent_shims;
mod slow;
mod slow_deletes;
mod slow_disks;
mod slow_parts;
mod standing;
mod startup;
mod successor;
mod unkillable;
mod unmounts;
mod unnamed;
mod watched;

const SHIM: u32 = 24_141;
const RUNC: u32 = 24_200;
const CHILD: u32 = 24_201;

fn ids(diagnosis: &Diagnosis) -> Vec<&'static str> {
    diagnosis.findings.iter().map(|finding| finding.rule.id).collect()
}

/// The only finding, which must be of this rule.
fn only(snapshot: &Snapshot, id: &str) -> Finding {
    let diagnosis = diagnose(snapshot);
    assert_eq!(ids(&diagnosis), [id], "{diagnosis:#?}");
    diagnosis.findings[0].clone()
}

fn none(snapshot: &Snapshot) {
    let diagnosis = diagnose(snapshot);
    assert_eq!(ids(&diagnosis), [] as [&str; 0], "{diagnosis:#?}");
}

fn culprit(finding: &Finding) -> Option<u32> {
    finding.culprit.as_ref().and_then(|culprit| culprit.pid)
}

/// Two looks, the second at `ns`, at the same.
fn seen_twice(
    ns: u64,
    processes: &[ProcessFact],
    containerd: &[GoroutineGroup],
    kubelet: &[GoroutineGroup],
) -> Snapshot {
    let mut story = Story::node();
    for round in [ns - 3 * S, ns] {
        story.census(round, processes, containerd, kubelet);
    }
    story.snapshot(ns)
}

fn syscall(name: &str, fd: Option<FdTarget>) -> SyscallFact {
    let fd = fd.map(|target| FdFact { fd: 9, target });
    SyscallFact {
        nr: 1,
        name: Some(name.into()),
        args: [0; 6],
        fd,
        path: None,
        lock_holder: None,
        watched: Vec::new(),
    }
}

fn park(syscall: SyscallFact) -> ParkedThreads {
    ParkedThreads {
        threads: 1,
        tid: 1,
        state: 'S',
        syscall: Some(syscall),
        kernel_stack: Vec::new(),
        user_function: None,
    }
}

fn holder(pid: u32) -> Holder {
    Holder { pid, comm: "x".into(), fd: 9, orphan: false }
}

fn runc(sub: &str, pid: u32, parent: u32) -> ProcessFact {
    let command = Command::Runc { sub: sub.into(), container: Some("c1".into()), bundle: None };
    ProcessFact { command: Some(command), ..process(Component::Runc, pid, parent, 0) }
}

fn cni(pid: u32, park: ParkedThreads) -> ProcessFact {
    let command =
        Command::Cni { plugin: "bridge".into(), action: Some("ADD".into()), container: Some("s1".into()) };
    ProcessFact {
        command: Some(command),
        parked: vec![park],
        ..process(Component::Helper, pid, CONTAINERD, 0)
    }
}

/// A stopped shim is certain at once, but what waits behind it shows only later: an observation does not end before,
/// unless a relist that began after it has got its list.
#[test]
fn a_young_stall_is_not_settled() {
    let shim = stopped(process(Component::Shim, SHIM, 1, 0));
    let of_age = |ns: u64, relist: Option<u64>| {
        let mut story = Story::node();
        if let Some(from) = relist {
            story.relist(from, 0);
        }
        for round in (1..).map(|n| n * S).take_while(|&at| at <= S + ns) {
            story.census(round, std::slice::from_ref(&shim), &[], &[]);
        }
        story.snapshot(S + ns)
    };
    // Nor does one that a debugger may have stopped for a moment hold anything up.
    let (before, after) = (Some(S - MS), Some(S + MS));
    assert!(!diagnose(&of_age(S, after)).is_settled(&of_age(S, after)));
    let cases = [
        (S, None, false),
        (5 * S, None, false),
        (6 * S, None, true),
        (3 * S, before, false),
        (3 * S, after, true),
    ];
    for (age, relist, settled) in cases {
        let snapshot = of_age(age, relist);
        let finding = only(&snapshot, "S10");
        assert_eq!((finding.since.unwrap().ns, finding.confidence), (age, Confidence::High));
        assert_eq!(diagnose(&snapshot).is_settled(&snapshot), settled, "{age} {relist:?}");
    }
    // What reaches the relist cannot reach farther.
    let containerd = stopped(process(Component::Containerd, CONTAINERD, 1, 0));
    let snapshot = seen_twice(4 * S, &[containerd], &[], &[]);
    assert!(diagnose(&snapshot).is_settled(&snapshot), "{:?}", only(&snapshot, "R14").since);
}

/// A notice beside a stall is not its cause, and the report does not say so.
#[test]
fn a_notice_explains_no_stall() {
    let freezer = Freezer { path: "/kubepods/c1".into(), version: 2, state: "FROZEN".into(), own: true };
    let frozen = ProcessFact { freezer: Some(freezer), ..process(Component::Helper, CHILD, SHIM, 0) };
    let mut story = Story::node();
    story.relist(0, 0).relist_hangs(2 * S);
    story
        .census(S, std::slice::from_ref(&frozen), &[], &[])
        .census(9 * S, &[frozen], &[], &[])
        .read_open(30 * S);
    let snapshot = story.snapshot(30 * S);
    let diagnosis = diagnose(&snapshot);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Stall, vec!["U4"]));
    let mut page = Vec::new();
    text::report(
        &snapshot,
        &diagnosis,
        &text::TextOptions { verbose: true, ..text::TextOptions::default() },
        &mut page,
    )
    .unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("\nSTALL  relist open"), "{page}");
    assert!(page.contains("notice    U4") && page.contains("cause     unknown"), "{page}");
    assert!(page.contains("\nOpen calls") && !page.contains("Why we think so"), "{page}");
}

/// Without any look at processes nothing is blamed, and that is said.
#[test]
fn without_evidence_no_cause() {
    let mut story = Story::node();
    story.relist(0, 0).relist_hangs(2 * S).read_open(30 * S);
    let diagnosis = diagnose(&story.snapshot(30 * S));
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Stall, Vec::new()));
    assert!(diagnosis.excluded.is_empty(), "nobody looked: {:?}", diagnosis.excluded);
    let deadline = diagnosis.predictions.iter().any(|text| text.contains("deadline"));
    assert!(deadline && diagnosis.predictions.iter().any(|text| text.contains("PLEG is not healthy")));
}

/// What a cut look did not come to stands as it was found, and that is said.
#[test]
fn what_a_cut_look_did_not_reach_is_doubted() {
    let shim = stopped(process(Component::Shim, SHIM, 1, 0));
    let mut story = Story::node();
    story.census(3 * S, std::slice::from_ref(&shim), &[], &[]);
    assert_eq!(only(&story.snapshot(4 * S), "S10").confidence, Confidence::High);
    let ns = at(9 * S).0;
    let cut = CensusFact { began_ns: ns, ended_ns: ns, cut: true, ..CensusFact::default() };
    story.fact(9 * S, &Fact::Census(cut.clone()));
    let finding = only(&story.snapshot(10 * S), "S10");
    assert_eq!((finding.confidence, finding.since.unwrap().ns), (Confidence::Medium, 7 * S));
    assert!(finding.doubts[0].contains("last inspected 7.0 s ago"), "{:?}", finding.doubts);
    let seen = ProcessFact { at_ns: at(12 * S).0, ..shim };
    story.fact(12 * S, &Fact::Process(seen));
    story.fact(12 * S, &Fact::Census(CensusFact { began_ns: at(12 * S).0, ended_ns: at(12 * S).0, ..cut }));
    assert_eq!(only(&story.snapshot(13 * S), "S10").doubts, [""; 0]);
}

/// What holds up the relist comes before what holds up one pod, however old that is.
#[test]
fn what_reaches_farthest_comes_first() {
    let hook = ProcessFact {
        command: Some(Command::Other { program: "hook".into() }),
        ..process(Component::Helper, CHILD, RUNC, 0)
    };
    let containerd = stopped(process(Component::Containerd, CONTAINERD, 1, 0));
    let processes = [hook, runc("create", RUNC, SHIM), process(Component::Shim, SHIM, 1, 0), containerd];
    let diagnosis = diagnose(&seen_twice(60 * S, &processes, &[], &[]));
    assert_eq!(ids(&diagnosis), ["R14", "U10"]);
}
