//! Stories about who asked for what a handler of the runtime does: a kubelet that waits, one that gave up, an operator, nobody.

use plegtrace::correlate::{Caller, Joins, LastList, Snapshot};
use plegtrace::diagnose::diagnose;
use plegtrace::input::Layer;
use plegtrace_common::rec::{CALL_FAILED, CALL_OK};
use plegtrace_tests::story::{MS, S, Story, at};

use super::story::{healthy, reasons};

/// Tries that failed pile up as abandoned handlers; the one whose caller still waits is not among them.
#[test]
fn abandoned_handlers_pile_up() {
    let mut story = Story::node();
    for n in 0..3 {
        story.relist_hangs(n * 121 * S).list_times_out(n * 121 * S + 120 * S);
        story.read_open(n * 121 * S + 120 * S + 500 * MS);
    }
    story.relist_hangs(3 * 121 * S).read_open(400 * S);
    let snapshot = story.snapshot(400 * S);
    let given_up = snapshot.open.iter().filter(|call| call.is_abandoned(snapshot.now)).count();
    assert_eq!(
        (given_up, snapshot.open.iter().filter(|call| call.caller == Caller::Waiting).count()),
        (3, 1)
    );
    assert_eq!(snapshot.last_list, LastList::NotSince(at(0)), "none was seen: a lower bound");
}

/// A client that lists as well hides nobody's handler, and is not the kubelet's.
#[test]
fn other_callers_are_told_apart() {
    let mut story = Story::node();
    story.relist(0, 0).begin(Layer::Handler, "UpdateContainerResources", 77, 700, S).relist(2 * S, 0);
    story.read_open(3 * S);
    let young = story.snapshot(3 * S);
    assert!(healthy(&young));
    assert_eq!(young.open[0].caller, Caller::Foreign);
    story.relist(12 * S, 0);
    assert_eq!(reasons(&story.snapshot(12 * S + 100 * MS)), ["calls_open"]);
}

/// A person types `crictl exec` beside the probes of the kubelet: those that succeed have had their answer, and one that
/// fails with a handler of its own has, too. Only one that fails without leaves an abandoned handler.
#[test]
fn an_operator_at_work_is_nobody_s_abandoned_handler() {
    let mut story = Story::node();
    let probe = |story: &mut Story, begin: u64, end: u64, result: u32| {
        story.call(Layer::KubeletClient, "ExecSync", (6, 1000), begin, end, result);
    };
    let answered = |story: &mut Story, begin: u64, end: u64, result: u32| {
        story.call(Layer::Handler, "ExecSync", (76, 700), begin + MS, end - MS, result);
        probe(story, begin, end, result);
    };
    story.relist(0, 0).begin(Layer::Handler, "ExecSync", 77, 700, 3 * S);
    answered(&mut story, S, 5 * S, CALL_OK);
    answered(&mut story, 2 * S, 12 * S, CALL_FAILED);
    story.relist(14 * S, 0).read_open(15 * S);
    let snapshot = story.snapshot(15 * S);
    assert_eq!(snapshot.open[0].caller, Caller::Foreign);
    assert!(healthy(&snapshot), "{:?}", diagnose(&snapshot));

    story.begin(Layer::Handler, "ExecSync", 78, 700, 20 * S + MS);
    probe(&mut story, 20 * S, 30 * S, CALL_FAILED);
    story.relist(31 * S, 0).read_open(32 * S);
    let snapshot = story.snapshot(32 * S);
    let callers: Vec<Caller> = snapshot.open.iter().map(|call| call.caller).collect();
    assert_eq!(callers, [Caller::Foreign, Caller::Gone(at(30 * S))]);
    assert_eq!(reasons(&snapshot), ["abandoned_handlers"]);
}

/// Streams say whose a handler is where time alone cannot: the one that the operator has called is foreign although a probe
/// waits beside it, and the one that a probe has given up is its own, although another
/// probe began nearer to it.
#[test]
fn streams_say_whose_a_handler_is() {
    let mut story = Story::node();
    story.begin(Layer::KubeletCall, "ExecSync", 6, 900, S).begin(
        Layer::KubeletClient,
        "ExecSync",
        6,
        1000,
        S,
    );
    story.as_stream(41).begin(Layer::Handler, "ExecSync", 76, 700, 2 * S).as_stream(41);
    story.begin(Layer::Handler, "ExecSync", 77, 700, 3 * S).as_stream(1).relist(4 * S, 0).read_open(5 * S);
    let callers = |snapshot: &Snapshot| -> Vec<Caller> {
        let handlers = snapshot.open.iter().filter(|call| call.span.layer() == Layer::Handler);
        handlers.map(|call| call.caller).collect()
    };
    let snapshot = story.snapshot(5 * S);
    assert_eq!(callers(&snapshot), [Caller::Waiting, Caller::Foreign]);
    assert_eq!(snapshot.joins, Joins { joined: 3, by_stream: 1, foreign: 1, ..Joins::default() });

    story.end(Layer::KubeletClient, "ExecSync", 6, 10 * S, CALL_FAILED);
    story.end(Layer::KubeletCall, "ExecSync", 6, 10 * S, CALL_FAILED);
    // Of this one no stream was seen, and it began nearer to the handler.
    story.call(Layer::KubeletClient, "ExecSync", (7, 1000), 1900 * MS, 2500 * MS, CALL_FAILED);
    story.relist(19 * S, 0).read_open(20 * S);
    assert_eq!(callers(&story.snapshot(20 * S)), [Caller::Gone(at(10 * S)), Caller::Foreign]);
}
