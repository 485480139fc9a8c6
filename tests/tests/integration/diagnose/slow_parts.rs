//! What is slow by itself, a plugin, a hook, a shim, is named; who waits for it, or is merely busy, is not.

use plegtrace::correlate::RecentKind;
use plegtrace::diagnose::{Diagnosis, SlowKind, Verdict, diagnose};
use plegtrace::input::{Command, Component, CpuFact, DaemonCpu, Fact, Layer, MessagesFact, OpenMessageFact};
use plegtrace::render::text;
use plegtrace_common::rec::{CALL_OK, CALL_PARKS, PROCESS_EXECED};
use plegtrace_common::role::Role;
use plegtrace_tests::found::{process, stopped};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, MS, S, Story, at};

use super::{SHIM, ids};

/// Another shim.
const OTHER: u32 = SHIM + 1000;

/// So many seconds with relists as a healthy node has them.
pub(super) fn healthy(seconds: u64) -> Story {
    let mut story = Story::node();
    (0..seconds).for_each(|second| {
        story.relist(second * S, 0);
    });
    story.found(CONTAINERD, Role::Containerd).found(SHIM, Role::Shim).found(OTHER, Role::Shim);
    story.read_open(seconds * S);
    story
}

/// The verdict and its cause, as a person reads them.
fn first_lines(diagnosis: &Diagnosis, story: &Story, seconds: u64) -> String {
    let mut out = Vec::new();
    text::report(
        &story.snapshot(seconds * S),
        diagnosis,
        &text::TextOptions { verbose: true, ..text::TextOptions::default() },
        &mut out,
    )
    .unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("SLOW")).take(6).collect();
    lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(super) fn told(story: &Story, seconds: u64) -> Diagnosis {
    diagnose(&story.snapshot(seconds * S))
}

/// A program of `parent` that runs from `ns` for so long.
fn runs(story: &mut Story, parent: u32, pid: u32, role: Role, command: &Command, ns: u64, length: u64) {
    story.fork(parent, pid, ns).exec(pid, role, PROCESS_EXECED, ns).told(pid, command);
    story.exit(ns + length, pid, 0);
}

/// `runc create` with a hook that takes so long, and 40 ms of its own.
fn creates_with_hook(story: &mut Story, pid: u32, ns: u64, hook: u64) {
    let create = Command::Runc { sub: "create".into(), container: Some("c1".into()), bundle: None };
    let program = Command::Other { program: "toolkit".into() };
    story.fork(SHIM, pid, ns).exec(pid, Role::Runc, PROCESS_EXECED, ns).told(pid, &create);
    runs(story, pid, pid + 1, Role::Helper, &program, ns + 20 * MS, hook);
    story.exit(ns + hook + 40 * MS, pid, 0);
}

/// A hook is named, and not the runc that waits for it.
#[test]
fn a_slow_hook() {
    let slow = |hook| {
        let mut story = healthy(12);
        for n in 0..6 {
            creates_with_hook(&mut story, 30_000 + 10 * n, u64::from(n) * 2 * S, hook);
        }
        (told(&story, 12), story)
    };
    let (diagnosis, story) = slow(1_400 * MS);
    let whats: Vec<_> =
        diagnosis.slow.iter().map(|slow| (&slow.what, slow.p50_ns, slow.component())).collect();
    let hook = SlowKind::Recent(RecentKind::Hook("toolkit".into()));
    assert_eq!(whats, [(&hook, 1_400 * MS, Some(Component::Helper))]);
    let line = first_lines(&diagnosis, &story, 12);
    assert!(
        line.starts_with("SLOW OCI hook toolkit takes 1.4 s (median of 6), more than the 1.0 s"),
        "{line}"
    );
    assert!(line.contains(" culprit the hook itself; every container that has it starts late"), "{line}");
    assert_eq!(slow(600 * MS).0.verdict, Verdict::Healthy);
}

/// Who waits for a plugin is slow, too, while it waits: sandboxes that are not there yet count when they are late already.
#[test]
fn open_calls_that_are_late_count() {
    let slow = |count: u64, seconds: u64| {
        let mut story = healthy(seconds);
        for n in 0..count {
            story.begin(Layer::KubeletCall, "RunPodSandbox", 900 + n, 900, S + n * MS);
        }
        story.read_open(seconds * S);
        told(&story, seconds)
    };
    let diagnosis = slow(3, 16);
    assert_eq!(diagnosis.verdict, Verdict::Slow);
    assert_eq!((diagnosis.slow[0].count, diagnosis.slow[0].p50_ns), (3, 15 * S - MS));
    assert_eq!(slow(2, 16).verdict, Verdict::Healthy);
    assert_eq!(slow(3, 10).verdict, Verdict::Healthy);
}

/// Commands that a shim executes: each lasts so long, and waits for the shim all the time; its `runc exec` runs for so long.
/// Meanwhile another shim executes a quick one.
fn executes(story: &mut Story, count: u32, length: u64, runc: u64) {
    let exec = Command::Runc { sub: "exec".into(), container: Some("c1".into()), bundle: None };
    story.follows_parks().names(0, &["runtime.selectgo", "github.com/containerd/ttrpc.(*Client).dispatch"]);
    for n in 0..count {
        let (goid, from) = (500 + u64::from(n), u64::from(n) * S + 100 * MS);
        story.begin(Layer::Handler, "ExecSync", goid, 700, from);
        runs(story, SHIM, 30_000 + n, Role::Runc, &exec, from + 2 * MS, runc);
        let (other, quick) = (800 + u64::from(n), from + runc + 20 * MS);
        story.begin(Layer::Handler, "ExecSync", other, 700, quick);
        runs(story, OTHER, 31_000 + n, Role::Runc, &exec, quick + 2 * MS, 30 * MS);
        story.park(CONTAINERD, other, quick + MS, quick + 35 * MS, &[1, 2]);
        story.end(Layer::Handler, "ExecSync", other, quick + 40 * MS, CALL_OK | CALL_PARKS);
        story.park(CONTAINERD, goid, from + MS, from + length - MS, &[1, 2]);
        story.end(Layer::Handler, "ExecSync", goid, from + length, CALL_OK | CALL_PARKS);
    }
}

