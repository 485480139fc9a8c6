//! [`Leaf`]: every nanosecond of a span that lies in no child, under exactly one name.
//!
//! An interval has a name only when it was measured by itself: a park by its own two probes, the time outside of all
//! parks as what is left when the kernel side has measured every park, a process by its `execve` and its end. All the
//! rest is [`LeafKind::Unexplained`].

use super::{Park, Span};
use crate::{
    decode::{MonoNs, Parked},
    input::Layer,
};

/// What a goroutine did in a part of a span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeafKind<'a> {
    /// It was not parked: on a processor, ready to run, or in a system call.
    NotParked,
    /// It was parked, until the scheduler ran it again.
    Parked(&'a Park),
    /// It was parked around a request to another goroutine that answered meanwhile: between client and handler.
    Transport(&'a Park),
    /// It was parked, each time too shortly to be told apart.
    ShortParks,
    /// A process ran: its begin and its end were seen.
    Process,
    /// Not measured.
    Unexplained,
}

/// A part of a span that lies in none of its children.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaf<'a> {
    /// What it is.
    pub kind: LeafKind<'a>,
    /// When; `None` for what is only known as a sum.
    pub interval: Option<(MonoNs, MonoNs)>,
    /// Its length.
    pub ns: u64,
}

/// A tree, added up by what its leaves are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// On a processor, ready to run, or in a system call.
    pub not_parked_ns: u64,
    /// Parked, with the place.
    pub parked_ns: u64,
    /// Parked between client and handler.
    pub transport_ns: u64,
    /// Parked too shortly to be told apart.
    pub short_ns: u64,
    /// In processes that ran for it.
    pub process_ns: u64,
    /// Not measured.
    pub unexplained_ns: u64,
}

impl Account {
    /// All of it: the length of the root.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.explained_ns() + self.unexplained_ns
    }

    /// What was measured.
    #[must_use]
    pub fn explained_ns(&self) -> u64 {
        self.not_parked_ns + self.parked_ns + self.transport_ns + self.short_ns + self.process_ns
    }

    fn add(&mut self, leaf: &Leaf<'_>) {
        let sum = match leaf.kind {
            LeafKind::NotParked => &mut self.not_parked_ns,
            LeafKind::Parked(_) => &mut self.parked_ns,
            LeafKind::Transport(_) => &mut self.transport_ns,
            LeafKind::ShortParks => &mut self.short_ns,
            LeafKind::Process => &mut self.process_ns,
            LeafKind::Unexplained => &mut self.unexplained_ns,
        };
        *sum += leaf.ns;
    }
}

/// Adds up the leaves of a whole tree.
#[must_use]
pub fn account(root: &Span, now: MonoNs) -> Account {
    let mut account = Account::default();
    for span in root.walk() {
        leaves(span, now).iter().for_each(|leaf| account.add(leaf));
    }
    account
}

/// The leaves of one span, its children's left out: parks by start, then sums. Their lengths add up to its self time;
/// sums of nothing are left out.
#[must_use]
pub fn leaves(span: &Span, now: MonoNs) -> Vec<Leaf<'_>> {
    let mut leaves = Vec::new();
    let known_to = if span.is_open() { span.known_to.unwrap_or(span.start()) } else { MonoNs(u64::MAX) };
    if span.layer() == Layer::Process {
        process(&gaps(span, now), known_to, &mut leaves);
        return leaves;
    }
    let rest = named(span, &gaps(span, now), &mut leaves);
    let (mut seen, mut unexplained) = (0, 0);
    for (from, to) in rest {
        let edge = known_to.clamp(from, to);
        seen += edge.since(from);
        unexplained += to.since(edge);
    }
    match own(span) {
        None => unexplained += seen,
        Some(own) => {
            let short = own.short_ns.min(seen);
            // Parks whose records are missing: measured as a sum, but not where they were.
            let told: u64 = span.parks.iter().filter(|p| !p.open).map(|p| p.end.since(p.start)).sum();
            let lost = own.ns.saturating_sub(own.short_ns).saturating_sub(told).min(seen - short);
            unexplained += lost;
            push(&mut leaves, LeafKind::NotParked, seen - short - lost);
            push(&mut leaves, LeafKind::ShortParks, short);
        }
    }
    push(&mut leaves, LeafKind::Unexplained, unexplained);
    leaves
}

