//! [`Leaf`]: every nanosecond of a span that lies in no child, under exactly one name.
//!
//! An interval has a name only when it was measured by itself: a park by its own two probes, the time outside of all
//! parks as what is left when the kernel side has measured every park, a process by its `execve` and its end. All the
//! rest is [`LeafKind::Unexplained`].

use super::{GoroutinePark, Span};
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
    Parked(&'a GoroutinePark),
    /// It was parked around a request to another goroutine that answered meanwhile: between client and handler.
    Transport(&'a GoroutinePark, Leg),
    /// It was parked, each time too shortly to be told apart.
    ShortParks,
    /// A process ran: its start and its end were seen.
    Process,
    /// Not measured.
    Unexplained,
}

/// Which part of the way between a client and the handler that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leg {
    /// Until the client's process has written the request.
    Send,
    /// From there until the handler begins.
    Accept,
    /// From the end of the handler until the runtime has written the answer.
    Answer,
    /// From there until the client goes on.
    Receive,
    /// Any of them: no request on the wire tells them apart.
    Whole,
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
            LeafKind::Transport(..) => &mut self.transport_ns,
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
                let mut add = |kind, from: MonoNs, to: MonoNs| {
                    if from < to {
                        leaves.push(Leaf { kind, interval: Some((from, to)), ns: to.since(from) });
                    }
                };
                if answered_in(span, park) {
                    let (first, edge, second) = legs(span, start, end);
                    add(LeafKind::Transport(park, first), start, edge);
                    add(LeafKind::Transport(park, second), edge, end);
                } else {
                    add(LeafKind::Parked(park), start, end);
                }
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
fn answered_in(span: &Span, park: &GoroutinePark) -> bool {
    span.children.iter().any(|child| {
        !child.same_goroutine(span)
            && child.layer() != Layer::Process
            && child.start() < park.end
            && child.end.is_none_or(|end| end > park.start)
    })
}

/// What an interval between a client and its handler consists of: the first part until an edge in it, and the second.
fn legs(span: &Span, start: MonoNs, end: MonoNs) -> (Leg, MonoNs, Leg) {
    let carried = span.children.iter().find_map(|child| Some((child, child.carried?)));
    match carried {
        Some((child, way)) if end <= child.start() => (Leg::Send, way.sent.clamp(start, end), Leg::Accept),
        Some((child, way)) if child.end.is_some_and(|ended| ended <= start) => {
            (Leg::Answer, way.answered.clamp(start, end), Leg::Receive)
        }
        _ => (Leg::Whole, end, Leg::Whole),
    }
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
#[path = "leaf_tests.rs"]
mod tests;
