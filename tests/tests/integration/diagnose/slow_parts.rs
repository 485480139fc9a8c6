//! What is slow by itself, a plugin, a hook, a shim, a disk, is named; who waits for it, or is merely busy, is not.

use plegtrace::correlate::RecentKind;
use plegtrace::diagnose::{Confidence, Diagnosis, Severity, SlowKind, Verdict, diagnose};
use plegtrace::input::{
    Command, CpuFact, DaemonCpu, DiskFact, Fact, Layer, MessagesFact, OpenMessageFact, WriteLimit,
};
use plegtrace::render::text;
use plegtrace_common::rec::{CALL_OK, CALL_PARKS, PROCESS_EXECED};
use plegtrace_common::role::Role;
use plegtrace_tests::found::{process, stopped};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, MS, S, Story, at};

use super::{SHIM, culprit, ids, park, syscall};
use plegtrace::input::Component;

/// Another shim.
const OTHER: u32 = SHIM + 1000;

/// So many seconds with relists as a healthy node has them.
fn healthy(seconds: u64) -> Story {
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

fn told(story: &Story, seconds: u64) -> Diagnosis {
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

/// Three CreateContainer of four seconds in which they queue for the database for so long; of `looks` at containerd so many find
/// a thread in fdatasync.
fn writes(queue: u64, waiting: usize, looks: usize) -> Story {
    writes_to(queue, waiting, looks, &|_| None)
}

/// The same, with what the disk of containerd has done at each look.
fn writes_to(queue: u64, waiting: usize, looks: usize, disk: &dyn Fn(u64) -> Option<DiskFact>) -> Story {
    let mut story = healthy(14);
    story.follows_parks().names(0, &["sync.runtime_SemacquireMutex", "go.etcd.io/bbolt.(*DB).beginRWTx"]);
    story.hook(Layer::Handler, "CreateContainer").hook(Layer::KubeletCall, "CreateContainer");
    for n in 0..3 {
        let (goid, from) = (900 + n, S + 100 * n * MS);
        story.begin(Layer::KubeletCall, "CreateContainer", goid, 900, from);
        story.begin(Layer::Handler, "CreateContainer", 500 + n, 700, from + MS);
        if queue > 0 {
            story.park(CONTAINERD, 500 + n, from + 2 * MS, from + 2 * MS + queue, &[1, 2]);
        }
        story.end(Layer::Handler, "CreateContainer", 500 + n, from + 4 * S - MS, CALL_OK | CALL_PARKS);
        story.end(Layer::KubeletCall, "CreateContainer", goid, from + 4 * S, CALL_OK);
    }
    for look in 0..looks {
        let call = if look < waiting { "fdatasync" } else { "epoll_wait" };
        let mut containerd = process(Component::Containerd, CONTAINERD, 1, 0);
        containerd.parked = vec![park(syscall(call, None))];
        containerd.disk = disk(look as u64);
        story.census(S + 2 * look as u64 * S, &[containerd], &[], &[]);
    }
    story
}

/// The disk is named when looks find a thread that waits for it again and again, or once while calls queue for the database.
#[test]
fn r2_names_the_disk() {
    let diagnosis = told(&writes(0, 3, 6), 14);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Slow, vec!["R2"]));
    let finding = &diagnosis.findings[0];
    assert_eq!((finding.severity, finding.confidence), (Severity::Slow, Confidence::High));
    assert_eq!((culprit(finding), finding.reach), (Some(CONTAINERD), 2));
    assert!(finding.evidence[0].text.contains("3 of 6 looks found a thread in fdatasync"), "{finding:?}");
    let diagnosis = told(&writes(3 * S, 1, 6), 14);
    assert_eq!((ids(&diagnosis), diagnosis.findings[0].confidence), (vec!["R2"], Confidence::Medium));
    assert!(diagnosis.findings[0].evidence[1].text.contains("75 % of their time"));
}

