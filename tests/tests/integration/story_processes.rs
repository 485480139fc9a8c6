//! Stories of short-lived processes: what a snapshot says of those that run, those that have ended, and those whose
//! records were lost.

use plegtrace::correlate::{Limits, OciRuntime, ProcessEnd, ProcessKind, Side, Snapshot};
use plegtrace::diagnose::{Reason, Verdict, diagnose};
use plegtrace::input::{Command, Component};
use plegtrace_common::rec::{PROCESS_AGAIN, PROCESS_EXECED, PROCESS_INIT};
use plegtrace_common::role::Role;
use plegtrace_tests::life::Life;
use plegtrace_tests::story::{CONTAINERD, MS, S, Story};

const SHIM: u32 = 900;

fn runc(sub: &str, container: &str) -> Command {
    Command::Runc {
        sub: sub.into(),
        container: Some(container.into()),
        bundle: Some(format!("/b/{container}")),
    }
}

/// A healthy node with a shim, up to `seconds`.
fn node(seconds: u64) -> Story {
    let mut story = Story::node();
    story.found(CONTAINERD, Role::Containerd).found(SHIM, Role::Shim).read_processes(0);
    for n in 0..seconds {
        story.relist(n * S, 0);
    }
    story.read_open(seconds * S);
    story
}

/// A shim's runc: fork, exec, command.
fn start_runc(story: &mut Story, pid: u32, sub: &str, container: &str, ns: u64) {
    story.fork(SHIM, pid, ns).exec(pid, Role::Runc, PROCESS_EXECED, ns + MS).told(pid, &runc(sub, container));
}

fn row<'a>(snapshot: &'a Snapshot, name: &str) -> &'a plegtrace::correlate::ProcessRow {
    snapshot.processes.rows.iter().find(|row| row.kind.to_string() == name).unwrap()
}

/// create → init (which starts itself again) → its forks → workload: each command counts once, with its container.
#[test]
fn a_container_is_made() {
    let mut story = node(3);
    start_runc(&mut story, 10, "create", "c1", 100 * MS);
    story.fork(10, 11, 110 * MS).exec(11, Role::Runc, PROCESS_EXECED | PROCESS_INIT, 120 * MS);
    let init = Command::Runc { sub: "init".into(), container: None, bundle: None };
    story.told(11, &init);
    story.exec(11, Role::Runc, PROCESS_EXECED | PROCESS_INIT | PROCESS_AGAIN, 125 * MS).told(11, &init);
    story.fork(11, 12, 130 * MS).fork(12, 13, 140 * MS).exit(150 * MS, 12, 0).exit(151 * MS, 11, 0);
    story.exit(160 * MS, 10, 0).read_processes(200 * MS);
    let waiting = story.snapshot(3 * S);
    let [init] = &waiting.processes.open[..] else { panic!("{:?}", waiting.processes.open) };
    assert_eq!(
        (init.pid, &init.kind, init.container.as_deref()),
        (13, &ProcessKind::RuncInit { by: OciRuntime::Runc }, Some("c1"))
    );
    assert_eq!((init.under.as_deref(), init.late, init.age_ns), (Some("create"), false, 2880 * MS));
    assert_eq!(diagnose(&waiting).verdict, Verdict::Healthy);

    story.exec(13, Role::Workload, PROCESS_EXECED, 220 * MS).read_processes(3 * S);
    let made = story.snapshot(3 * S);
    assert!(made.processes.open.is_empty());
    assert_eq!(row(&made, "runc create").latency.max_ns(), 59 * MS);
    let init = row(&made, "runc init");
    assert_eq!((init.latency.count(), init.latency.max_ns(), init.failed), (1, 100 * MS, 0));
    let [workload] = &made.processes.workloads[..] else { panic!("{:?}", made.processes.workloads) };
    assert_eq!((workload.pid, workload.container.as_deref()), (13, Some("c1")));

    story.exit(4 * S, 13, 9);
    let ended = &story.snapshot(4 * S).processes.workloads_ended;
    assert_eq!(ended[0].end.unwrap().1, ProcessEnd::Killed(9));
}

