//! A window of the stream with the preamble of its beginning stands alone: what happened in it is reported as the whole
//! stream reports it, with nothing lost that the whole has not lost.

use std::collections::BTreeMap;
use std::fs;
use std::sync::OnceLock;

use plegtrace::{
    correlate::{Correlator, Limits, Relist, RequestTree, Snapshot},
    decode::{MonoNs, decode},
    diagnose::diagnose,
    input::{Frame, frame_fact},
    recording::Recording,
    span::SpanId,
};
use plegtrace_tests::recordings::{self, FAULTS};
use proptest::prelude::*;

/// Records of a recording, in order.
fn frames(kind: plegtrace_lab::fault::Kind) -> Vec<Frame> {
    let bytes = fs::read(recordings::folder().join(recordings::file(kind))).unwrap();
    let mut recording = Recording::open(bytes.as_slice()).unwrap();
    let mut frames = Vec::new();
    while recording.next_block(&mut |frame| frames.push(frame.clone())) {}
    frames
}

fn push(correlator: &mut Correlator, frames: &[Frame]) {
    for frame in frames {
        correlator.push(decode(frame).unwrap());
    }
}

fn latest(frames: &[Frame]) -> MonoNs {
    MonoNs(frames.iter().map(|frame| frame.header.ts_ns).max().unwrap_or(0))
}

/// The whole stream and the window that begins at record `at`, both at the end; and the beginning of the window.
fn cut(frames: &[Frame], at: usize) -> (Snapshot, Snapshot, MonoNs) {
    let (before, window) = frames.split_at(at);
    let (since, now) = (latest(before), latest(frames));
    let mut whole = Correlator::new(Limits::default());
    push(&mut whole, before);
    // Through the wire, as a window that is written to a file.
    let preamble: Vec<Frame> =
        whole.preamble(since).iter().map(|(at, fact)| frame_fact(at.0, fact)).collect();
    push(&mut whole, window);
    let mut alone = Correlator::new(Limits::default());
    push(&mut alone, &preamble);
    push(&mut alone, window);
    (whole.snapshot(now), alone.snapshot(now), since)
}

fn finished_since(snapshot: &Snapshot, since: MonoNs) -> BTreeMap<SpanId, &Relist> {
    let inside = snapshot.relists.iter().filter(|relist| relist.root().start() > since);
    inside.map(|relist| (relist.root().id, relist)).collect()
}

fn requests_since(snapshot: &Snapshot, since: MonoNs) -> BTreeMap<SpanId, &RequestTree> {
    let inside = snapshot.requests.iter().filter(|request| request.root().start() > since);
    inside.map(|request| (request.root().id, request)).collect()
}

fn check(frames: &[Frame], at: usize) {
    let (whole, alone, since) = cut(frames, at);
    let lost = |snapshot: &Snapshot| -> BTreeMap<(String, String), u64> {
        snapshot.losses.iter().map(|l| ((l.stage.clone(), l.reason.clone()), l.count)).collect()
    };
    let (all, some) = (lost(&whole), lost(&alone));
    for (loss, count) in &some {
        assert!(all.get(loss).is_some_and(|whole| count <= whole), "{loss:?}: {count}, whole {all:?}");
    }
    let hooks =
        |snapshot: &Snapshot| snapshot.hooks.iter().map(|state| state.hook.clone()).collect::<Vec<_>>();
    assert_eq!(hooks(&whole), hooks(&alone));
    assert_eq!(whole.targets, alone.targets);
    assert_eq!(
        (&whole.start, &whole.presences, &whole.refused),
        (&alone.start, &alone.presences, &alone.refused)
    );
    assert_eq!((&whole.cost, &whole.stop), (&alone.cost, &alone.stop));
    assert_eq!(whole.open, alone.open);
    assert_eq!(whole.processes.open, alone.processes.open);
    assert_eq!(whole.processes.workloads, alone.processes.workloads);
    let relists = finished_since(&whole, since);
    for (id, relist) in finished_since(&alone, since) {
        assert_eq!(relists[&id].tree, relist.tree);
    }
    assert_eq!(relists.len(), finished_since(&alone, since).len());
    let alones = requests_since(&alone, since);
    for (id, request) in requests_since(&whole, since) {
        assert_eq!(alones.get(&id), Some(&request));
    }
    let facts = |snapshot: &Snapshot| {
        snapshot.census.processes.iter().map(|seen| seen.fact.clone()).collect::<Vec<_>>()
    };
    assert_eq!(facts(&whole), facts(&alone));
    assert_eq!(whole.census.goroutines, alone.census.goroutines);
    assert_eq!(whole.census.versions, alone.census.versions);
    // The cause, too: the census of the beginning is told again.
    let cause = |snapshot: &Snapshot| {
        let diagnosis = diagnose(snapshot);
        (diagnosis.verdict, diagnosis.findings.first().map(|first| first.rule.id))
    };
    assert_eq!(cause(&whole), cause(&alone));
}

/// Recordings of real stalls, with the records of each.
fn recorded() -> &'static [Vec<Frame>] {
    static RECORDED: OnceLock<Vec<Vec<Frame>>> = OnceLock::new();
    RECORDED.get_or_init(|| FAULTS.map(frames).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Cut anywhere, the rest stands alone.
    #[test]
    fn windows_stand_alone(which in 0..FAULTS.len(), place in 0.0..=1.0_f64) {
        let frames = &recorded()[which];
        check(frames, (place * frames.len() as f64) as usize);
    }
}

/// At the end of a stream, the preamble alone tells what is open and what is stuck.
#[test]
fn nothing_but_a_preamble() {
    for frames in recorded() {
        check(frames, frames.len());
        check(frames, 0);
    }
}

/// A window of a window stands alone, too.
#[test]
fn a_preamble_of_a_preamble() {
    for frames in recorded() {
        let half = frames.len() / 2;
        let mut correlator = Correlator::new(Limits::default());
        push(&mut correlator, &frames[..half]);
        let since = latest(&frames[..half]);
        let first = correlator.preamble(since);
        let mut again = Correlator::new(Limits::default());
        push(&mut again, &first.iter().map(|(at, fact)| frame_fact(at.0, fact)).collect::<Vec<_>>());
        assert_eq!(again.preamble(since), first);
    }
}
