//! Whoever wrote a recording, to report it takes bounded memory: what facts take is bounded, not only their number, and what does not fit is
//! told as a loss. Memory is counted by the allocator, thread by thread, so the figures are the same each time.

use plegtrace::commands;
use plegtrace::correlate::{Correlator, Limits, Snapshot};
use plegtrace::decode::decode;
use plegtrace::diagnose::{Doubt, diagnose};
use plegtrace::input::{
    CensusFact, ClientFact, Command, CommandFact, Component, ContainerFact, Fact, Frame, GoroutinesFact,
    HookCounters, LearntFact, LossCount, MessagesFact, NamesFact, OpenMessageFact, OtherClientsFact,
    Presence, ProcessFact, RefusedFact, SocketFact, TargetGone, VersionFact, frame_fact,
};
use plegtrace::recording::Encoder;
use plegtrace_common::rec::PROCESS_EXECED;
use plegtrace_common::role::Role;
use plegtrace_tests::found::{group, process};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::story::{CONTAINERD, S, Story, at};

use crate::allocations::measured;
use crate::truth::recordings;

const MIB: usize = 1 << 20;

/// The nth of texts that differ.
fn text(n: u32, bytes: usize) -> String {
    format!("{n}-{}", "x".repeat(bytes))
}

fn refused(n: u32, bytes: usize) -> Fact {
    Fact::Refused(RefusedFact {
        source: "uprobes".into(),
        component: None,
        what: "f".into(),
        why: text(n, bytes),
        matters: true,
    })
}

/// How many facts were too large, as the report has it.
fn left_out(snapshot: &Snapshot) -> u64 {
    let mine = snapshot.real_losses().filter(|loss| loss.reason == "facts_too_large");
    mine.map(|loss| loss.count).sum()
}

/// A small file whose texts are long. None of ours has such a text.
#[test]
fn a_recording_of_long_texts() {
    let facts = 600;
    let (mut encoder, mut file) = (Encoder::new(), Encoder::header());
    for n in 0..facts {
        file.extend(encoder.push(&frame_fact(at(0).0, &refused(n, 64 << 10)).bytes).into_iter().flatten());
    }
    file.extend(encoder.block().into_iter().flatten());
    file.extend(encoder.end());
    assert!(file.len() < MIB, "{} bytes", file.len());
    let (replayed, held, _) = measured(|| commands::replay(file.as_slice()).unwrap());
    assert!(held < MIB, "{held} bytes");
    assert_eq!(left_out(&replayed.snapshot), u64::from(facts));
    let doubts = diagnose(&replayed.snapshot).doubts;
    assert!(doubts.iter().any(|doubt| matches!(doubt, Doubt::Lost { .. })), "{doubts:?}");
    let told = text_of(&replayed.snapshot, true).unwrap();
    assert!(told.contains("600 × facts took too much memory"), "{told}");
}

/// Texts that a fact may have.
const LONG: usize = 8000;

fn container(n: u32) -> ContainerFact {
    let name = || Some(text(n, 900));
    let (id, source) = (text(n, 900), "cri".to_owned());
    ContainerFact { id, sandbox: name(), name: name(), pod: name(), namespace: name(), source }
}

fn of_census(n: u32) -> ProcessFact {
    let socket = SocketFact { path: Some(text(n, LONG)), ..SocketFact::default() };
    ProcessFact { sockets: vec![socket; 3], ..process(Component::Shim, n, 1, 0) }
}

fn goroutines(n: u32) -> Fact {
    let handler = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ListContainers_Handler";
    let frame = text(n, LONG);
    Fact::Goroutines(GoroutinesFact {
        at_ns: at(u64::from(n)).0,
        took_ns: 0,
        pid: n,
        component: Component::Containerd,
        go_version: "go1.24.4".into(),
        total: 1,
        unread: 0,
        groups: (0..3).map(|goid| group(&[goid], "select", &[&frame, handler])).collect(),
        groups_left_out: 0,
        last_list_ns: None,
    })
}

fn message(n: u32) -> OpenMessageFact {
    OpenMessageFact { socket: n.into(), service: text(n, LONG), method: text(n, LONG), ..Default::default() }
}