/// A runc that hangs is a stall after 5 s, named with its container and its shim; a younger one is not.
#[test]
fn a_late_runc_is_a_stall() {
    let mut story = node(8);
    start_runc(&mut story, 10, "kill", "c1", S);
    start_runc(&mut story, 11, "exec", "c2", 4 * S);
    story.read_processes(8 * S);
    let snapshot = story.snapshot(8 * S);
    let late: Vec<(u32, bool)> = snapshot.processes.open.iter().map(|p| (p.pid, p.late)).collect();
    assert_eq!(late, [(10, true), (11, false)]);
    assert_eq!(snapshot.processes.open[0].parents, [(SHIM, ProcessKind::Shim { action: None })]);
    let reasons = diagnose(&snapshot).reasons;
    let [Reason::ProcessesOpen { kind, count: 1, pid: 10, container, .. }] = &reasons[..] else {
        panic!("{reasons:?}")
    };
    assert_eq!((kind.to_string().as_str(), container.as_deref()), ("runc kill", Some("c1")));
}

/// What a runc of a story is doing, outermost first.
fn phases(snapshot: &Snapshot, pid: u32) -> Vec<(String, u64)> {
    let process = snapshot.processes.open.iter().find(|process| process.pid == pid).unwrap();
    process.phases.iter().map(|phase| (phase.operation.clone(), phase.age_ns / MS)).collect()
}

/// The phases of a runc nest, and end with a record, whichever of reading and record comes first; none is an open call.
#[test]
fn phases_of_a_runc() {
    let mut story = node(8);
    start_runc(&mut story, 10, "create", "c1", S);
    story.enter(10, "start", 500, 1100 * MS).enter(10, "parseSync", 900, 1200 * MS);
    story.enter(10, "RunHooks", 1300, 1300 * MS).read_processes(2 * S).read_open(2 * S);
    let inside = ["libcontainer.start", "libcontainer.parseSync", "libcontainer.RunHooks"];
    let hook = story.snapshot(7 * S);
    let ages = inside.iter().map(|name| (*name).to_owned()).zip([5900, 5800, 5700]).collect::<Vec<_>>();
    assert_eq!(phases(&hook, 10), ages);
    assert!(hook.open.iter().all(|call| call.span.id.tgid != 10), "{:?}", hook.open);
    assert_eq!(hook.closed_unseen, Default::default());

    let before = story.open_mut().clone();
    story.leave("RunHooks", 6900 * MS).leave("parseSync", 6950 * MS);
    assert_eq!(phases(&story.snapshot(7 * S), 10), ages[..1], "records after the reading");
    let after = std::mem::replace(story.open_mut(), before);
    story.read_open(6940 * MS);
    assert_eq!(phases(&story.snapshot(7 * S), 10), ages[..1], "records before the reading, which is older");
    *story.open_mut() = after;
    story.read_open(7 * S);
    assert_eq!(phases(&story.snapshot(7 * S), 10), ages[..1]);
    let row = |snapshot: &Snapshot, operation: &str| {
        let row = snapshot.rows.iter().find(|row| row.key.operation == operation).unwrap();
        (row.key.side, row.key.tgid, row.latency.count())
    };
    start_runc(&mut story, 11, "delete", "c1", 7 * S);
    story.enter(11, "RunHooks", 700, 7100 * MS).leave("RunHooks", 7200 * MS);
    assert_eq!(row(&story.snapshot(8 * S), "RunHooks"), (Side::RuncPhase, 0, 2), "one row for all runc");
}

/// Phases are those of the program that runs now, and of a phase that was left without a record nothing stays.
#[test]
fn phases_of_another_program() {
    let mut story = node(8);
    start_runc(&mut story, 10, "create", "c1", S);
    story.enter(10, "parseSync", 900, 1200 * MS).enter(10, "destroy", 800, 1300 * MS);
    story.read_processes(2 * S).read_open(2 * S);
    assert_eq!(phases(&story.snapshot(3 * S), 10), [("libcontainer.destroy".to_owned(), 1700)], "unwound");
    story.exit(3 * S, 10, 0);
    start_runc(&mut story, 10, "start", "c2", 3500 * MS);
    story.read_processes(4 * S).read_open(4 * S);
    assert_eq!(phases(&story.snapshot(4 * S), 10), [], "the pid has another owner");
    let left = story.snapshot(4 * S);
    assert_eq!((left.closed_unseen, left.tally.unwound), (Default::default(), 0));
}

