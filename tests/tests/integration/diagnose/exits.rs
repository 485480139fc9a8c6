//! Exits that the runtime never learns of: who lost them, or holds them back.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Finding, Severity, diagnose};
use plegtrace::input::{
    CensusFact, Component, ContainerFact, EndedInit, Fact, GoroutineGroup, Holder, Layer, ProcessFact,
    RuntimeSays, RuntimeState, VersionFact,
};
use plegtrace_common::rec::CALL_FAILED;
use plegtrace_tests::found::{about, group, process, stopped};
use plegtrace_tests::story::{CONTAINERD, MS, S, Story, at};

use super::{RUNC, SHIM, culprit, ids, none, only, park, runc, syscall};

/// The process that has ended.
pub(super) const INIT: u32 = 77;
/// The goroutine that serves a request about its container.
pub(super) const STOPPING: u64 = 76;

fn c1() -> ContainerFact {
    let (id, sandbox) = ("c1".to_owned(), Some("s1".to_owned()));
    ContainerFact { id, sandbox, pod: Some("p1".into()), ..ContainerFact::default() }
}

pub(super) fn shim() -> ProcessFact {
    let sandbox = ContainerFact { id: "s1".into(), sandbox: Some("s1".into()), ..ContainerFact::default() };
    ProcessFact { container: Some(sandbox), ..process(Component::Shim, SHIM, 1, 0) }
}

/// A container, or a command in it, that has ended.
#[derive(Clone)]
pub(super) struct End {
    exec: Option<&'static str>,
    zombie: bool,
    tracer: Option<&'static str>,
    /// Of the shim.
    version: Option<&'static str>,
    processes: Vec<ProcessFact>,
    waiting: Vec<GoroutineGroup>,
}

/// The exit of a container was lost, by a shim with the bug.
fn lost() -> End {
    End {
        exec: None,
        zombie: false,
        tracer: None,
        version: Some("1.7.21"),
        processes: vec![shim(), process(Component::Containerd, CONTAINERD, 1, 0)],
        waiting: Vec::new(),
    }
}

/// The same with this shim, and these goroutines of containerd.
pub(super) fn ended_with(shim: ProcessFact, waiting: Vec<GoroutineGroup>) -> End {
    let processes = vec![shim, process(Component::Containerd, CONTAINERD, 1, 0)];
    End { processes, waiting, ..lost() }
}

/// That of a command, for which an ExecSync waits.
fn lost_command() -> End {
    let waiting = vec![serving("ExecSync", "execInContainer")];
    End { exec: Some("e1"), waiting, ..lost() }
}

/// A goroutine that serves a request about c1, and waits in this function.
fn serving(operation: &str, waits_in: &str) -> GoroutineGroup {
    let of = |name: &str| format!("github.com/containerd/containerd/pkg/cri/server.{name}");
    let handler = format!("k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_{operation}_Handler");
    let frames = [
        of(&format!("(*criService).{waits_in}")),
        of(&format!("(*instrumentedService).{operation}")),
        handler,
    ];
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    about(group(&[STOPPING], "select", &frames), &format!(").{operation}"), "c1")
}

pub(super) fn stop() -> GoroutineGroup {
    serving("StopContainer", "waitContainerStop")
}

impl End {
    /// Two looks, far enough apart.
    pub(super) fn seen(&self) -> Snapshot {
        self.story().snapshot(12 * S)
    }

    pub(super) fn story(&self) -> Story {
        let mut story = self.ended();
        self.looks(&mut story, &[S, 12 * S]);
        story
    }

    /// Looks that find it at these times.
    pub(super) fn looks(&self, story: &mut Story, times: &[u64]) {
        for ns in times {
            story.census(*ns, &self.processes, &self.waiting, &[]);
        }
    }

    /// It has ended, and nobody has looked yet.
    pub(super) fn ended(&self) -> Story {
        let mut story = Story::node();
        let tracer = self.tracer.map(|comm| Holder { pid: 99, comm: comm.into(), fd: -1, orphan: false });
        let (id, exec) = ("c1".to_owned(), self.exec.map(str::to_owned));
        story.ended = vec![EndedInit { id, exec, pid: INIT, zombie: self.zombie, tracer, commands: 0 }];
        story.containers = vec![c1()];
        let said = RuntimeState { container: c1(), state: "running".into(), runs: true };
        let (version, containers) = ("v1".to_owned(), vec![said]);
        story.says = Some(RuntimeSays { pid: CONTAINERD, version, containers, ..RuntimeSays::default() });
        self.versions(&mut story);
        story
    }

