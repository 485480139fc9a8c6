//! What leaves consist of, and that they are a partition.

use proptest::prelude::*;

use super::*;
use crate::span::{Carried, JoinKey, Label, SpanId, SpanKind, Tree, sample};

fn park(start: u64, end: u64) -> GoroutinePark {
    GoroutinePark { start: MonoNs(start), end: MonoNs(end), open: false, reason: 1, stack: Vec::new().into() }
}

fn span(start: u64, end: Option<u64>, sums: (u64, u64), parks: Vec<GoroutinePark>) -> Span {
    let parked = Some(Parked { ns: sums.0, short_ns: sums.1, count: 0 });
    Span { parked, parks, ..sample::span(start, end, 0) }
}

fn sums(span: &Span, now: u64) -> [u64; 5] {
    let it = account(span, MonoNs(now));
    [it.not_parked_ns, it.parked_ns, it.transport_ns, it.short_ns, it.unexplained_ns]
}

/// Parks, short parks and the rest of a call: each has its name, and together they are the call.
#[test]
fn a_measured_call() {
    let call = span(0, Some(100), (50, 10), vec![park(20, 60)]);
    assert_eq!(sums(&call, 100), [50, 40, 0, 10, 0]);
    assert_eq!(leaves(&call, MonoNs(100))[0].interval, Some((MonoNs(20), MonoNs(60))));
}

/// Without the kernel's sums nobody knows what happened outside of the parks that were told.
#[test]
fn an_unmeasured_call() {
    let call = Span { parked: None, ..span(0, Some(100), (0, 0), vec![park(20, 60)]) };
    assert_eq!(sums(&call, 100), [0, 40, 0, 0, 60]);
}

/// A park that was measured and whose record is missing is not taken for work.
#[test]
fn a_lost_record_is_unexplained() {
    assert_eq!(sums(&span(0, Some(100), (70, 0), vec![park(20, 60)]), 100), [30, 40, 0, 0, 30]);
}

/// The handler takes its part of the client's park; the rest is transport. A park before it is none.
#[test]
fn a_joined_handler() {
    let mut client = span(0, Some(100), (80, 0), vec![park(2, 7), park(10, 85)]);
    let mut handler = span(20, Some(70), (30, 0), vec![park(30, 60)]);
    handler.id.tgid = 2;
    client.children.push(handler);
    assert_eq!(sums(&client, 100), [20 + 20, 5 + 30, 10 + 15, 0, 0]);
}

/// The request that carried a call splits the way to its handler and back, also where it was written while the client was
/// not parked.
#[test]
fn a_way_in_four() {
    let way = |sent: u64, answered: u64| {
        let mut client = span(0, Some(100), (75, 0), vec![park(10, 85)]);
        let mut handler = span(20, Some(70), (0, 0), Vec::new());
        let key = JoinKey { socket: 7, stream: 5 };
        handler.carried = Some(Carried { key, sent: MonoNs(sent), answered: MonoNs(answered) });
        handler.id.tgid = 2;
        client.children.push(handler);
        let leg = |leaf: Leaf<'_>| match leaf.kind {
            LeafKind::Transport(_, leg) => Some((leg, leaf.ns)),
            _ => None,
        };
        leaves(&client, MonoNs(100)).into_iter().filter_map(leg).collect::<Vec<_>>()
    };
    assert_eq!(way(14, 72), [(Leg::Send, 4), (Leg::Accept, 6), (Leg::Answer, 2), (Leg::Receive, 13)]);
    assert_eq!(way(5, 90), [(Leg::Accept, 10), (Leg::Answer, 15)]);
    assert_eq!(way(20, 70), [(Leg::Send, 10), (Leg::Receive, 15)]);
}

/// An open call is measured until it was looked at last.
#[test]
fn an_open_call() {
    let mut lasts = park(40, 90);
    lasts.open = true;
    let call = Span { known_to: Some(MonoNs(90)), ..span(0, None, (0, 0), vec![lasts]) };
    assert_eq!(sums(&call, 100), [40, 50, 0, 0, 10]);
    assert_eq!(sums(&Span { parked: None, parks: Vec::new(), ..call }, 100), [0, 0, 0, 0, 100]);
}

fn program(start: u64, end: Option<u64>, children: Vec<Span>) -> Span {
    let mut span = Span { children, ..sample::span(start, end, 0) };
    let label = Label { component: span.component(), operation: span.operation().into() };
    (span.kind, span.id) = (SpanKind::Process(label), SpanId::of_process(7, span.start()));
    span
}

