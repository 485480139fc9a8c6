//! Relists of one pod, which Kubernetes 1.36 and later make between two of all pods, on the same goroutine: roots of their own, and no
//! list of all pods. One that hangs holds up the next list.

use plegtrace::{
    correlate::{Correlator, Finished, LastList, Limits, RequestTree, RpcRow, Side, Snapshot},
    decode::decode,
    diagnose::{Reason, Verdict, diagnose},
    flame::Flame,
    input::{Layer, next_frame},
    render::flame::{Per, folded},
    span::{Span, violation},
};
use plegtrace_tests::{
    recordings::text_of,
    story::{MS, S, Story, at},
};

/// The goroutine relists all pods each second, and one pod in between.
fn node() -> Story {
    let mut story = Story::node();
    story.relists_pods();
    for second in 0..4 {
        story.relist(second * S, 1).pod_relist(second * S + 300 * MS, (second + 1) * 50 * MS);
    }
    story
}

fn trees(snapshot: &Snapshot) -> Vec<&Span> {
    let roots = snapshot.requests.iter().map(RequestTree::root);
    roots.filter(|root| root.layer() == Layer::PodRelist).collect()
}

fn pushed(story: &Story, limits: Limits) -> Correlator {
    let (mut correlator, mut bytes) = (Correlator::new(limits), story.bytes());
    while !bytes.is_empty() {
        correlator.push(decode(&next_frame(&mut bytes).unwrap()).unwrap());
    }
    correlator
}

/// The two longest have a tree, with all that was done in them; what happens in relists of all pods does not change.
#[test]
fn a_root_of_its_own() {
    let mut story = node();
    let snapshot = story.census(3 * S, &[], &[], &[]).read_open(4 * S).snapshot(4 * S);
    assert_eq!(diagnose(&snapshot).verdict, Verdict::Healthy, "{:#?}", diagnose(&snapshot));
    assert_eq!((snapshot.relists.len(), snapshot.last_list), (4, LastList::At(at(3 * S))));
    assert!(snapshot.relists.iter().all(|relist| relist.calls == 4 && relist.tree.misfits == 0));
    let trees = trees(&snapshot);
    let lengths: Vec<u64> = trees.iter().map(|root| root.duration_ns(snapshot.now) / MS).collect();
    assert_eq!(lengths, [203, 153]);
    for root in trees {
        assert!(violation(root).is_none());
        let layers = |layer| root.walk().filter(|span| span.layer() == layer).count();
        let counts = [Layer::ListPhase, Layer::StatusPhase, Layer::KubeletCall, Layer::Handler].map(layers);
        assert_eq!((counts, root.root_name()), ([1, 1, 3, 3], "relist of one pod"));
    }
    let of =
        |side| snapshot.rows.iter().find(|row| row.key.side == side).map(|row: &RpcRow| row.latency.count());
    assert_eq!([Side::Relist, Side::PodRelist].map(of), [Some(4), Some(4)]);
    let text = text_of(&snapshot, true).unwrap();
    assert!(text.contains("\nRelists of one pod ") && text.contains("relist of one pod  "), "{text}");
}

/// Each is handed out once, to pictures and metrics, and its time is in the flame graph below its own root.
#[test]
fn finished_ones() {
    let mut correlator = pushed(&node(), Limits::default());
    let mut flame = Flame::default();
    let mut found = Vec::new();
    flame.collect_and_see(&mut correlator, true, &mut |finished| {
        if let Finished::Request(request) = finished {
            found.push(request.root().duration_ns(at(4 * S)) / MS);
        }
    });
    assert_eq!((found, flame.relists()), (vec![53, 103, 153, 203], 4));
    let mut out = Vec::new();
    folded(&flame, Per::Whole, None, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let line = "\nrelist of one pod;kubelet updateCache, status phase;kubelet ContainerStatus;containerd ContainerStatus";
    assert!(text.contains(line), "{text}");
    correlator.take_finished(true, &mut |finished| panic!("{finished:?} comes twice"));
}

/// Where there is room for few, the slowest stay.
#[test]
fn the_slowest_stay() {
    let mut story = Story::node();
    story.relists_pods();
    for n in 0..60u64 {
        story.pod_relist(n * S, if n == 7 { 400 * MS } else { MS });
        story.relist(n * S + 500 * MS, 0);
    }
    let snapshot = story.snapshot_within(Limits { relists: 5, ..Limits::default() }, 61 * S);
    assert_eq!(trees(&snapshot)[0].duration_ns(snapshot.now) / MS, 403);
    assert!(trees(&snapshot)[0].walk().any(|span| span.layer() == Layer::Handler));
}

/// One that hangs: no relist of all pods is open, and none comes. It is a stall as a relist is, and says which.
#[test]
fn one_that_hangs() {
    let mut story = Story::node();
    story.relists_pods().relist(0, 1).relist(S, 0).pod_relist_hangs(S + 500 * MS).read_open(6 * S);
    let snapshot = story.snapshot(6 * S);
    assert!(snapshot.relists.iter().all(|relist| !relist.root().is_open()));
    let diagnosis = diagnose(&snapshot);
    let waiting_in = Some("ContainerStatus".to_owned());
    assert_eq!(diagnosis.reasons, [Reason::RelistOpen { age_ns: 4_500 * MS, waiting_in, of_pod: true }]);
    let text = text_of(&snapshot, true).unwrap();
    assert!(text.contains("STALL  relist of one pod open 4.5 s, waiting in ContainerStatus"), "{text}");
    assert!(text.contains("\nOpen requests ") && !text.contains("Bare client calls"), "{text}");
}
