//! Ends that nobody asked for, or that the runtime does not know of.

use plegtrace::input::{
    Component, ContainerFact, EndedInit, GoroutineGroup, ProcessFact, RuntimeSays, RuntimeState,
};
use plegtrace::stuck::{Stuck, StuckKind, find};
use plegtrace_tests::found::{about, pipe_of, process};
use plegtrace_tests::story::{CONTAINERD, S, Story};

use super::{RUNC, SHIM, exec, execs_elsewhere, only, runc, stalled};

/// A child that ended long ago and was never asked for is told, but holds nobody up.
#[test]
fn an_exit_nobody_asked_for() {
    let zombie = ProcessFact { state: 'Z', threads: 1, ..process(Component::Runc, 7, SHIM, 0) };
    let mut story = Story::node();
    story.census(S, std::slice::from_ref(&zombie), &[], &[]).census(20 * S, &[zombie], &[], &[]);
    let snapshot = story.snapshot(20 * S);
    assert!(matches!(only(&snapshot).what, StuckKind::Unreaped { pid: 7, parent: SHIM, .. }));
    assert!(!stalled(&snapshot));
}

/// A late runc whose end was seen is over, also before the next look; one with the same number that a later look found is another.
#[test]
fn what_has_ended_is_not_stuck() {
    let late = |started| runc("update", RUNC, SHIM, started);
    let mut story = Story::node();
    story.census(20 * S, &[late(0)], &[], &[]);
    assert_eq!(only(&story.snapshot(22 * S)).what.pid(), RUNC);
    story.exit(21 * S, RUNC, 0);
    assert!(find(&story.snapshot(22 * S)).is_empty());
    story.census(40 * S, &[late(22 * S)], &[], &[]);
    assert_eq!(only(&story.snapshot(41 * S)).what.pid(), RUNC);
    // A look is told when it is over, and an end meanwhile at once.
    let mut story = Story::node();
    story.exit(21 * S, RUNC, 0).census(20 * S, &[late(0)], &[], &[]);
    assert!(find(&story.snapshot(22 * S)).is_empty());
}

fn c1() -> ContainerFact {
    ContainerFact { id: "c1".into(), pod: Some("p1".into()), ..ContainerFact::default() }
}

/// What the runtime says of a container.
fn says(state: &str) -> RuntimeSays {
    let said = RuntimeState { container: c1(), state: state.into(), runs: state == "running" };
    RuntimeSays { pid: CONTAINERD, version: "v1".into(), containers: vec![said], ..RuntimeSays::default() }
}

/// Rounds that find the first process of a container with this number gone, and what the runtime says at each.
fn unreported(rounds: &[(u64, u32, Option<RuntimeSays>)]) -> Vec<String> {
    let mut story = Story::node();
    for (ns, pid, says) in rounds {
        let (id, exec) = ("c1".into(), None);
        story.ended = vec![EndedInit { id, exec, pid: *pid, zombie: true, tracer: None, commands: 0 }];
        story.says.clone_from(says);
        story.census(*ns, &[], &[], &[]);
    }
    let snapshot = story.snapshot(30 * S);
    assert!(!stalled(&snapshot), "the node goes on");
    let kind = |stuck: &Stuck| format!("{} {} {}", stuck.what.name(), stuck.what.pid(), stuck.since.ns / S);
    find(&snapshot).iter().map(kind).collect()
}

/// A container that has ended and runs, if one asks the runtime: told when two looks far enough apart found it so, and
/// not when the runtime knows, was not asked, did not answer, or speaks of another life of the container.
#[test]
fn ends_that_the_runtime_does_not_know_of() {
    let running = || Some(says("running"));
    assert_eq!(unreported(&[(S, 77, running()), (12 * S, 77, running())]), ["unreported 77 11"]);
    assert_eq!(unreported(&[(S, 77, running()), (9 * S, 77, running())]), [""; 0], "it may still be told");
    assert_eq!(unreported(&[(S, 77, running()), (12 * S, 77, Some(says("exited")))]), [""; 0]);
    assert_eq!(unreported(&[(S, 77, running()), (12 * S, 77, None)]), [""; 0], "nobody asked");
    let silent = RuntimeSays { version: String::new(), containers: Vec::new(), ..says("running") };
    assert_eq!(unreported(&[(S, 77, running()), (12 * S, 77, Some(silent))]), [""; 0], "no answer");
    assert_eq!(unreported(&[(S, 77, running()), (12 * S, 78, running())]), [""; 0], "started again");
}

