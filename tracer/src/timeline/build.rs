//! Trees → slices, the slowest first, as many as fit.

use std::collections::HashSet;

use super::{Slice, Timeline, What, lanes::Lanes};
use crate::{
    correlate::{Relist, Request, RequestTree, Snapshot},
    decode::MonoNs,
    span::{Leaf, LeafKind, Span, leaves, violation},
};

/// So many relists are shown, and as many requests.
const TREES: usize = 50;
/// No tree is begun with more slices than this.
const SLICES: usize = 20_000;

impl<'a> Timeline<'a> {
    /// The slowest relists and requests of a snapshot: those that are open, oldest first, then the longest.
    #[must_use]
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let mut builder = Builder::new(snapshot.now);
        let relists = snapshot.relists.iter().map(Relist::root);
        builder.trees(relists.collect());
        let requests = snapshot.requests.iter().map(RequestTree::root);
        builder.trees(requests.filter(|root| !root.is_long_lived()).collect());
        let traced: HashSet<(u32, u64)> =
            snapshot.open.iter().map(|call| (call.span.id.tgid, call.span.id.goid)).collect();
        let untraced =
            |request: &&Request| !request.goids.iter().any(|goid| traced.contains(&(request.pid, *goid)));
        let early = snapshot.census.requests.iter().filter(|request| request.stays);
        early.filter(untraced).for_each(|request| builder.early(request));
        builder.timeline.tracks = builder.lanes.tracks;
        builder.timeline
    }
}

struct Builder<'a> {
    timeline: Timeline<'a>,
    lanes: Lanes,
    now: MonoNs,
}

/// What lies in a span itself.
enum Part<'a> {
    Leaf(Leaf<'a>, MonoNs, MonoNs),
    Child(&'a Span),
}

impl<'a> Builder<'a> {
    fn new(now: MonoNs) -> Self {
        Self { timeline: Timeline::default(), lanes: Lanes::default(), now }
    }

    fn trees(&mut self, mut roots: Vec<&'a Span>) {
        let now = self.now;
        roots.sort_by_key(|root| (!root.is_open(), u64::MAX - root.duration_ns(now), root.id));
        for (place, root) in roots.into_iter().enumerate() {
            if place < TREES && self.timeline.slices.len() < SLICES {
                self.segment(root, None);
            } else {
                self.timeline.left_out += 1;
            }
        }
    }

    /// A span on a track where nothing of its kind lies, and what lies in it.
    fn segment(&mut self, span: &'a Span, from: Option<usize>) {
        let end = span.end.unwrap_or(self.now).max(span.start());
        let track = self.lanes.place(span.component(), span.id.tgid, span.start(), end);
        let slice = self.slice(span, track, end, from);
        if let Some(from) = from {
            self.timeline.flows.push((from, slice));
        }
        // Of a contradiction nothing is certain but its length.
        if from.is_some() || violation(span).is_none() {
            self.inside(span, slice);
        }
    }

    fn slice(&mut self, span: &'a Span, track: usize, end: MonoNs, parent: Option<usize>) -> usize {
        self.push(Slice {
            track,
            what: What::Span(span),
            start: span.start(),
            end,
            open: span.is_open(),
            parent,
            goroutine: span.id.goid,
        })
    }

    fn push(&mut self, slice: Slice<'a>) -> usize {
        self.timeline.slices.push(slice);
        self.timeline.slices.len() - 1
    }

    /// What lies in a span: on its track what its goroutine did, by start, on others what was done for it.
    fn inside(&mut self, span: &'a Span, at: usize) {
        let waits = leaves(span, self.now).into_iter().filter_map(|leaf| {
            let (from, to) = leaf.interval?;
            Some(Part::Leaf(leaf, from, to))
        });
        let mut parts: Vec<Part<'a>> = waits.chain(span.children.iter().map(Part::Child)).collect();
        parts.sort_by_key(|part| match part {
            Part::Leaf(_, from, _) => *from,
            Part::Child(child) => child.start(),
        });
        let (track, end) = (self.timeline.slices[at].track, self.timeline.slices[at].end);
        let mut free_from = span.start();
        for part in parts {
            match part {
                Part::Child(child) if !child.same_goroutine(span) => self.segment(child, Some(at)),
                Part::Child(child) => {
                    free_from = child.end.unwrap_or(self.now).clamp(free_from, end);
                    let below = self.slice(child, track, free_from, Some(at));
                    self.inside(child, below);
                }
                Part::Leaf(leaf, from, to) => {
                    if let Some(what) = waiting(&leaf) {
                        let (open, goroutine) = (lasts(&what), span.id.goid);
                        let parent = Some(at);
                        self.push(Slice { track, what, start: from, end: to, open, parent, goroutine });
                    }
                }
            }
        }
    }

    /// What was in flight before the probes, for as long as it waits at least.
    fn early(&mut self, request: &'a Request) {
        if self.timeline.slices.len() >= SLICES {
            self.timeline.left_out += 1;
            return;
        }
        let start = self.now.minus(request.since.ns);
        let track = self.lanes.place(request.component, request.pid, start, self.now);
        let what = What::Early(&request.operation, &request.frames);
        let goroutine = request.goids.first().copied().unwrap_or_default();
        self.push(Slice { track, what, start, end: self.now, open: true, parent: None, goroutine });
    }
}

/// Does its goroutine wait there still?
fn lasts(what: &What<'_>) -> bool {
    matches!(what, What::Waits(park) if park.open)
}

/// The part of a span in which its goroutine waited.
fn waiting<'a>(leaf: &Leaf<'a>) -> Option<What<'a>> {
    match leaf.kind {
        LeafKind::Parked(park) => Some(What::Waits(park)),
        LeafKind::Transport(..) => Some(What::Transport),
        LeafKind::NotParked | LeafKind::ShortParks | LeafKind::Process | LeafKind::Unexplained => None,
    }
}
