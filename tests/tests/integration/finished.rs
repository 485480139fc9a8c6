//! Finished relists and requests are handed out once each, as the whole picture shows them at that moment.

use std::collections::HashSet;

use plegtrace::{
    correlate::{Correlator, Doing, Finished, Limits, Relist, RequestTree, Snapshot, TimeRow},
    decode::{Call, Event, decode},
    input::{Component, Layer},
    span::SpanId,
};
use plegtrace_common::rec::CALL_OK;
use plegtrace_tests::story::{KUBELET, MS, S, Story, at};
use proptest::prelude::*;

use super::property::frames;

/// Records come at most so much later than younger ones: less than is waited for.
const LATE_MS: u64 = 1900;

/// A request of the kubelet on a goroutine of its own: which, when, for how long, with a bare call inside or not, and who
/// answers it.
#[derive(Clone, Debug)]
struct Asked {
    operation: &'static str,
    start_ms: u64,
    length_ms: u64,
    inner: bool,
    handler: bool,
}

fn asked() -> impl Strategy<Value = Asked> {
    let operation = prop_oneof![Just("ListContainers"), Just("ExecSync"), Just("RunPodSandbox")];
    (operation, 0u64..6000, 10u64..4000, any::<bool>(), any::<bool>()).prop_map(
        |(operation, start_ms, length_ms, inner, handler)| Asked {
            operation,
            start_ms,
            length_ms,
            inner,
            handler,
        },
    )
}

/// A kubelet that relists each second and asks for this; facts first, then calls in any order.
fn told(asked: &[Asked]) -> (Vec<Event>, Vec<Call>) {
    let mut story = Story::node();
    story.relists_pods();
    for n in 0..6 {
        story.relist(n * S, 0).pod_relist(n * S + 100 * MS, (n + 1) * MS);
    }
    for (goid, asked) in (1000..).zip(asked) {
        let (start, end) = (asked.start_ms * MS, (asked.start_ms + asked.length_ms) * MS);
        story.begin(Layer::KubeletCall, asked.operation, goid, 900, start);
        if asked.inner {
            story.begin(Layer::KubeletClient, asked.operation, goid, 1000, start + MS);
            story.end(Layer::KubeletClient, asked.operation, goid, end - MS, CALL_OK);
        }
        if asked.handler {
            story.begin(Layer::Handler, asked.operation, goid + 1000, 700, start + 2 * MS);
            story.end(Layer::Handler, asked.operation, goid + 1000, end - 2 * MS, CALL_OK);
        }
        story.end(Layer::KubeletCall, asked.operation, goid, end, CALL_OK);
    }
    let (mut facts, mut calls) = (Vec::new(), Vec::new());
    for frame in frames(story) {
        match decode(&frame).unwrap() {
            Event::Call(call) => calls.push(call),
            other => facts.push(other),
        }
    }
    (facts, calls)
}

/// What was handed out: the relists and requests, and all that is in their trees.
#[derive(Default)]
struct Handed {
    roots: HashSet<SpanId>,
    spans: HashSet<SpanId>,
}

/// Takes what there is, compares it with the whole picture, and notes what it was.
fn take(correlator: &mut Correlator, last: bool, taken: &mut Handed) -> bool {
    let snapshot = correlator.snapshot(at(20 * S));
    let mut found = Vec::new();
    let complete = correlator.take_finished(last, &mut |finished| found.push(finished));
    for finished in found {
        assert!(taken.roots.insert(finished.root().id), "twice: {finished:#?}");
        taken.spans.extend(finished.root().walk().map(|span| span.id));
        match finished {
            Finished::Relist(relist) => {
                let same = snapshot.relists.iter().find(|other| other.root().id == relist.root().id);
                assert_eq!(Some(&relist), same);
            }
            Finished::Request(request) => {
                // The picture has the longest of each operation.
                let same = snapshot.requests.iter().find(|other| other.root().id == request.root().id);
                assert!(same.is_none_or(|same| *same == request), "{same:#?}\n{request:#?}");
            }
        }
    }
    complete
}