    fn versions(&self, story: &mut Story) {
        let program = Component::Shim.name().to_owned();
        let version = self.version.map(|version| VersionFact { program, version: version.into() });
        let (began_ns, ended_ns) = (at(0).0, at(0).0);
        let versions = version.into_iter().collect();
        story.fact(0, &Fact::Census(CensusFact { began_ns, ended_ns, versions, ..CensusFact::default() }));
    }
}

fn finding(end: &End, id: &str) -> Finding {
    only(&end.seen(), id)
}

/// A lost exit is a stall whether or not somebody waits: the kubelet does not restart the container.
#[test]
fn s4_blames_the_shim() {
    let found = finding(&lost(), "S4");
    assert_eq!((culprit(&found), found.severity, found.reach), (Some(SHIM), Severity::Stall, 0));
    assert_eq!(found.confidence, Confidence::High, "{:?}", found.doubts);
    assert!(found.headline.ends_with("so the kubelet does not restart it"), "{}", found.headline);
    let found = finding(&End { waiting: vec![stop()], ..lost() }, "S4");
    assert_eq!((culprit(&found), found.reach, found.victims.len()), (Some(SHIM), 2, 1), "{found:#?}");
    assert!(found.headline.ends_with("so StopContainer waits forever"), "{}", found.headline);
}

/// The age counts from the exit when the probes saw it, not from the look that found it. An exit from before a look that
/// did not find it so was that of another process; and of commands only looks tell.
#[test]
fn an_exit_that_was_seen_has_its_age() {
    let found = |end: &End, exit: Option<u64>, looks: &[u64]| {
        let mut story = end.ended();
        exit.map(|ns| story.exit(ns, INIT, 9));
        end.looks(&mut story, looks);
        ids(&diagnose(&story.snapshot(21 * S))).iter().any(|id| ["S3", "S4", "S11"].contains(id))
    };
    let held = End { zombie: true, tracer: Some("strace"), ..lost() };
    for end in [lost(), held] {
        assert!(!found(&end, None, &[9 * S, 15 * S]), "the first look was six seconds ago");
        assert!(found(&end, Some(S), &[9 * S, 15 * S]));
        assert!(found(&end, Some(S), &[15 * S]), "one look is enough when the end is known");
        assert!(!found(&end, Some(6 * S), &[9 * S, 15 * S]), "it ended nine seconds ago");
    }
    let mut story = lost().ended();
    let ended = std::mem::take(&mut story.ended);
    story.exit(S, INIT, 9);
    lost().looks(&mut story, &[7 * S]);
    story.ended = ended;
    lost().looks(&mut story, &[9 * S, 15 * S]);
    none(&story.snapshot(15 * S));
    assert!(!found(&lost_command(), Some(S), &[9 * S, 15 * S]));
}

/// A shim that one look finds in the kernel works; one that two looks find there may know of the end and be held up, as one that only one
/// look has seen at all. It is not to blame then.
#[test]
fn a_shim_in_the_kernel_is_not_to_blame() {
    let mut waits = park(syscall("fsync", None));
    (waits.state, waits.kernel_stack) = ('D', vec!["io_schedule".to_owned()]);
    let busy = ProcessFact { parked: vec![waits], ..shim() };
    let held = End { zombie: true, tracer: Some("strace"), waiting: vec![stop()], ..lost() };
    for (end, id) in [(lost(), "S4"), (held, "S11")] {
        let found = |first: &ProcessFact, last: &ProcessFact| {
            let mut story = end.ended();
            story.exit(S / 2, INIT, 9);
            for (ns, shim) in [(S, first), (12 * S, last)] {
                let End { processes, waiting, .. } = ended_with(shim.clone(), end.waiting.clone());
                story.census(ns, &processes, &waiting, &[]);
            }
            ids(&diagnose(&story.snapshot(12 * S))) == [id]
        };
        assert!(found(&shim(), &busy), "{id}: it works");
        assert!(found(&busy, &shim()), "{id}: it has worked");
        assert!(!found(&busy, &busy), "{id}: it is held up");
        let mut story = end.ended();
        story.exit(S / 2, INIT, 9);
        let End { processes, waiting, .. } = ended_with(busy.clone(), end.waiting.clone());
        story.census(12 * S, &processes, &waiting, &[]);
        assert!(!ids(&diagnose(&story.snapshot(12 * S))).contains(&id), "{id}: nobody knows");
    }
}

