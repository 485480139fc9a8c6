//! What is known of a kubelet that has ended says nothing of the one that runs.

use plegtrace::correlate::{LastList, Snapshot};
use plegtrace::diagnose::{Doubt, Verdict, diagnose};
use plegtrace::input::{Component, Fact, RefusedFact};
use plegtrace_tests::story::{KUBELET, S, Story, at};

const OTHER: u32 = KUBELET + 1000;
/// An hour later.
const LATER: u64 = 3600 * S;

/// A kubelet lists, ends, and another one is found; whether it can be probed is for the test to say.
fn restarted() -> Story {
    let mut story = Story::node();
    for second in 1..5 {
        story.relist(second * S, 0);
    }
    story.gone(6 * S, Component::Kubelet, KUBELET, "ended");
    story.target_at(7 * S, Component::Kubelet, OTHER, "1.20.2");
    story
}

fn refused(story: &mut Story, ns: u64) {
    let refused = RefusedFact {
        source: "uprobes".into(),
        component: Some(Component::Kubelet),
        what: "/usr/bin/kubelet".into(),
        why: "cannot attach".into(),
        matters: true,
    };
    story.fact(ns, &Fact::Refused(refused));
}

fn verdict(snapshot: &Snapshot) -> (Verdict, Option<&'static str>) {
    let diagnosis = diagnose(snapshot);
    (diagnosis.verdict, diagnosis.doubts.first().map(Doubt::name))
}

/// The successor is not probed: that its lists are not seen is no stall, and the lists of the one before are no health.
#[test]
fn a_successor_without_probes() {
    let mut story = restarted();
    refused(&mut story, 7 * S);
    for now in [8 * S, LATER] {
        story.read_open(now).census(now, &[], &[], &[]);
        assert_eq!(verdict(&story.snapshot(now)), (Verdict::CannotTell, Some("relist_untraced")), "{now}");
    }
    assert_eq!(story.snapshot(LATER).last_list, LastList::Untraced);
}

/// It is probed, and none of its relists was seen so far: no health before the first one.
#[test]
fn a_successor_that_has_not_listed_yet() {
    let mut story = restarted();
    story.read_open(9 * S).census(9 * S, &[], &[], &[]);
    let diagnosis = diagnose(&story.snapshot(9 * S));
    assert_eq!(diagnosis.doubts, [Doubt::NoRelist { window_ns: 2 * S, period_ns: S }]);
}

/// Once it lists, all is well; and a kubelet that has ended without a successor keeps its facts.
#[test]
fn a_successor_that_lists() {
    let mut story = Story::blank();
    story.start().target(Component::Kubelet, OTHER, "1.20.2").hooks();
    let armed = plegtrace::input::Armed { mode: "uprobe_multi".into(), sites: 9, took_ns: 0, hooks: None };
    story.fact(0, &Fact::Armed(armed)).gone(S, Component::Kubelet, OTHER, "ended");
    story.target_at(2 * S, Component::Kubelet, KUBELET, "1.20.2").relist(3 * S, 0).relist(4 * S, 0);
    story.read_open(5 * S).census(5 * S, &[], &[], &[]);
    assert_eq!(verdict(&story.snapshot(5 * S)), (Verdict::Healthy, None));
    story.gone(6 * S, Component::Kubelet, KUBELET, "ended");
    let last = story.snapshot(8 * S).last_list;
    assert_eq!(last, LastList::At(at(4 * S)));
}