/// What the disk does meanwhile tells a slow one from one that is held back; seen once, or of two disks, it tells nothing.
#[test]
fn r2_tells_a_slow_disk_from_one_that_is_held_back() {
    let disk = |name: &str, look: u64, busy_ms: u64| DiskFact {
        name: name.to_owned(),
        completed: 100 + 5 * look,
        took_ms: 1000 + 2 * busy_ms * look,
        busy_ms: busy_ms * look,
        in_flight: 2,
        ..DiskFact::default()
    };
    let named = |disk: &dyn Fn(u64) -> Option<DiskFact>| {
        let diagnosis = told(&writes_to(0, 3, 6, disk), 14);
        let [finding] = &diagnosis.findings[..] else { panic!("{:?}", diagnosis.findings) };
        let texts = finding.evidence.iter().map(|seen| &seen.text).filter(|text| text.starts_with("disk "));
        let idle = finding.next.iter().any(|next| next.contains("the disk itself is idle"));
        (finding.also.clone(), texts.cloned().collect::<Vec<_>>(), idle)
    };
    let busy = "disk vdb was busy for 95.0 % of 10.0 s: 25 requests, 760 ms each; 2 under way".to_owned();
    assert_eq!(named(&|look| Some(disk("vdb", look, 1900))), (vec!["X2"], vec![busy], false));
    let idle = "disk vdb was busy for 1.0 % of 10.0 s: 25 requests, 8.0 ms each; 2 under way".to_owned();
    assert_eq!(named(&|look| Some(disk("vdb", look, 20))), (vec![], vec![idle], true));
    assert_eq!(named(&|look| (look == 0).then(|| disk("vdb", look, 1900))), (vec![], vec![], false));
    let other = |look| Some(disk(if look < 5 { "vda" } else { "vdb" }, look, 1900));
    assert_eq!(named(&other), (vec![], vec![], false));
}

/// An idle disk is not called slow: the cgroup that holds back what is written for it is named, if one is known.
#[test]
fn r2_names_the_limit_of_a_cgroup() {
    let unit = "/sys/fs/cgroup/system.slice/containerd.service";
    // Two writes and 64 KiB a second.
    let limited = |busy_ms: u64, limit: Option<(&str, Option<u64>, Option<u64>)>| {
        let limit = limit.map(|(path, writes, bytes)| WriteLimit { path: path.into(), writes, bytes });
        let disk = |look: u64| DiskFact {
            name: "vda".into(),
            completed: 4 * look,
            written: look << 17,
            busy_ms: busy_ms * look,
            limit: limit.clone(),
            ..DiskFact::default()
        };
        let mut diagnosis = told(&writes_to(0, 3, 6, &|look| Some(disk(look))), 14);
        assert_eq!(ids(&diagnosis), ["R2"]);
        diagnosis.findings.remove(0)
    };
    let binding = Some((unit, Some(2), Some(1 << 20)));
    let finding = limited(20, binding);
    let headline = format!("cgroup {unit} holds back what containerd writes for pods, and the disk is idle");
    assert_eq!((finding.headline, finding.also), (headline, vec![]));
    let told = format!("cgroup {unit} lets no more than 2 writes and 1.0 MiB a second through to disk vda");
    assert!(finding.evidence.iter().any(|seen| seen.text == told), "{:?}", finding.evidence);
    assert!(
        finding.next[0].contains("set-property containerd.service IOWriteIOPSMax="),
        "{:?}",
        finding.next
    );
    let finding = limited(20, Some(("/sys/fs/cgroup/blkio", None, Some(100_000))));
    assert!(finding.next[0].ends_with("of /sys/fs/cgroup/blkio"), "{:?}", finding.next);
    // One that lets far more through holds nothing back.
    for limit in [None, Some((unit, Some(5), Some(1 << 20)))] {
        let finding = limited(20, limit);
        assert!(finding.headline.ends_with("does not come to its disk, which is idle"), "{finding:?}");
        assert!(finding.next[0].starts_with("the disk itself is idle"), "{:?}", finding.next);
    }
    // With so many writes that it has its share of them, a disk may be too slow for them all the same.
    let finding = limited(1900, binding);
    assert_eq!(
        (finding.headline.starts_with("the disk of containerd is slow"), finding.also),
        (true, vec!["X2"])
    );
    assert!(finding.evidence.iter().any(|seen| seen.text == told), "{:?}", finding.evidence);
}

/// One look is chance, a lock is not a disk, and a disk that nobody waits for is none of our business.
#[test]
fn r2_needs_both() {
    for story in [writes(0, 1, 6), writes(3 * S, 0, 6)] {
        let diagnosis = told(&story, 14);
        assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Slow, vec![]));
    }
    let mut quick = healthy(14);
    let mut containerd = process(Component::Containerd, CONTAINERD, 1, 0);
    containerd.parked = vec![park(syscall("fdatasync", None))];
    (1..6).for_each(|look| {
        quick.census(2 * look * S, std::slice::from_ref(&containerd), &[], &[]);
    });
    assert_eq!(told(&quick, 14).verdict, Verdict::Healthy);
}
