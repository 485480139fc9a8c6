//! Shims that run, run nothing, and do not answer (S1, S7).

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Severity, Verdict, diagnose};
use plegtrace::input::{
    CensusFact, Component, ContainerFact, Fact, GoroutineGroup, ProcessFact, VersionFact,
};
use plegtrace::stuck::StuckKind;
use plegtrace_tests::found::{about, group, lists, process, relist, update};
use plegtrace_tests::story::{S, Story, at};

use super::{CHILD, RUNC, SHIM, culprit, exits, ids, none, only, runc};

/// The goroutine that serves the request.
const SERVING: u64 = 76;

/// A handler that waits for the shim of c1 to answer.
fn asks(operation: &str, method: &str) -> GoroutineGroup {
    let handler = format!("k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_{operation}_Handler");
    let serves =
        format!("github.com/containerd/containerd/pkg/cri/server.(*instrumentedService).{operation}");
    let asks = format!("github.com/containerd/containerd/runtime/v2/task.(*taskClient).{method}");
    let frames = ["github.com/containerd/ttrpc.(*Client).dispatch", &asks, &serves, &handler];
    about(group(&[SERVING], "select", &frames), &format!(").{operation}"), "c1")
}

/// What the shim does: it handles the exit of a process in the middle of its create.
fn locked_out() -> GoroutineGroup {
    let of = |name: &str| format!("github.com/containerd/containerd/runtime/v2/runc/task.(*service).{name}");
    let own = ["handleProcessExit", "preStart.func1", "Create"].map(of);
    let mut frames =
        vec!["runtime.gopark", "internal/sync.runtime_SemacquireMutex", "internal/sync.(*Mutex).lockSlow"];
    frames.extend(own.iter().map(String::as_str));
    group(&[31], "sync.Mutex.Lock", &frames)
}

/// The same when its lock and its reaper wait for each other: the reaper, who reads exits, and who holds the lock.
fn deadlocked() -> [GoroutineGroup; 3] {
    let of = |name: &str| format!("github.com/containerd/containerd/runtime/v1/shim.{name}");
    let (reap, reads) = (of("Reap"), of("(*Service).processExits"));
    let (handles, waits, starts) =
        (of("(*Service).checkProcesses"), of("(*Monitor).Wait"), of("(*Service).Start"));
    let reaper = ["runtime.gopark", "runtime.chansend", "runtime.chansend1", &reap, "main.handleSignals"];
    let reader = ["sync.runtime_SemacquireMutex", "sync.(*Mutex).Lock", &handles, &reads];
    let holder = ["runtime.gopark", "runtime.chanrecv2", &waits, "go-runc.(*Runc).Exec", &starts];
    [
        group(&[1], "chan send", &reaper),
        group(&[5], "semacquire", &reader),
        group(&[90], "chan receive", &holder),
    ]
}

/// Its children that have ended: the runc that has started a command, and another command.
fn ended() -> [ProcessFact; 2] {
    let ended = |fact: ProcessFact| ProcessFact { state: 'Z', ..fact };
    let command = ProcessFact { comm: "sleep".into(), ..process(Component::Helper, CHILD, SHIM, 0) };
    [ended(process(Component::Runc, RUNC, SHIM, 0)), ended(command)]
}

/// A node whose shims have this version, and looks at these times that find the request, and of the shim these goroutines.
fn seen(
    version: &str,
    asks: &GoroutineGroup,
    shim: &[GoroutineGroup],
    below: &[ProcessFact],
    looks: &[u64],
) -> Snapshot {
    seen_or_not(version, asks, Some(shim), below, looks)
}

/// The same, when the goroutines of the shim may not be readable.
fn seen_or_not(
    version: &str,
    asks: &GoroutineGroup,
    shim: Option<&[GoroutineGroup]>,
    below: &[ProcessFact],
    looks: &[u64],
) -> Snapshot {
    let mut story = Story::node();
    let sandbox = Some("s1".to_owned());
    let c1 = ContainerFact { id: "c1".into(), sandbox, pod: Some("p1".into()), ..ContainerFact::default() };
    story.containers = vec![c1];
    let version = VersionFact { program: Component::Shim.name().into(), version: version.into() };
    let versions = CensusFact { ended_ns: at(0).0, versions: vec![version], ..CensusFact::default() };
    story.fact(0, &Fact::Census(versions));
    let processes: Vec<ProcessFact> = [&[exits::shim()], below].concat();
    for ns in looks {
        // Before its round is over.
        if let Some(shim) = shim {
            story.goroutines(*ns, Component::Shim, SHIM, shim);
        }
        story.census(*ns, &processes, std::slice::from_ref(asks), &[]);
    }
    story.snapshot(*looks.last().unwrap())
}

