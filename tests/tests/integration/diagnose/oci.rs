//! Runtimes that are called as runc is (youki, sysbox-runc, runsc): their commands are late as its are, under their own names.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Reason, Verdict, diagnose};
use plegtrace::input::{Command, Component, ProcessFact};
use plegtrace::stuck::{StuckKind, Waiter};
use plegtrace_common::{rec::PROCESS_EXECED, role::Role};
use plegtrace_tests::found::{group, process, stopped};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::story::{S, Story};

use super::{CHILD, RUNC, SHIM};

fn command(program: &str, sub: &str) -> Command {
    let (program, sub, container) = (program.into(), sub.into(), Some("c1".into()));
    Command::Oci { program, sub, container, bundle: None }
}

/// A command that a shim has run since the beginning.
fn of_shim(program: &str, sub: &str) -> ProcessFact {
    let fact = process(Component::Helper, RUNC, SHIM, 0);
    ProcessFact { command: Some(command(program, sub)), comm: program.into(), ..fact }
}

fn create() -> plegtrace::input::GoroutineGroup {
    let frames = [
        "github.com/containerd/ttrpc.(*Client).Call",
        "github.com/containerd/containerd/runtime/v2/task.(*taskClient).Create",
        "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_StartContainer_Handler",
    ];
    group(&[60], "select", &frames)
}

fn looked(runtime: &ProcessFact, now: u64) -> Snapshot {
    let mut story = Story::node();
    for n in 0..now / S {
        story.relist(n * S, 0);
    }
    let shim = process(Component::Shim, SHIM, 1, 0);
    for ns in [now - 3 * S, now] {
        story.census(ns, &[shim.clone(), runtime.clone()], &[create()], &[]);
    }
    story.read_open(now).snapshot(now)
}

/// What the looks found is late as a runc is; its shim, and the request behind that, wait for it.
#[test]
fn a_command_that_does_not_end() {
    for program in ["youki", "sysbox-runc", "runsc"] {
        let snapshot = looked(&of_shim(program, "create"), 8 * S);
        let diagnosis = diagnose(&snapshot);
        let [Reason::Stuck(stuck)] = diagnosis.reasons.as_slice() else { panic!("{diagnosis:#?}") };
        assert!(matches!(&stuck.what, StuckKind::Process { pid: RUNC, .. }), "{stuck:#?}");
        let asks = |waiter: &Waiter| matches!(waiter, Waiter::Requests(request) if request.operation == "StartContainer");
        assert!(stuck.waiters.iter().any(asks), "{stuck:#?}");
        let page = text_of(&snapshot, false).unwrap();
        assert!(page.contains(&format!("{program} create")) && !page.contains(" runc create"), "{page}");
        assert_eq!(diagnosis.verdict, Verdict::Stall);
        assert_eq!(diagnose(&looked(&of_shim(program, "create"), 4 * S)).verdict, Verdict::Healthy);
    }
    // These last as long as a container does.
    assert_eq!(diagnose(&looked(&of_shim("youki", "run"), 60 * S)).reasons, []);
    let halted = diagnose(&looked(&stopped(of_shim("youki", "kill")), 8 * S));
    assert!(matches!(&halted.stuck[0].what, StuckKind::Stopped { command: Some(_), .. }), "{halted:#?}");
}

/// A shim that runs such a command has something to do.
#[test]
fn its_shim_works() {
    let idle = |snapshot: &Snapshot| {
        let shim = snapshot.census.processes.iter().find(|seen| seen.fact.pid == SHIM);
        shim.unwrap().idle_since.is_some()
    };
    assert!(!idle(&looked(&of_shim("youki", "create"), 4 * S)));
    let other = ProcessFact { command: Some(Command::Other { program: "log".into() }), ..of_shim("log", "") };
    assert!(idle(&looked(&other, 4 * S)));
}

/// The same by the births of processes: it has a row under its own name, and is late when it is open for so long.
#[test]
fn by_its_birth() {
    let born = |maker: Role, program: &str, sub: &str, now: u64| {
        let mut story = Story::node();
        story.found(SHIM, maker).fork(SHIM, CHILD, S).exec(CHILD, Role::Helper, PROCESS_EXECED, S);
        story.told(CHILD, &command(program, sub)).read_processes(now);
        let snapshot = story.snapshot(now);
        let [open] = snapshot.processes.open.as_slice() else { panic!("{:#?}", snapshot.processes) };
        (open.kind.to_string(), open.late)
    };
    assert_eq!(born(Role::Shim, "youki", "create", 7 * S), ("youki create".into(), true));
    assert_eq!(born(Role::Shim, "youki", "create", 5 * S), ("youki create".into(), false));
    assert_eq!(born(Role::Shim, "runsc", "exec", 7 * S), ("runsc exec".into(), true));
    // CRI-O runs it for as long as its client stays connected.
    assert_eq!(born(Role::Crio, "runsc", "exec", 70 * S), ("runsc exec".into(), false));
    assert_eq!(born(Role::Shim, "youki", "events", 70 * S), ("youki events".into(), false));
}
