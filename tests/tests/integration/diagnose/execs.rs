//! A command may last; what comes before and after it may not.

use plegtrace::diagnose::{Diagnosis, Reason, Severity, Verdict, diagnose};
use plegtrace::input::{
    Command, Component, Fact, GoroutineGroup, Layer, MessagesFact, OpenMessageFact, ProcessFact,
};
use plegtrace::stuck::{StuckKind, Waiter};
use plegtrace_common::{
    rec::{PROCESS_CRUN, PROCESS_EXECED},
    role::Role,
};
use plegtrace_tests::found::{group, process};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, S, Story, at};

use super::{RUNC, ids, park, syscall};

const CRIO: u32 = 900;
const HANDLER: &str = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ExecSync_Handler";
const EXEC: &str = "github.com/containerd/containerd/pkg/cri/server.(*criService).execInContainer";

fn exec() -> Command {
    Command::Runc { sub: "exec".into(), container: Some("c1".into()), bundle: None }
}

/// A node of which `parent` has run `crun exec` for a while; `then` tells what became of it.
fn foreground(parent: Role, now: u64, looked: bool, then: impl FnOnce(&mut Story)) -> Diagnosis {
    let mut story = Story::node();
    for n in 0..now / S {
        story.relist(n * S, 0);
    }
    story.found(CRIO, parent).fork(CRIO, RUNC, S);
    story.exec(RUNC, Role::Runc, PROCESS_EXECED | PROCESS_CRUN, S).told(RUNC, &exec());
    then(&mut story);
    if looked {
        let component = Component::of_role(parent).unwrap();
        let crun = ProcessFact { command: Some(exec()), ..process(Component::Runc, RUNC, CRIO, S) };
        let seen = [process(component, CRIO, 1, 0), crun];
        story.census(now - S, &seen, &[], &[]).census(now, &seen, &[], &[]);
    }
    story.read_processes(now).read_open(now);
    diagnose(&story.snapshot(now))
}

/// crun makes a process that joins the container, which makes the one that becomes the command.
fn begins(story: &mut Story) {
    let (joins, command) = (RUNC + 1, RUNC + 2);
    story.fork(RUNC, joins, S + 10 * MS).fork(joins, command, S + 20 * MS).exit(S + 30 * MS, joins, 0);
    story.exec(command, Role::Workload, PROCESS_EXECED, S + 40 * MS);
}

/// An exec of CRI-O lasts as long as its command, if that has begun.
#[test]
fn a_command_that_never_begins() {
    for parent in [Role::Crio, Role::Conmon] {
        let late = foreground(parent, 8 * S, false, |_| ());
        let runs = |reason: &Reason| matches!(reason, Reason::ProcessesOpen { pid: RUNC, .. });
        assert!(late.verdict == Verdict::Stall && late.reasons.iter().any(runs), "{late:#?}");
        assert_eq!(foreground(parent, 5 * S, false, |_| ()).verdict, Verdict::Healthy, "it is young");
        assert_eq!(foreground(parent, 600 * S, false, begins).verdict, Verdict::Healthy);
        let ended = |story: &mut Story| {
            begins(story);
            story.exit(2 * S, RUNC + 2, 0);
        };
        assert_eq!(foreground(parent, 600 * S, false, ended).verdict, Verdict::Healthy);
    }
    let late = foreground(Role::Crio, 8 * S, true, |_| ());
    assert!(late.stuck.iter().any(|stuck| stuck.what.pid() == RUNC), "{late:#?}");
    assert_eq!(foreground(Role::Crio, 600 * S, true, begins).verdict, Verdict::Healthy);
}

/// Another exec in the same container says nothing of this one.
#[test]
fn of_two_execs_one_begins() {
    let other = |story: &mut Story| {
        story
            .fork(CRIO, 7_000, S)
            .exec(7_000, Role::Runc, PROCESS_EXECED | PROCESS_CRUN, S)
            .told(7_000, &exec());
        story.fork(7_000, 7_001, S).exec(7_001, Role::Workload, PROCESS_EXECED, S + 9 * MS);
    };
    let late = foreground(Role::Crio, 8 * S, false, other);
    let [Reason::ProcessesOpen { count: 1, pid: RUNC, .. }] = &late.reasons[..] else { panic!("{late:#?}") };
}

/// One whose birth was not seen may run its command for long.
#[test]
fn what_began_before_the_probes_is_not_accused() {
    let mut story = Story::node();
    for n in 0..60 {
        story.relist(n * S, 0);
    }
    story.found(CRIO, Role::Crio).found(RUNC, Role::Runc);
    let crun = ProcessFact { command: Some(exec()), ..process(Component::Runc, RUNC, CRIO, 0) };
    story.census(60 * S, &[process(Component::Crio, CRIO, 1, 0), crun], &[], &[]);
    story.read_processes(60 * S).read_open(60 * S);
    assert!(!diagnose(&story.snapshot(60 * S)).stuck.iter().any(|stuck| stuck.what.pid() == RUNC));
}