fn finished(snapshot: &Snapshot) -> HashSet<SpanId> {
    let relists = snapshot.relists.iter().map(Relist::root);
    let roots = relists.chain(snapshot.requests.iter().map(RequestTree::root));
    roots.filter(|root| !root.is_open()).map(|root| root.id).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whenever they are asked for, each comes once, equal to the picture of that moment; in the end none is missing.
    #[test]
    fn each_once(
        asked in proptest::collection::vec(asked(), 0..25),
        order in proptest::collection::vec((0..LATE_MS, any::<bool>()), 256),
    ) {
        let (facts, calls) = told(&asked);
        let mut calls: Vec<_> = calls.into_iter().zip(order.into_iter().cycle()).collect();
        calls.sort_by_key(|(call, (late, _))| call.end.0 + late * MS);
        let mut correlator = Correlator::new(Limits::default());
        facts.into_iter().for_each(|fact| correlator.push(fact));
        let mut taken = Handed::default();
        for (call, (_, ask)) in calls {
            correlator.push(Event::Call(call));
            if ask {
                prop_assert!(take(&mut correlator, false, &mut taken));
            }
        }
        prop_assert!(take(&mut correlator, true, &mut taken));
        // Relists of all pods and of one, and requests; handlers have trees of their own where it is not certain whom they answer.
        prop_assert_eq!(taken.roots.iter().filter(|id| id.tgid == KUBELET).count(), 12 + asked.len());
        let all = finished(&correlator.snapshot(at(20 * S)));
        // Whom a handler answers can become uncertain when it has been handed out with its call.
        let missing: Vec<_> = all.difference(&taken.spans).collect();
        prop_assert!(missing.is_empty(), "{:?}", missing);
    }
}

/// A node whose kubelet relists once a second.
fn relists(count: u64, limits: Limits) -> (Correlator, Vec<Event>) {
    let mut story = Story::node();
    for n in 0..count {
        story.relist(n * S, 0);
    }
    let events = frames(story).iter().map(|frame| decode(frame).unwrap()).collect();
    (Correlator::new(limits), events)
}

/// Whoever asks in time gets all, however little is kept.
#[test]
fn little_is_kept() {
    let (mut correlator, events) = relists(50, Limits { relists: 8, ..Limits::default() });
    let mut taken = Handed::default();
    for event in events {
        correlator.push(event);
        assert!(take(&mut correlator, false, &mut taken));
    }
    assert!(take(&mut correlator, true, &mut taken));
    assert_eq!(taken.roots.len(), 50);
}

/// Where the time of relists went does not depend on how many of them are kept.
#[test]
fn time_of_relists_that_are_forgotten() {
    let parts = |kept| {
        let (mut correlator, events) = relists(100, Limits { relists: kept, ..Limits::default() });
        events.into_iter().for_each(|event| correlator.push(event));
        let table = correlator.snapshot(at(100 * S)).relist_time;
        let part = |row: &TimeRow| (row.place.component, row.place.doing, row.sum_ns);
        (table.count, table.wall_ns, table.rows.iter().map(part).collect::<Vec<_>>())
    };
    let (count, wall_ns, all) = parts(180);
    assert_eq!((count, wall_ns), (100, 100 * 3_050_000));
    assert_eq!(all[0], (Some(Component::Containerd), Doing::Inside, 100 * 2_384_000));
    for kept in [1, 8, 40] {
        assert_eq!(parts(kept), (count, wall_ns, all.clone()), "{kept} kept");
    }
}

/// Whoever asks too seldom is told so, once; and so is who has missed what came too late.
#[test]
fn what_is_missed_is_told() {
    let (mut correlator, mut events) = relists(50, Limits { relists: 8, ..Limits::default() });
    let mut taken = Handed::default();
    let rest = events.split_off(events.len() / 5);
    events.into_iter().for_each(|event| correlator.push(event));
    assert!(take(&mut correlator, false, &mut taken));
    let late = rest[0].clone();
    rest.into_iter().for_each(|event| correlator.push(event));
    assert!(!take(&mut correlator, false, &mut taken));
    assert!(taken.roots.len() < 50 && take(&mut correlator, true, &mut taken));
    correlator.push(late);
    assert!(!take(&mut correlator, true, &mut taken));
}
