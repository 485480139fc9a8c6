//! What is claimed of every recorded stream, all along, is borne out by its records: HEALTHY never with a watched method that
//! failed every time, a condition of the runtime that is false, a child that is late, or a source that is not there; STALL never about a
//! process that is not the node's. Stories are held to the same wherever they are told.

use std::fs;
use std::path::{Path, PathBuf};

use plegtrace::correlate::{Correlator, Limits, OciRuntime, ProcessKind};
use plegtrace::decode::{MonoNs, decode};
use plegtrace::diagnose::{Diagnosis, Reason, Verdict, diagnose};
use plegtrace::input::{
    Command, Component, Fact, Layer, ProcessFact, RefusedFact, RuntimeCondition, RuntimeSays,
};
use plegtrace_common::rec::{CALL_FAILED, PROCESS_EXECED};
use plegtrace_common::role::Role;
use plegtrace_tests::faults::stream::Stream;
use plegtrace_tests::found::process;
use plegtrace_tests::life::Life as _;
use plegtrace_tests::oracle::Oracle;
use plegtrace_tests::packed;
use plegtrace_tests::story::{CONTAINERD, MS, S, Story};

/// So often a report is asked for.
const STEP_NS: u64 = 2 * S;

/// Every recording in the repository: of the matrix, of the field, of nodes without a fault, of the lab.
pub(crate) fn recordings() -> Vec<(PathBuf, Stream)> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut files = Vec::new();
    for folder in ["faults", "field", "quiet", "recordings"] {
        files.extend(fs::read_dir(golden.join(folder)).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.sort();
    let open = |file: PathBuf| {
        let name = file.to_string_lossy().into_owned();
        let stream = if name.ends_with(".records.br") {
            packed::stream(&file)
        } else if name.ends_with(".plegtrace") {
            Stream::open(&file)
        } else {
            return None;
        };
        Some((file, stream.unwrap_or_else(|error| panic!("{name}: {error:#}"))))
    };
    files.into_iter().filter_map(open).collect()
}

/// What is wrong with a report all along a stream, and at its end.
fn contradictions(stream: &Stream) -> Vec<String> {
    let (mut correlator, mut oracle) = (Correlator::new(Limits::default()), Oracle::default());
    let (mut wrong, mut now, mut due) = (Vec::new(), 0, None);
    let look = |correlator: &Correlator, oracle: &Oracle, ns: u64| {
        let snapshot = correlator.snapshot(MonoNs(ns));
        let all = oracle.contradictions(&snapshot, &diagnose(&snapshot));
        all.into_iter().map(move |what| format!("at {ns}: {what}")).collect::<Vec<_>>()
    };
    for frame in stream.frames() {
        now = now.max(frame.header.ts_ns);
        let due_ns = *due.get_or_insert(now + STEP_NS);
        if now >= due_ns {
            wrong.extend(look(&correlator, &oracle, due_ns));
            due = Some(due_ns + STEP_NS * ((now - due_ns) / STEP_NS + 1));
        }
        oracle.read(frame);
        match decode(frame) {
            Ok(event) => correlator.push(event),
            Err(_) => correlator.undecoded(),
        }
    }
    wrong.extend(look(&correlator, &oracle, now));
    wrong
}

#[test]
fn no_verdict_contradicts_its_records() {
    let all = recordings();
    assert!(all.len() > 90, "{} recordings", all.len());
    let mut wrong = Vec::new();
    for (file, stream) in all {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Of each the first moments at which it is wrong say enough.
        wrong.extend(contradictions(&stream).into_iter().take(2).map(|what| format!("{name} {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A node that has listed for 40 seconds, and what else happened on it.
fn told(tell: impl FnOnce(&mut Story)) -> Story {
    let mut story = Story::node();
    story.found(CONTAINERD, Role::Containerd);
    for n in 0..40 {
        story.relist(n * S, 0);
    }
    tell(&mut story);
    story.read_open(40 * S).read_processes(40 * S);
    story
}

/// What the records of a story have against a diagnosis of it that somebody has bent.
fn against(story: &mut Story, bend: impl FnOnce(&mut Diagnosis)) -> Vec<String> {
    let snapshot = story.snapshot(40 * S);
    let (mut oracle, mut diagnosis) = (Oracle::default(), diagnose(&snapshot));
    story.frames_mut().iter().for_each(|frame| oracle.read(frame));
    bend(&mut diagnosis);
    oracle.contradictions(&snapshot, &diagnosis)
}

fn healthy(diagnosis: &mut Diagnosis) {
    diagnosis.verdict = Verdict::Healthy;
}

fn runc() -> Command {
    Command::Runc { sub: "create".into(), container: Some("c1".into()), bundle: None }
}

/// Whoever said of these nodes that they are well would be contradicted by their records, each for its own reason.
#[test]
fn healthy_would_be_contradicted() {
    assert_eq!(against(&mut told(|_| ()), healthy), [""; 0]);
    let is_told = |story: &mut Story, part: &str| {
        let wrong = against(story, healthy);
        assert!(wrong.len() == 1 && wrong[0].contains(part), "{part}: {wrong:#?}");
    };
    let fails = |story: &mut Story| {
        for n in 0..3 {
            story.call(Layer::KubeletCall, "RunPodSandbox", (70, 100), n * S, n * S + MS, CALL_FAILED);
        }
    };
    is_told(&mut told(fails), "RunPodSandbox (KubeletCall) failed 3 times in a row");
    let no_network = |story: &mut Story| {
        let condition = RuntimeCondition { name: "NetworkReady".into(), ..RuntimeCondition::default() };
        let (version, conditions) = ("v1".to_owned(), vec![condition]);
        story.says = Some(RuntimeSays { pid: CONTAINERD, version, conditions, ..RuntimeSays::default() });
        story.census(39 * S, &[], &[], &[]);
    };
    is_told(&mut told(no_network), "NetworkReady is false");
    let late = |story: &mut Story| {
        story.fork(CONTAINERD, 77, 5 * S).exec(77, Role::Runc, PROCESS_EXECED, 5 * S).told(77, &runc());
    };
    is_told(&mut told(late), "of process 77 runs on");
    let found = |story: &mut Story| {
        let seen = process(Component::Runc, 77, CONTAINERD, S);
        story.census(39 * S, &[ProcessFact { command: Some(runc()), ..seen }], &[], &[]);
    };
    is_told(&mut told(found), "of process 77 was found");
    let refused = |story: &mut Story| {
        story.fact(
            0,
            &Fact::Refused(RefusedFact {
                source: "uprobes".into(),
                component: Some(Component::Kubelet),
                what: "/usr/bin/kubelet".into(),
                why: "the file changed".into(),
                matters: true,
            }),
        );
    };
    is_told(&mut told(refused), "no probe is on relists");
}

/// Whoever said of such a process that it holds up the node would be contradicted.
#[test]
fn a_stall_of_others_would_be_contradicted() {
    let by_hand = |by_hand: Option<&str>| {
        told(|story| {
            let seen = process(Component::Runc, 77, 4_000, 39 * S);
            let seen = ProcessFact { by_hand: by_hand.map(str::to_owned), command: Some(runc()), ..seen };
            story.census(39 * S, &[seen], &[], &[]);
        })
    };
    let accuse = |pid: u32| {
        move |diagnosis: &mut Diagnosis| {
            let kind = ProcessKind::Runc { by: OciRuntime::Runc, sub: "create".into() };
            diagnosis.verdict = Verdict::Stall;
            diagnosis.reasons =
                vec![Reason::ProcessesOpen { kind, count: 1, oldest_ns: S, pid, container: None }];
        }
    };
    assert_eq!(against(&mut by_hand(None), accuse(77)), [""; 0]);
    assert_eq!(against(&mut by_hand(Some("bash")), accuse(77)).len(), 1, "a person's");
    assert_eq!(against(&mut by_hand(None), accuse(78)).len(), 1, "nobody has seen it");
}