/// ExecSyncs of containerd, open since 0.3 s, as looks at these moments find them.
fn looks(at: &[(u64, &[&str])]) -> (Diagnosis, String) {
    let mut story = Story::node();
    let now = 16 * S;
    for n in 0..15 {
        story.relist(n * S, 0);
    }
    for goid in 600..604 {
        story.begin(Layer::Handler, "ExecSync", goid, 100, 300 * MS);
    }
    for (looked, frames) in at {
        let frames = [frames, &[EXEC, HANDLER][..]].concat();
        let groups: Vec<GoroutineGroup> = vec![group(&[600, 601, 602, 603], "semacquire", &frames)];
        story.census(*looked, &[], &groups, &[]);
    }
    story.read_open(now);
    let snapshot = story.snapshot(now);
    (diagnose(&snapshot), text_of(&snapshot, true).unwrap())
}

const LOCK: &[&str] =
    &["sync.runtime_SemacquireMutex", "internal/sync.(*Mutex).lockSlow", "sync.(*Mutex).Lock"];
const TURN: &[&str] = &["go.etcd.io/bbolt.(*DB).beginRWTx"];
/// A thread that waits for nothing.
const IDLE: &str = "epoll_wait";
const OUTPUT: &[&str] = &["sync.runtime_Semacquire", "sync.(*WaitGroup).Wait"];
const START: &[&str] = &["github.com/containerd/ttrpc.(*Client).dispatch", "task.(*ttrpctaskClient).Start"];
const WAIT: &[&str] = &["github.com/containerd/ttrpc.(*Client).dispatch", "task.(*ttrpctaskClient).Wait"];

/// Four ExecSyncs wait for a mutex, and no runc of theirs ever started.
#[test]
fn execs_that_wait_for_a_mutex() {
    for held in [LOCK, START] {
        let (diagnosis, text) = looks(&[(4 * S, held), (9 * S, held), (15 * S, held)]);
        assert_eq!(diagnosis.verdict, Verdict::Stall, "{text}");
        let [stuck] = &diagnosis.stuck[..] else { panic!("{diagnosis:#?}") };
        let StuckKind::Request(request) = &stuck.what else { panic!("{stuck:?}") };
        assert_eq!((request.operation.as_str(), request.count, request.held_ns), ("ExecSync", 4, 11 * S));
        assert!(!text.contains("output to end"), "{text}");
    }
}

/// A command that lasts, or one whose request has only come to a lock a moment ago, is no stall.
#[test]
fn execs_that_last() {
    for all in [
        &[(4 * S, OUTPUT), (9 * S, OUTPUT), (15 * S, OUTPUT)][..],
        &[(4 * S, WAIT), (9 * S, WAIT), (15 * S, WAIT)],
        &[(4 * S, OUTPUT), (9 * S, OUTPUT), (15 * S, LOCK)],
        &[(4 * S, LOCK), (9 * S, OUTPUT), (15 * S, LOCK)],
        &[(4 * S, START), (9 * S, LOCK), (15 * S, START)],
        &[(11 * S, LOCK), (15 * S, LOCK)],
    ] {
        let (diagnosis, text) = looks(all);
        assert_eq!(diagnosis.verdict, Verdict::Healthy, "{all:?}\n{text}");
    }
}

/// Who asked, and what shows that.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asker {
    /// A probe in the kubelet.
    Kubelet,
    /// The kubelet has a probe, which saw nothing.
    Other,
    /// The kubelet's socket; it has no probe.
    Socket,
    /// Nothing.
    Unseen,
}

/// A node whose containerd serves this since 0.3 s, as looks find it; its threads were in this call. Others of its handlers, on
/// goroutines from 601, are as old.
fn served(
    method: &str,
    asker: Asker,
    inner: &[&str],
    call: &str,
    others: &[(&str, GoroutineGroup)],
) -> Diagnosis {
    let handler = format!("k8s.io/cri-api/pkg/apis/runtime/v1._ImageService_{method}_Handler");
    let mut story = Story::node();
    for n in 0..15 {
        story.relist(n * S, 0);
    }
    story.hook(Layer::Handler, method);
    if [Asker::Kubelet, Asker::Other].contains(&asker) {
        story.hook(Layer::KubeletCall, method);
    }
    if asker == Asker::Kubelet {
        story.begin(Layer::KubeletCall, method, 70, 100, 299 * MS);
    }
    story.begin(Layer::Handler, method, 600, 100, 300 * MS);
    let mut groups = vec![group(&[600], "select", &[inner, &[handler.as_str()]].concat())];
    for (goid, (method, group)) in (601..).zip(others) {
        story.hook(Layer::Handler, method).begin(Layer::Handler, method, goid, 100, 300 * MS);
        groups.push(group.clone());
    }
    let parked = vec![park(syscall(call, None))];
    let containerd = ProcessFact { parked, ..process(Component::Containerd, CONTAINERD, 1, 0) };
    for looked in [4 * S, 9 * S, 15 * S] {
        story.census(looked, std::slice::from_ref(&containerd), &groups, &[]);
    }
    if asker == Asker::Socket {
        let open = OpenMessageFact {
            start_ns: at(298 * MS).0,
            asker: KUBELET,
            answerer: CONTAINERD,
            service: "runtime.v1.ImageService".into(),
            method: method.into(),
            ..OpenMessageFact::default()
        };
        let fact = MessagesFact { at_ns: at(16 * S).0, open: vec![open], complete: true };
        story.fact(16 * S, &Fact::Requests(fact));
    }
    story.read_open(16 * S);
    diagnose(&story.snapshot(16 * S))
}