/// What may last: commands started by hand, log drivers, decompressors, and runc that looks on.
#[test]
fn patience() {
    let mut story = node(60);
    story.exec(20, Role::Runc, PROCESS_EXECED, S).told(20, &runc("exec", "c1"));
    let other = |program: &str| Command::Other { program: program.into() };
    story.fork(SHIM, 21, S).exec(21, Role::Helper, PROCESS_EXECED, S).told(21, &other("logger"));
    story.fork(CONTAINERD, 22, S).exec(22, Role::Helper, PROCESS_EXECED, S).told(22, &other("unpigz"));
    start_runc(&mut story, 23, "events", "c1", S);
    story.fork(CONTAINERD, 24, S).exec(24, Role::Shim, PROCESS_EXECED, S);
    story.told(24, &Command::Shim { action: None, namespace: None, id: Some("s".into()) });
    story.read_processes(60 * S);
    let snapshot = story.snapshot(60 * S);
    assert_eq!(snapshot.processes.open.len(), 4, "the server of a shim is no short-lived process");
    assert!(snapshot.processes.open.iter().all(|process| !process.late), "{:?}", snapshot.processes.open);
    assert_eq!(diagnose(&snapshot).verdict, Verdict::Healthy);
}

/// Plugins and hooks have their own limit.
#[test]
fn late_plugins_and_hooks() {
    let mut story = node(14);
    let plugin =
        Command::Cni { plugin: "bridge".into(), action: Some("ADD".into()), container: Some("s1".into()) };
    story.fork(CONTAINERD, 30, S).exec(30, Role::Helper, PROCESS_EXECED, S).told(30, &plugin);
    start_runc(&mut story, 31, "create", "c1", 2 * S);
    story.fork(31, 32, 2 * S + 5 * MS).exec(32, Role::Helper, PROCESS_EXECED, 2 * S + 9 * MS);
    story.told(32, &Command::Other { program: "nvidia-hook".into() }).read_processes(14 * S);
    let at = |seconds: u64| -> Vec<String> {
        let snapshot = story.snapshot(seconds * S);
        snapshot.processes.open.iter().filter(|p| p.late).map(|p| p.kind.to_string()).collect()
    };
    assert_eq!(at(7), Vec::<String>::new());
    assert_eq!(at(14), ["CNI bridge ADD", "runc create", "hook nvidia-hook"]);
    assert_eq!(story.snapshot(14 * S).processes.open[2].container.as_deref(), Some("c1"));
}

/// The names of helpers have no end (a runtime that is not known runs whatever a container runs): those that find no row share one,
/// and nothing is lost.
#[test]
fn helpers_with_many_names() {
    let mut story = node(8);
    for n in 0..400 {
        let (pid, at) = (1000 + n, u64::from(n) * 10 * MS);
        story.fork(SHIM, pid, at).exec(pid, Role::Helper, PROCESS_EXECED, at + MS);
        story.told(pid, &Command::Other { program: format!("job-{n}") }).exit(at + 5 * MS, pid, 0);
    }
    start_runc(&mut story, 10, "exec", "c1", 6 * S);
    story.exit(6 * S + 9 * MS, 10, 0).read_processes(8 * S);
    let snapshot = story.snapshot(8 * S);
    assert_eq!(snapshot.real_losses().count(), 0, "nothing is missed");
    assert_eq!(diagnose(&snapshot).verdict, Verdict::Healthy);
    let counted: u64 = snapshot.processes.rows.iter().map(|row| row.latency.count()).sum();
    assert_eq!((counted, row(&snapshot, "other programs").latency.count()), (401, 400 - 128));
    assert_eq!(
        row(&snapshot, "runc exec").latency.count(),
        1,
        "what helpers are called takes no room from runc"
    );
}