/// A process is measured by itself, with what it started inside it; the rest of the park around it stays a park with
/// its place.
#[test]
fn a_process() {
    let mut handler = span(0, Some(100), (75, 5), vec![park(10, 80)]);
    handler.children.push(program(20, Some(60), vec![program(30, Some(40), Vec::new())]));
    let it = account(&handler, MonoNs(100));
    assert_eq!((it.process_ns, it.parked_ns, it.transport_ns), (40, 10 + 20, 0));
    assert_eq!((it.short_ns, it.not_parked_ns, it.unexplained_ns), (5, 25, 0));
    assert_eq!((it.explained_ns(), it.total_ns()), (100, 100));
}

/// A process that lasts is measured until the processes were read last.
#[test]
fn an_open_process() {
    let mut handler = Span { known_to: Some(MonoNs(95)), ..span(0, None, (0, 0), Vec::new()) };
    handler.children.push(Span { known_to: Some(MonoNs(90)), ..program(20, None, Vec::new()) });
    let it = account(&handler, MonoNs(100));
    assert_eq!((it.process_ns, it.not_parked_ns, it.unexplained_ns), (70, 20, 10));
    handler.children[0].known_to = None;
    assert_eq!(account(&handler, MonoNs(100)).process_ns, 0, "never looked at");
}

/// Sums of a parent contain those of its children on the same goroutine.
#[test]
fn children_keep_their_own() {
    let inner = span(10, Some(60), (40, 5), vec![park(20, 55)]);
    let tree = Tree::build(span(0, Some(100), (60, 10), vec![park(70, 85)]), vec![inner]);
    assert_eq!(sums(&tree.root, 100), [15 - 5 + 35 - 5, 50, 0, 10, 0]);
}

/// Spans of one goroutine with any parks, any sums and any handlers.
fn tree() -> impl Strategy<Value = (Span, u64)> {
    let one = (0..900_u64, 0..300_u64, proptest::option::of((0..400_u64, 0..200_u64)), 0..4_u8);
    let parks = proptest::collection::vec((0..1000_u64, 0..200_u64, any::<bool>()), 0..12);
    (proptest::collection::vec((one, parks), 1..8), any::<bool>(), 900..1300_u64).prop_map(
        |(parts, open, known)| {
            let mut spans: Vec<Span> = Vec::new();
            for (((start, length, sums, handler), parks), place) in parts.into_iter().zip(0_u32..) {
                let (start, end) =
                    if place == 0 { (0, (!open).then_some(1000)) } else { (start, Some(start + length)) };
                let mut it = sample::span(start, end, place);
                it.parked = sums.map(|(ns, short_ns)| Parked { ns, short_ns, count: 0 });
                it.known_to = end.is_none().then_some(MonoNs(known));
                it.parks = parks
                    .into_iter()
                    .map(|(from, length, open)| GoroutinePark { open, ..park(from, from + length) })
                    .collect();
                it.parks.sort_by_key(|park| park.start);
                if handler == 2 && place > 0 && length > 4 {
                    let mut answer = sample::span(start + 1, Some(start + length / 2), 0);
                    answer.id.tgid = 2;
                    let key = JoinKey { socket: 7, stream: 5 };
                    answer.carried =
                        Some(Carried { key, sent: MonoNs(start), answered: MonoNs(start + length) });
                    it.children.push(answer);
                }
                if handler == 3 && length > 4 {
                    let ran = program(start + 1, Some(start + length / 2), Vec::new());
                    it.children.push(ran);
                }
                spans.push(it);
            }
            let root = spans.remove(0);
            (Tree::build(root, spans).root, 1300)
        },
    )
}

proptest! {
    /// Whatever the stream says: no two leaves overlap, and together they are the root, to the nanosecond.
    #[test]
    fn leaves_are_a_partition((root, now) in tree()) {
        let now = MonoNs(now);
        prop_assume!(crate::span::violation(&root).is_none());
        prop_assert_eq!(account(&root, now).total_ns(), root.duration_ns(now));
        let mut intervals: Vec<Interval> =
            root.walk().flat_map(|span| leaves(span, now)).filter_map(|leaf| leaf.interval).collect();
        intervals.sort();
        for pair in intervals.windows(2) {
            prop_assert!(pair[0].1 <= pair[1].0, "{pair:?}");
        }
    }
}