/// An image may take an hour, and waits in many ways meanwhile: for the network, for its turn to download, for a layer to be unpacked.
/// A mutex is none of them.
#[test]
fn a_pull_that_waits_for_a_mutex() {
    let pull = "github.com/containerd/containerd/v2/internal/cri/server.(*CRIImageService).PullImage";
    let verdict =
        |inner: &[&str]| served("PullImage", Asker::Kubelet, &[inner, &[pull]].concat(), IDLE, &[]).verdict;
    assert_eq!(verdict(LOCK), Verdict::Stall);
    for waits in [
        &["golang.org/x/sync/semaphore.(*Weighted).Acquire"][..],
        &["internal/poll.runtime_pollWait", "net.(*conn).Read"],
        &["runtime.chansend1", "github.com/containerd/containerd/v2/core/unpack.(*Unpacker).Unpack.func1"],
    ] {
        assert_eq!(verdict(waits), Verdict::Healthy, "{waits:?}");
    }
}

/// An image that is removed takes its time; to wait for one's turn to write to the database is no part of that. Whoever typed `crictl rmi`
/// queues behind himself, and a list of statistics asks shim after shim.
#[test]
fn work_that_waits_for_its_turn() {
    let queue = [LOCK, TURN].concat();
    for asker in [Asker::Kubelet, Asker::Socket] {
        let held = served("RemoveImage", asker, &queue, IDLE, &[]);
        assert_eq!((held.verdict, ids(&held)), (Verdict::Stall, vec![]), "{asker:?}");
    }
    let slow = served("RemoveImage", Asker::Kubelet, &queue, "fdatasync", &[]);
    assert_eq!(
        (slow.verdict, ids(&slow), slow.findings[0].severity),
        (Verdict::Stall, vec!["R2"], Severity::Stall)
    );
    let stats = ["github.com/containerd/ttrpc.(*Client).dispatch", "task.(*ttrpctaskClient).Stats"];
    for (method, asker, inner) in [
        ("RemoveImage", Asker::Other, &queue[..]),
        ("RemoveImage", Asker::Unseen, &queue),
        ("RemoveImage", Asker::Kubelet, &["syscall.Syscall", "os.removeAll"]),
        ("RemoveImage", Asker::Kubelet, LOCK),
        ("ListContainerStats", Asker::Kubelet, &stats),
    ] {
        let diagnosis = served(method, asker, inner, IDLE, &[]);
        assert!(
            diagnosis.stuck.is_empty() && diagnosis.reasons.is_empty(),
            "{asker:?} {inner:?}: {diagnosis:#?}"
        );
    }
}

/// What may last may not hold up others meanwhile, whoever asked for it: it is named, and who waits behind it.
#[test]
fn work_that_holds_up_others() {
    let commit = ["syscall.Syscall", "syscall.Fdatasync", "go.etcd.io/bbolt.(*Tx).Commit"];
    let create = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_CreateContainer_Handler";
    let behind = group(&[601], "semacquire", &[LOCK, TURN, &[create]].concat());
    for asker in [Asker::Kubelet, Asker::Other] {
        let diagnosis = served("RemoveImage", asker, &commit, IDLE, &[("CreateContainer", behind.clone())]);
        let [stuck] = &diagnosis.stuck[..] else { panic!("{asker:?}: {diagnosis:#?}") };
        let StuckKind::Request(holder) = &stuck.what else { panic!("{stuck:?}") };
        let [Waiter::Requests(waiter)] = &stuck.waiters[..] else { panic!("{stuck:?}") };
        assert_eq!(
            (holder.operation.as_str(), waiter.operation.as_str()),
            ("RemoveImage", "CreateContainer")
        );
        assert_eq!(diagnosis.verdict, Verdict::Stall);
    }
}