/// The nth fact of each sort that is kept, with texts as long as they may be.
fn heavy(sort: usize, n: u32) -> Fact {
    let name = || text(n, LONG);
    match sort {
        0 => refused(n, LONG),
        1 => Fact::Presence(Presence { component: Component::Kubelet, path: name(), called: false }),
        2 => Fact::Loss {
            counts: vec![LossCount {
                stage: name(),
                reason: name(),
                sentence: name(),
                count: 1,
                is_loss: false,
            }],
        },
        3 => Fact::Process(of_census(n)),
        4 => goroutines(n),
        5 => Fact::Census(CensusFact {
            containers: (0..5).map(container).collect(),
            versions: vec![VersionFact { program: name(), version: name() }],
            ..CensusFact::default()
        }),
        6 => Fact::Names(NamesFact {
            names: vec![LearntFact { unknown: name(), service: name(), method: name() }],
        }),
        7 => Fact::Messages(MessagesFact {
            at_ns: n.into(),
            open: (0..5).map(|place| message(5 * n + place)).collect(),
            complete: true,
        }),
        8 => Fact::OtherClients(OtherClientsFact {
            clients: vec![ClientFact { pid: n, name: name() }],
            requests: MessagesFact::default(),
        }),
        9 => Fact::TargetGone(TargetGone { component: Component::Kubelet, pid: CONTAINERD, how: name() }),
        _ => Fact::Counters {
            hooks: vec![HookCounters {
                hook: n % 512,
                hits: 1,
                buckets: vec![1; 2_000],
                ..Default::default()
            }],
        },
    }
}

/// Sorts of [`heavy`].
const SORTS: usize = 11;

/// What a correlator with little memory for facts holds after all of these, and what its snapshot takes.
fn held_after(frames: &[Frame], limits: Limits) -> (Correlator, usize, Snapshot, usize) {
    let (correlator, held, _) = measured(|| {
        let mut correlator = Correlator::new(limits);
        frames.iter().for_each(|frame| correlator.push(decode(frame).unwrap()));
        correlator
    });
    let (snapshot, _, peak) = measured(|| correlator.snapshot(at(9 * S)));
    (correlator, held, snapshot, peak)
}

/// Whatever it is of which there is too much: what is kept stays within the bound, within twice of which it is weighed; a snapshot of it
/// takes no more than a few times as much; and what was left out is told.
#[test]
fn too_much_of_any_sort() {
    let limits = Limits { fact_bytes: MIB / 2, ..Limits::default() };
    let (_, empty, _, least) = held_after(&[], limits);
    for sort in 0..SORTS {
        let mut story = Story::node();
        for n in 0..300 {
            story.fact(u64::from(n), &heavy(sort, n));
        }
        let frames = std::mem::take(story.frames_mut());
        let told: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
        assert!(told > MIB, "sort {sort}: only {told} bytes");
        let (correlator, held, snapshot, peak) = held_after(&frames, limits);
        let bytes = correlator.fact_bytes();
        assert!(bytes <= limits.fact_bytes, "sort {sort}: {bytes} bytes are kept");
        assert!(held - empty <= 2 * limits.fact_bytes, "sort {sort}: {} bytes are held", held - empty);
        assert!(peak - least <= 4 * limits.fact_bytes, "sort {sort}: a snapshot takes {peak} bytes");
        // The rounds of a census, and readings, take the place of those before.
        let is_replaced = [5, 7, 9].contains(&sort);
        assert!(is_replaced || left_out(&snapshot) > 0, "sort {sort}: nothing was left out");
    }
}

/// There is room again when what took it has gone.
#[test]
fn what_is_gone_makes_room() {
    let limits = Limits { fact_bytes: MIB / 2, ..Limits::default() };
    let mut story = Story::node();
    for n in 0..40 {
        story.fact(u64::from(n), &Fact::Process(of_census(n)));
        let round =
            CensusFact { began_ns: at(n.into()).0, ended_ns: at(n.into()).0, ..CensusFact::default() };
        story.fact(u64::from(n), &Fact::Census(round));
    }
    let (.., snapshot, _) = held_after(story.frames_mut(), limits);
    assert_eq!((left_out(&snapshot), snapshot.census.rounds), (0, 40));
}

/// What one command says is copied to each process that it starts, and their births are small records.
#[test]
fn long_commands_have_no_children() {
    let mut story = Story::node();
    story.found(CONTAINERD, Role::Containerd).fork(CONTAINERD, 5000, 0);
    story.exec(5000, Role::Runc, PROCESS_EXECED, 0);
    let command = Command::Runc { sub: "create".into(), container: Some(text(1, LONG)), bundle: None };
    let fact = CommandFact { pid: 5000, since_ns: at(0).0, unread: false, command };
    story.fact(0, &Fact::Command(fact));
    for n in 0..5_000 {
        story.fork(5000, 5001 + n, S);
    }
    let (_, held, snapshot, _) = held_after(story.frames_mut(), Limits::default());
    assert!(held < 6 * MIB, "{held} bytes");
    assert_eq!(left_out(&snapshot), 1);
}

/// Nodes as they are take a small part of the bound, and nothing of theirs is left out.
#[test]
fn real_nodes_have_room() {
    for (file, stream) in recordings() {
        let (correlator, ..) = held_after(stream.frames(), Limits::default());
        let bytes = correlator.fact_bytes();
        assert!(bytes <= Limits::default().fact_bytes / 8, "{}: {bytes} bytes", file.display());
        let lost = correlator.snapshot(at(9 * S));
        assert_eq!(left_out(&lost), 0, "{}", file.display());
    }
}