/// Exit codes and signals are counted, and kept for a while.
#[test]
fn failures() {
    let mut story = node(3);
    for (pid, status) in [(40, 0), (41, 1 << 8), (42, 9), (43, 0x80 | 11)] {
        start_runc(&mut story, pid, "kill", "c1", u64::from(pid) * MS);
        story.exit(u64::from(pid) * MS + 2 * MS, pid, status);
    }
    let snapshot = story.snapshot(3 * S);
    let kill = row(&snapshot, "runc kill");
    assert_eq!((kill.latency.count(), kill.failed, kill.killed), (4, 1, 2));
    let how: Vec<ProcessEnd> = snapshot.processes.failed.iter().map(|process| process.how).collect();
    assert_eq!(how, [ProcessEnd::Exited(1), ProcessEnd::Killed(9), ProcessEnd::Killed(11)]);
    assert_eq!(snapshot.processes.slowest.len(), 4);
}

/// The reading of the map is older than the ring: what ended in between is not open, whichever comes first.
#[test]
fn readings_and_ends() {
    for end_first in [true, false] {
        let mut story = node(3);
        start_runc(&mut story, 50, "start", "c1", 100 * MS);
        story.with_reading(200 * MS, |story, reading| {
            if end_first {
                story.exit(300 * MS, 50, 0).fact_of(reading);
            } else {
                story.fact_of(reading).exit(300 * MS, 50, 0);
            }
        });
        let snapshot = story.snapshot(3 * S);
        assert!(snapshot.processes.open.is_empty(), "{end_first}: {:?}", snapshot.processes.open);
        assert_eq!(row(&snapshot, "runc start").latency.count(), 1);
    }
}

/// With its records lost a process is still open by the map, and over when two readings no longer have it.
#[test]
fn lost_records() {
    let mut story = node(3);
    story.keep_in_map_only(60, SHIM, Role::Runc, PROCESS_EXECED, 100 * MS).read_processes(S);
    let open = story.snapshot(2 * S).processes.open;
    assert_eq!((open.len(), open[0].kind.to_string().as_str()), (1, "runc (command not read)"));
    assert_eq!(open[0].age_ns, 1900 * MS);
    story.drop_from_map(60).read_processes(2 * S);
    assert_eq!(story.snapshot(2 * S).processes.open.len(), 1, "its last record may be on its way");
    story.read_processes(3 * S);
    let processes = story.snapshot(3 * S).processes;
    assert_eq!((processes.open.len(), processes.ended_unseen), (0, 1));
}

/// A runc that was there before the probes has a lower bound for its age, and is never late by it.
#[test]
fn older_than_the_probes() {
    let mut story = Story::node();
    story.found(70, Role::Runc).read_processes(60 * S);
    let open = story.snapshot(60 * S).processes.open;
    assert_eq!((open[0].start, open[0].at_least, open[0].late, open[0].age_ns), (None, true, false, 60 * S));
}

/// Bounds hold, and what they cost is told.
#[test]
fn bounds() {
    let mut story = Story::node();
    story.target(Component::Shim, SHIM, "1").found(SHIM, Role::Shim);
    for n in 0..50 {
        start_runc(&mut story, 100 + n, &format!("sub{n}"), "c1", u64::from(n) * MS);
    }
    let limits = Limits { processes: 20, process_rows: 5, process_list: 3, ..Limits::default() };
    for n in 0..50 {
        story.exit(S + u64::from(n) * MS, 100 + n, 9);
    }
    let snapshot = story.snapshot_within(limits, 2 * S);
    let processes = &snapshot.processes;
    assert_eq!((processes.rows.len(), processes.failed.len(), processes.slowest.len()), (5, 3, 3));
    let reasons: Vec<&str> = snapshot.real_losses().map(|loss| loss.reason.as_str()).collect();
    assert_eq!(reasons, ["processes_full", "process_rows_full"]);
}