/// The leaves of a process: it runs, until it was looked at last.
fn process(gaps: &[Interval], known_to: MonoNs, leaves: &mut Vec<Leaf<'_>>) {
    let mut unexplained = 0;
    for &(from, to) in gaps {
        let edge = known_to.clamp(from, to);
        if from < edge {
            leaves.push(Leaf { kind: LeafKind::Process, interval: Some((from, edge)), ns: edge.since(from) });
        }
        unexplained += to.since(edge);
    }
    push(leaves, LeafKind::Unexplained, unexplained);
}

fn push<'a>(leaves: &mut Vec<Leaf<'a>>, kind: LeafKind<'a>, ns: u64) {
    if ns > 0 {
        leaves.push(Leaf { kind, interval: None, ns });
    }
}

type Interval = (MonoNs, MonoNs);

/// What lies in no child.
fn gaps(span: &Span, now: MonoNs) -> Vec<Interval> {
    let end = span.end.unwrap_or(now).max(span.start());
    let (mut gaps, mut at) = (Vec::with_capacity(span.children.len() + 1), span.start());
    for child in &span.children {
        if child.start() > at {
            gaps.push((at, child.start().min(end)));
        }
        at = child.end.unwrap_or(now).clamp(at, end);
    }
    if at < end {
        gaps.push((at, end));
    }
    gaps
}

/// Takes the parks out of `gaps`, each part of one as a leaf; what is left comes back.
fn named<'a>(span: &'a Span, gaps: &[Interval], leaves: &mut Vec<Leaf<'a>>) -> Vec<Interval> {
    let (mut rest, mut next) = (Vec::new(), 0);
    for &(from, to) in gaps {
        let mut at = from;
        while let Some(park) = span.parks.get(next).filter(|park| park.start < to) {
            let (start, end) = (park.start.max(at), park.end.min(to));
            if start < end {
                if at < start {
                    rest.push((at, start));
                }
                let kind =
                    if answered_in(span, park) { LeafKind::Transport(park) } else { LeafKind::Parked(park) };
                leaves.push(Leaf { kind, interval: Some((start, end)), ns: end.since(start) });
                at = end;
            }
            if park.end > to {
                break;
            }
            next += 1;
        }
        if at < to {
            rest.push((at, to));
        }
    }
    rest
}

/// Did another goroutine work on a request of this one while it was parked? What surrounds a process is no transport:
/// the goroutine may have waited for something else.
fn answered_in(span: &Span, park: &Park) -> bool {
    span.children.iter().any(|child| {
        !child.same_goroutine(span)
            && child.layer() != Layer::Process
            && child.start() < park.end
            && child.end.is_none_or(|end| end > park.start)
    })
}

/// The parks of a span that lie in none of its children; `None` unless all were measured.
fn own(span: &Span) -> Option<Parked> {
    let mut own = span.parked?;
    for child in span.children.iter().filter(|child| child.same_goroutine(span)) {
        let inside = child.parked?;
        own.ns = own.ns.saturating_sub(inside.ns);
        own.short_ns = own.short_ns.saturating_sub(inside.short_ns);
    }
    Some(own)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        input::HookFact,
        span::{Tree, sample},
    };

    fn park(start: u64, end: u64) -> Park {
        Park { start: MonoNs(start), end: MonoNs(end), open: false, reason: 1, stack: Vec::new().into() }
    }

    fn span(start: u64, end: Option<u64>, sums: (u64, u64), parks: Vec<Park>) -> Span {
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
        let hook = HookFact { layer: Layer::Process, ..(*span.hook).clone() };
        (span.hook, span.id.tgid, span.id.goid) = (hook.into(), 7, 0);
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
                        .map(|(from, length, open)| Park { open, ..park(from, from + length) })
                        .collect();
                    it.parks.sort_by_key(|park| park.start);
                    if handler == 2 && place > 0 && length > 4 {
                        let mut answer = sample::span(start + 1, Some(start + length / 2), 0);
                        answer.id.tgid = 2;
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
}