/// A shim that takes its time is named; one that waits for its runc is not.
#[test]
fn a_slow_shim() {
    let slow = |length, runc| {
        let mut story = healthy(12);
        executes(&mut story, 6, length, runc);
        (told(&story, 12), story)
    };
    let (diagnosis, story) = slow(900 * MS, 50 * MS);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Slow, vec![]));
    let shim = &diagnosis.slow[0];
    assert_eq!((&shim.what, shim.count), (&SlowKind::Recent(RecentKind::Shim(SHIM)), 6));
    assert_eq!((shim.p50_ns, shim.component()), (848 * MS, Some(Component::Shim)));
    let line = first_lines(&diagnosis, &story, 12);
    assert!(line.starts_with(&format!("SLOW shim {SHIM} takes 848 ms for a command")), "{line}");
    assert!(line.contains(" culprit the shim itself, which runs only now and then"), "{line}");
    assert_eq!(slow(900 * MS, 700 * MS).0.verdict, Verdict::Healthy);
    assert_eq!(slow(300 * MS, 50 * MS).0.verdict, Verdict::Healthy);
}

/// Of a shim that takes seconds few commands end: what it has not answered counts, too, once, and not while its runc runs.
#[test]
fn a_shim_that_has_not_answered() {
    let slow = |commands: u32, open: u32, runc: bool| {
        let mut story = healthy(12);
        executes(&mut story, commands, 900 * MS, 50 * MS);
        let start = |stream| OpenMessageFact {
            socket: 7,
            stream,
            start_ns: at(6 * S).0,
            asker: CONTAINERD,
            answerer: SHIM,
            service: "containerd.task.v2.Task".into(),
            method: "Start".into(),
            ..OpenMessageFact::default()
        };
        if runc {
            let exec = Command::Runc { sub: "exec".into(), container: Some("c1".into()), bundle: None };
            story
                .fork(SHIM, 32_000, 11 * S)
                .exec(32_000, Role::Runc, PROCESS_EXECED, 11 * S)
                .told(32_000, &exec);
        }
        let open = (0..open).map(start).collect();
        story.fact(12 * S, &Fact::Messages(MessagesFact { at_ns: at(12 * S).0, open, complete: true }));
        told(&story, 12)
    };
    let two = slow(2, 1, false);
    assert_eq!((two.verdict, ids(&two)), (Verdict::Slow, vec![]));
    assert_eq!((two.slow[0].component(), two.slow[0].count), (Some(Component::Shim), 3));
    assert_eq!(slow(2, 0, false).verdict, Verdict::Healthy);
    assert_eq!(slow(2, 1, true).verdict, Verdict::Healthy, "it is the runc that takes its time");
    assert_eq!(slow(0, 5, false).verdict, Verdict::Healthy, "one stop holds up all of them");
}

/// A shim that looks stopped whenever one looks, and works in between, is slow. When it works no more, it is stopped.
#[test]
fn stopped_in_turns() {
    let found = |commands, first_look: u64| {
        let mut story = healthy(12);
        let runs = process(Component::Shim, SHIM, 1, 0);
        for look in [1, 4, 7, 10, 12] {
            let shim = if look < first_look { runs.clone() } else { stopped(runs.clone()) };
            story.census(look * S, &[shim], &[], &[]);
        }
        executes(&mut story, commands, 900 * MS, 50 * MS);
        told(&story, 12)
    };
    let diagnosis = found(12, 1);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Slow, vec![]));
    assert_eq!(diagnosis.slow[0].component(), Some(Component::Shim));
    let diagnosis = found(6, 1);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Stall, vec!["S10"]));
    assert_eq!(found(0, 1).verdict, Verdict::Stall);
}

/// Four plugins of eight seconds, and daemons that wait for a processor a quarter of the time.
#[test]
fn a_slow_plugin_is_not_for_want_of_a_processor() {
    let mut story = healthy(12);
    let add = Command::Cni { plugin: "slow".into(), action: Some("ADD".into()), container: None };
    for n in 0..4 {
        runs(&mut story, CONTAINERD, 30_000 + n, Role::Helper, &add, S + u64::from(n), 8 * S);
    }
    // Its quick DELs do not make up for them.
    let del = Command::Cni { plugin: "slow".into(), action: Some("DEL".into()), container: None };
    for n in 0..9 {
        runs(&mut story, CONTAINERD, 30_100 + n, Role::Helper, &del, 9 * S + u64::from(n), 5 * MS);
    }
    for second in 0..=12 {
        let daemon = DaemonCpu {
            pid: CONTAINERD,
            ran_ns: second * 15 * MS,
            waited_ns: second * 260 * MS,
            threads: 9,
            ..DaemonCpu::default()
        };
        let fact = CpuFact {
            at_ns: at(second * S).0,
            daemons: vec![daemon],
            pressure_ns: Some(second * S / 2),
            ..CpuFact::default()
        };
        story.fact(second * S, &Fact::Cpu(fact));
    }
    let diagnosis = told(&story, 12);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Slow, vec![]));
    let plugin = RecentKind::Cni { plugin: "slow".into(), action: Some("ADD".into()) };
    assert_eq!(diagnosis.slow[0].what, SlowKind::Recent(plugin));
}