/// An ExecSync in c1 that waits for the end of its command.
fn at_its_end(goid: u64) -> GoroutineGroup {
    let serving = "github.com/containerd/containerd/pkg/cri/server.(*instrumentedService).ExecSync";
    let mut exec = exec();
    exec.goids = vec![goid];
    exec.frames.insert(1, serving.to_owned());
    about(exec, ").ExecSync", "c1")
}

/// Rounds that find `ended` commands of c1 gone while `commands` run there, and `waiting` ExecSync in flight; what is
/// told of it, and whether the node stalls.
fn commands(
    ended: &[&str],
    commands: u32,
    waiting: &[u64],
    processes: &[ProcessFact],
) -> (Vec<String>, bool) {
    let groups: Vec<GoroutineGroup> = waiting.iter().copied().map(at_its_end).collect();
    commands_and(ended, commands, &groups, processes)
}

/// The same with these requests.
fn commands_and(
    ended: &[&str],
    commands: u32,
    groups: &[GoroutineGroup],
    processes: &[ProcessFact],
) -> (Vec<String>, bool) {
    let mut story = Story::node();
    story.containers = vec![c1()];
    let end = |exec: &&str| EndedInit {
        id: "c1".into(),
        exec: Some((*exec).to_owned()),
        pid: 77,
        zombie: false,
        tracer: None,
        commands,
    };
    story.ended = ended.iter().map(end).collect();
    for ns in [S, 12 * S] {
        story.census(ns, processes, groups, &[]);
    }
    let snapshot = story.snapshot(13 * S);
    let all = find(&snapshot);
    let told = all.iter().filter(|stuck| stuck.what.name() == "unreported");
    (told.map(plegtrace::words::what).collect(), stalled(&snapshot))
}

/// A command that has ended while its ExecSync goes on: told when somebody must be waiting for it, and not when as many
/// commands run as requests wait, nobody waits, or its output is held open, which is another cause.
#[test]
fn ends_of_commands_that_the_runtime_does_not_know_of() {
    let (told, stalls) = commands(&["e1"], 0, &[1], &[]);
    assert_eq!(
        told,
        [format!(
            "a command in container c1 of pod p1 has ended (its process 77 is gone), and runtime {CONTAINERD} still waits for it"
        )]
    );
    assert!(stalls, "a probe hangs");
    assert_eq!(commands(&["e1"], 1, &[1], &[]), (vec![], false), "left by a runtime that was started anew");
    assert_eq!(commands(&["e1"], 1, &[1, 2], &[]).0.len(), 1);
    assert_eq!(commands(&["e1"], 0, &[], &[]), (vec![], false));
    assert_eq!(commands(&[], 0, &[1], &[]).0, [""; 0]);
    let shim = ProcessFact { pipes: vec![pipe_of(RUNC, true)], ..process(Component::Shim, SHIM, 1, 0) };
    assert_eq!(commands(&["e1"], 0, &[1], &[shim]).0, [""; 0], "R8");
}

/// An ExecSync that waits for the shim to answer does not wait for the end of a command: it kills one that was too slow, or knows of
/// its end and deletes it. A shim that is slow to answer has lost nothing. Nor does one at a lock.
#[test]
fn an_exec_that_waits_elsewhere_waits_for_no_end() {
    for elsewhere in execs_elsewhere(1) {
        let elsewhere = about(elsewhere, ").ExecSync", "c1");
        let alone = std::slice::from_ref(&elsewhere);
        assert_eq!(commands_and(&["e1"], 0, alone, &[]).0, [""; 0], "it is being killed: {elsewhere:?}");
        let both = [elsewhere, at_its_end(2)];
        assert_eq!(commands_and(&["e1"], 1, &both, &[]).0, [""; 0], "one runs, one waits for it");
        assert_eq!(commands_and(&["e1"], 0, &both, &[]).0.len(), 1);
    }
}