/// Three looks, four seconds apart in all.
const LOOKS: [u64; 3] = [S, 2 * S, 5 * S];

/// Its own goroutine tells.
#[test]
fn s7_from_the_goroutine_of_the_shim() {
    let snapshot = seen("1.7.7", &asks("StartContainer", "Create"), &[locked_out()], &[], &LOOKS);
    let finding = only(&snapshot, "S7");
    assert_eq!((finding.severity, finding.confidence), (Severity::Stall, Confidence::High), "{finding:#?}");
    assert_eq!(culprit(&finding), Some(SHIM));
    assert!(
        finding.evidence.iter().any(|one| one.text.contains("handleProcessExit")),
        "{:#?}",
        finding.evidence
    );
    assert!(finding.victims.iter().any(|victim| victim.contains("StartContainer")), "{:?}", finding.victims);
    assert_eq!(finding.next[0], format!("`kill -9 {SHIM}`: the kubelet starts the pod anew"));
    let snapshot = seen("1.7.24", &asks("StartContainer", "Create"), &[locked_out()], &[], &LOOKS);
    assert_eq!(only(&snapshot, "S7").confidence, Confidence::Medium);
}

/// A lock that is held for as long as a runc works is nothing to speak of, nor one that two looks in a row found.
#[test]
fn s7_needs_a_shim_that_runs_nothing() {
    let asks = asks("StartContainer", "Create");
    let work = [runc("create", RUNC, SHIM)];
    let young = process(Component::Runc, RUNC, SHIM, 4 * S);
    let young = [ProcessFact { command: work[0].command.clone(), ..young }];
    for (below, looks) in [(&young[..], &LOOKS[..]), (&[], &LOOKS[..2])] {
        none(&seen("1.7.7", &asks, &[locked_out()], below, looks));
    }
}

/// Without that goroutine it is a shim that does not answer, and no cause is named; nor is anything said of a request that may last.
#[test]
fn a_silent_shim_is_told_of() {
    let looks = [S, 8 * S, 15 * S];
    let snapshot = seen("1.7.7", &asks("ContainerStats", "Stats"), &[], &[], &looks);
    let diagnosis = diagnose(&snapshot);
    assert_eq!((ids(&diagnosis), diagnosis.verdict), (vec![], Verdict::Stall), "{diagnosis:#?}");
    let [stuck] = diagnosis.stuck.as_slice() else { panic!("{:#?}", diagnosis.stuck) };
    let StuckKind::SilentShim { shim, method, lock: None } = &stuck.what else { panic!("{stuck:#?}") };
    assert_eq!((*shim, method.as_str(), stuck.waiters.len()), (SHIM, "Stats", 1));
    let diagnosis = diagnose(&seen("1.7.7", &asks("StopContainer", "Wait"), &[], &[], &looks));
    assert_eq!(diagnosis.stuck, [], "{diagnosis:#?}");
}

/// Lists that wait for an update which this shim does not answer: the lists are the story, and killing the shim is said to cost the pod.
#[test]
fn r1_behind_a_silent_shim() {
    let mut story = Story::node();
    let sandbox = Some("s1".to_owned());
    story.containers = vec![ContainerFact { id: "c1".into(), sandbox, ..ContainerFact::default() }];
    story.relist(S, 0);
    let update = about(update(), ").UpdateContainerResources", "c1");
    for ns in LOOKS {
        story.goroutines(ns, Component::Shim, SHIM, &[locked_out()]);
        story.census(ns, &[exits::shim()], &[update.clone(), lists()], &[relist()]);
    }
    let diagnosis = diagnose(&story.snapshot(LOOKS[2]));
    let finding = &diagnosis.findings[0];
    assert_eq!((finding.rule.id, culprit(finding)), ("R1", Some(SHIM)), "{diagnosis:#?}");
    let next =
        format!("`kill -9 {SHIM}` (the shim): the lists answer, and the containers of its pod are restarted");
    assert_eq!(finding.next[0], next);
}

/// Who merely waits for a lock of the shim waits for whoever holds it, which may take a while: a mount runs no runc.
#[test]
fn a_lock_that_another_one_holds_is_no_proof() {
    let of = |name: &str| format!("github.com/containerd/containerd/runtime/v2/runc/task.(*service).{name}");
    let own = ["getContainer", "Stats"].map(of);
    let frames = ["internal/sync.(*Mutex).lockSlow", &own[0], &own[1]];
    let waits = group(&[31], "sync.Mutex.Lock", &frames);
    let diagnosis = diagnose(&seen("1.7.7", &asks("ContainerStats", "Stats"), &[waits], &[], &LOOKS));
    assert_eq!(diagnosis.stuck, [], "{diagnosis:#?}");
}

