//! What is kept and what is given up, step by step.

use plegtrace::{
    correlate::{Caller, LastList, Limits, Side, Snapshot},
    decode::decode,
    diagnose::{Verdict, diagnose},
    input::{Component, Fact, HookFact, Layer, LossCount, TargetGone},
};
use plegtrace_common::rec::CALL_OK;
use plegtrace_tests::story::{KUBELET, MS, S, Story, at};

use super::checks::{json_of, pulse_agrees_at, sums_add_up};
use super::{frames, pushed};

/// What made room is not forgotten where it matters: when the last list was.
#[test]
fn the_last_list_outlives_its_relist() {
    let mut story = Story::node();
    story.relist(0, 0);
    for n in 1..5 {
        story.relist_hangs(n * S).list_times_out(n * S + 500 * MS);
    }
    let snapshot = story.snapshot_within(Limits { relists: 2, ..Limits::default() }, 6 * S);
    assert_eq!((snapshot.relists.len(), snapshot.last_list), (2, LastList::At(at(0))));
}

/// A handler that the kubelet has given up is a stall before it is old: then the pulse is not calm.
#[test]
fn a_handler_that_was_given_up_is_not_calm() {
    let mut story = Story::node();
    for n in 0..9 {
        story.relist(n * S, 0);
    }
    story.begin(Layer::Handler, "ExecSync", 70, 900, 8 * S + 200 * MS);
    story.call(Layer::KubeletCall, "ExecSync", (50, 1000), 8 * S + 199 * MS, 8 * S + 300 * MS, 0);
    story.relist(9 * S, 0).read_open(9 * S + 900 * MS);
    let mut correlator = pushed(Limits::default(), Vec::new());
    frames(story).iter().for_each(|frame| correlator.push(decode(frame).unwrap()));
    let now = at(10 * S);
    assert_eq!(diagnose(&correlator.snapshot(now)).verdict, Verdict::Stall);
    pulse_agrees_at(&correlator, now);
}

/// An abandoned handler stays one when the call that it answered is no longer kept.
#[test]
fn abandoned_stays_abandoned() {
    let mut story = Story::node();
    story.relist_hangs(0).list_times_out(S).read_open(2 * S);
    for n in 3..20 {
        story.relist(n * S, 0);
    }
    story.read_open(20 * S);
    let snapshot = story.snapshot_within(Limits { recent_calls: 4, ..Limits::default() }, 20 * S);
    assert_eq!(snapshot.open[0].caller, Caller::Gone(at(S)));
}

/// A bare call inside a counted call that stays open is no row of its own, however long that lasts.
#[test]
fn bare_calls_of_open_calls_are_covered() {
    let mut story = Story::node();
    story.begin(Layer::KubeletCall, "ExecSync", 7, 900, 0);
    story.call(Layer::KubeletClient, "ExecSync", (7, 1000), MS, 2 * MS, CALL_OK).read_open(S);
    story.relist(2 * S, 0).relist(5 * S, 0);
    let snapshot = story.snapshot(6 * S);
    assert!(snapshot.rows.iter().all(|row| row.key.side != Side::Bare));
    sums_add_up(&snapshot);
}

/// The rows of a process that went long ago are given up, and their calls are counted; the last kubelet stays a target.
#[test]
fn the_gone_are_forgotten() {
    let none = Fact::Loss { counts: Vec::new() };
    let mut story = Story::node();
    story.relist(0, 0);
    let gone = TargetGone { component: Component::Kubelet, pid: KUBELET, how: "ended".to_owned() };
    story.fact(S, &Fact::TargetGone(gone)).fact(200 * S, &none);
    let kubelet = |snapshot: &Snapshot| snapshot.rows.iter().filter(|row| row.key.tgid == KUBELET).count();
    let early = story.snapshot(200 * S);
    assert_ne!((kubelet(&early), early.tally.forgotten), (0, 0));
    story.target_at(250 * S, Component::Kubelet, KUBELET + 1, "v1").fact(400 * S, &none);
    let late = story.snapshot(400 * S);
    assert_eq!(kubelet(&late), 0);
    assert_ne!(late.tally.forgotten, 0);
    assert!(late.targets.iter().all(|target| target.fact.pid != KUBELET));
    sums_add_up(&late);
}

/// A loss makes what is said of the minute after it uncertain, and not of the rest of the run; it stays in the report.
#[test]
fn a_loss_counts_for_a_while() {
    let (stage, reason) = ("kernel".to_owned(), "ring_full".to_owned());
    let lost = LossCount { stage, reason, sentence: "lost".to_owned(), count: 3, is_loss: true };
    let mut story = Story::node();
    story.fact(S, &Fact::Loss { counts: vec![lost.clone()] });
    let fresh = |story: &Story, seconds| story.snapshot(seconds * S).fresh_losses().count();
    assert_eq!([2, 60].map(|seconds| fresh(&story, seconds)), [1, 1]);
    story.fact(70 * S, &Fact::Loss { counts: vec![lost.clone()] });
    assert_eq!((fresh(&story, 70), story.snapshot(70 * S).real_losses().count()), (0, 1));
    story.fact(80 * S, &Fact::Loss { counts: vec![LossCount { count: 4, ..lost }] });
    assert_eq!(fresh(&story, 90), 1, "it grows again");
}

/// When the index of a hook stands for something else, calls of what it stood for are not taken for that: they are given
/// up, with the relists that would miss one. Their rows stay.
#[test]
fn a_hook_stands_for_something_else() {
    let mut story = Story::node();
    for n in 0..3 {
        story.relist(n * S, 1);
    }
    let before = story.snapshot(10 * S);
    let lists = |snapshot: &Snapshot| {
        let row = snapshot.rows.iter().find(|row| row.key.operation == "ListContainers");
        row.map(|row| row.latency.count())
    };
    let of = before
        .hooks
        .iter()
        .find(|state| state.hook.layer == Layer::KubeletCall && state.hook.operation == "ListContainers");
    let old = of.map(|state| HookFact::clone(&state.hook)).unwrap();
    // The same once more changes nothing.
    story.fact(10 * S, &Fact::Hook(old.clone()));
    assert_eq!(json_of(&story.snapshot(10 * S))[..100], json_of(&before)[..100]);
    assert_eq!(story.snapshot(10 * S).relists.len(), 3);
    let other = HookFact { operation: "StopContainer".to_owned(), symbol: "other".to_owned(), ..old };
    story.fact(11 * S, &Fact::Hook(other));
    let after = story.snapshot(12 * S);
    assert_eq!(after.relists.len(), 0);
    assert!(after.rows.iter().all(|row| row.key.operation != "StopContainer"), "{:#?}", after.rows);
    assert_eq!((lists(&after), lists(&before)), (Some(3), Some(3)));
    sums_add_up(&after);
}