/// A version without the bug, or none, makes it less sure, not untrue.
#[test]
fn s4_reads_the_version() {
    let of = |version| finding(&End { version, ..lost() }, "S4");
    assert!(of(Some("1.6.29")).evidence.iter().any(|seen| seen.text.contains("1.6.29 has this bug")));
    for version in [Some("1.7.22"), Some("1.6.28"), None] {
        let found = of(version);
        assert_eq!((found.confidence, found.doubts.len()), (Confidence::Medium, 1), "{version:?}");
    }
}

/// A shim that cannot report, or that has not reaped, has lost nothing.
#[test]
fn s4_needs_a_shim_that_could_have_reported() {
    let with = |processes: Vec<ProcessFact>| End { processes, ..lost() }.seen();
    let halted = stopped(shim());
    assert_eq!(ids(&diagnose(&with(vec![halted]))), ["S10"]);
    none(&with(Vec::new()));
    let delete = ProcessFact { started_ns: Some(at(0).0), ..runc("delete", RUNC, SHIM) };
    assert!(!ids(&diagnose(&with(vec![shim(), delete]))).contains(&"S4"), "its runc hangs");
    none(&End { zombie: true, ..lost() }.seen());
}

/// The same of a command, which holds up its ExecSync; what holds the output open is another cause.
#[test]
fn s3_is_about_commands() {
    let end = End { version: Some("1.7.14"), ..lost_command() };
    let found = finding(&end, "S3");
    assert_eq!((culprit(&found), found.severity, found.reach), (Some(SHIM), Severity::Stall, 2));
    assert_eq!((found.confidence, found.doubts.len()), (Confidence::Medium, 1), "only stories prove it");
    assert_eq!(finding(&End { version: Some("1.7.15"), ..end.clone() }, "S3").confidence, Confidence::Low);
    let halted = stopped(shim());
    let halted = End { processes: vec![halted], ..end.clone() };
    assert_eq!(ids(&diagnose(&halted.seen())), ["S10"]);
    none(&End { waiting: Vec::new(), ..end }.seen());
}

/// Who traces a process that has ended keeps its exit from the shim; without anybody who waits a person may be debugging.
#[test]
fn s11_blames_the_tracer() {
    let held = End { zombie: true, tracer: Some("strace"), ..lost() };
    let found = finding(&held, "S11");
    assert_eq!((culprit(&found), found.severity), (Some(99), Severity::Notice));
    let found = finding(&End { waiting: vec![stop()], ..held.clone() }, "S11");
    assert_eq!(
        (culprit(&found), found.severity, found.confidence),
        (Some(99), Severity::Stall, Confidence::High)
    );
    assert!(found.headline.starts_with("strace 99 "), "{}", found.headline);
    let command = End { zombie: true, tracer: Some("strace"), ..lost_command() };
    assert_eq!((culprit(&finding(&command, "S11")), finding(&command, "S11").reach), (Some(99), 2));
    let halted = stopped(shim());
    let halted = End { processes: vec![halted], ..held };
    assert_eq!(ids(&diagnose(&halted.seen())), ["S10"], "it could not report in any case");
}

/// A StopContainer that the kubelet has given up on is explained by what it waits for.
#[test]
fn l3_leaves_it_to_who_lost_the_exit() {
    let stopped = |end: &End| {
        let mut story = end.story();
        for layer in [Layer::KubeletClient, Layer::Handler] {
            story.hook(layer, "StopContainer");
        }
        story.begin(Layer::KubeletClient, "StopContainer", 6, 900, 0);
        story.begin(Layer::Handler, "StopContainer", STOPPING, 700, MS);
        story.end(Layer::KubeletClient, "StopContainer", 6, 7 * S, CALL_FAILED);
        story.relist(10 * S, 0).relist(11 * S, 0).read_open(12 * S);
        story.snapshot(12 * S)
    };
    only(&stopped(&End { waiting: vec![stop()], ..lost() }), "S4");
    let others = diagnose(&stopped(&lost()));
    assert_eq!(ids(&others).iter().filter(|id| **id == "L3").count(), 1, "it may wait for something else");
}