/// Three goroutines that wait for each other tell, and what nobody reaps.
#[test]
fn s1_from_three_goroutines() {
    let asks = asks("ExecSync", "Start");
    let finding = only(&seen("1.2.0", &asks, &deadlocked(), &ended(), &LOOKS), "S1");
    assert_eq!((finding.severity, finding.confidence), (Severity::Stall, Confidence::High), "{finding:#?}");
    assert_eq!(culprit(&finding), Some(SHIM));
    let children =
        format!("2 of its children have ended and have not been reaped: runc {RUNC}, sleep {CHILD}");
    for wanted in ["shim.Reap", "processExits", "(*Monitor).Wait", &children] {
        let told = finding.evidence.iter().any(|one| one.text.contains(wanted));
        assert!(told, "{wanted}: {:#?}", finding.evidence);
    }
    assert!(finding.victims.iter().any(|victim| victim.contains("ExecSync")), "{:?}", finding.victims);
    assert_eq!(finding.next[0], format!("`kill -9 {SHIM}`: the kubelet starts the pod anew"));
    // Another release; and nobody has ended since.
    for (version, below) in [("1.7.24", &ended()[..]), ("1.2.0", &[])] {
        let finding = only(&seen(version, &asks, &deadlocked(), below, &LOOKS), "S1");
        assert_eq!(finding.confidence, Confidence::Medium, "{version} {finding:#?}");
    }
}

/// It takes a circle, in a shim that runs nothing: whoever is missing lets the others go on. One that has ended runs nothing.
#[test]
fn s1_needs_all_three() {
    let asks = asks("ExecSync", "Start");
    // A reaper of later releases, a reader without an exit, a request that is behind the others.
    let healthy = [
        group(&[1], "select", &["runtime.gopark", "runtime.selectgo", "runtime/v1/shim.Reap"]),
        group(
            &[5],
            "chan receive",
            &["runtime.gopark", "runtime.chanrecv2", "v1/shim.(*Service).processExits"],
        ),
        group(&[90], "semacquire", &["sync.(*Mutex).Lock", "runtime/v1/shim.(*Service).Start"]),
    ];
    for (place, healthy) in healthy.into_iter().enumerate() {
        let mut found = deadlocked();
        found[place] = healthy;
        none(&seen("1.2.0", &asks, &found, &ended(), &LOOKS));
    }
    let young = ProcessFact {
        command: runc("exec", RUNC, SHIM).command,
        ..process(Component::Runc, RUNC, SHIM, 4 * S)
    };
    none(&seen("1.2.0", &asks, &deadlocked(), &[young], &LOOKS));
    // What waits for the end of a command does not wait for an answer: this shim has answered all that it was asked.
    none(&seen("1.2.0", &self::asks("ExecSync", "Wait"), &deadlocked(), &ended(), &LOOKS));
}

/// A shim that answers is no case of it, whatever it leaves unreaped: a tracer may hold that back.
#[test]
fn s1_needs_a_request_without_an_answer() {
    let mut story = Story::node();
    for ns in [S, 8 * S, 15 * S] {
        let [runc, command] = ended();
        story.census(ns, &[exits::shim(), runc, command], &[], &[]);
    }
    none(&story.snapshot(15 * S));
}

/// The goroutines of the oldest shims cannot be read: then a runc that nobody reaps is the best that there is.
#[test]
fn s1_from_a_runc_that_nobody_reaps() {
    let looks = [S, 8 * S, 15 * S];
    let asks = asks("ContainerStats", "Stats");
    let finding = only(&seen_or_not("1.1.3", &asks, None, &ended(), &looks), "S1");
    assert_eq!((culprit(&finding), finding.confidence), (Some(SHIM), Confidence::Low), "{finding:#?}");
    let [runc, command] = ended();
    // Goroutines that were read tell more, and only a runc is waited for.
    none_named(&seen("1.1.3", &asks, &[], &[runc], &looks));
    none_named(&seen_or_not("1.1.3", &asks, None, &[command], &looks));
}

/// The shim does not answer, and why is not known.
fn none_named(snapshot: &Snapshot) {
    let diagnosis = diagnose(snapshot);
    assert_eq!((ids(&diagnosis), diagnosis.verdict), (vec![], Verdict::Stall), "{diagnosis:#?}");
}
