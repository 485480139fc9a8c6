//! [`Flame`]: trees folded into a bounded number of stacks, each with its share of the wall time.

use std::collections::{HashMap, HashSet};

use super::{
    frame::{Frame, Kind},
    late::Late,
};
use crate::{
    correlate::{Correlator, Finished, Relist, Request, RequestTree, Snapshot},
    decode::MonoNs,
    input::Layer,
    span::{GoroutinePark, Leaf, LeafKind, Span, SpanKind, account, leaves, violation},
};

/// Frames that are kept; the time of stacks that need more goes to the frame "(other)" of their root.
const FRAMES: usize = 16_384;
/// Different roots: each CRI method, finished and open, and room for more.
const ROOTS: usize = 128;

/// A stack, outermost frame first, and the time that was spent in its innermost frame itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack<'a> {
    /// The frames, each with how often it was entered.
    pub frames: Vec<(&'a Frame, u64)>,
    /// Wall time, nanoseconds.
    pub ns: u64,
}

#[derive(Clone, Debug)]
struct Node {
    frame: Frame,
    parent: Option<usize>,
    self_ns: u64,
    count: u64,
}

/// Wall time of relists and requests by stack. Bounded: see [`Self::folded_away`].
#[derive(Clone, Debug)]
pub struct Flame {
    nodes: Vec<Node>,
    index: HashMap<(Option<usize>, Frame), usize>,
    limit: usize,
    roots: usize,
    relists: u64,
    requests: u64,
    open: u64,
    folded_away: u64,
    complete: bool,
}

impl Default for Flame {
    fn default() -> Self {
        Self::with_room_for(FRAMES)
    }
}

impl Flame {
    /// Empty, with room for so many frames (and a few more for what has no room).
    #[must_use]
    pub fn with_room_for(frames: usize) -> Self {
        Self {
            nodes: Vec::new(),
            index: HashMap::new(),
            limit: frames,
            roots: 0,
            relists: 0,
            requests: 0,
            open: 0,
            folded_away: 0,
            complete: true,
        }
    }

    /// Takes all that has ended since the last time; with `last` also what has just ended.
    pub fn collect(&mut self, correlator: &mut Correlator, last: bool) {
        self.collect_and_see(correlator, last, &mut |_| {});
    }

    /// Like [`Self::collect`], and shows each tree to `see` on the way: nobody else is handed it.
    pub fn collect_and_see(
        &mut self,
        correlator: &mut Correlator,
        last: bool,
        see: &mut dyn FnMut(&Finished),
    ) {
        let complete = correlator.take_finished(last, &mut |finished| {
            see(&finished);
            self.add(finished.root(), MonoNs(0));
        });
        self.complete &= complete;
    }

    /// Adds what has not ended, with the time that it has taken so far.
    pub fn add_open(&mut self, snapshot: &Snapshot) {
        let late = Late::of(snapshot);
        let relists = snapshot.relists.iter().map(Relist::root);
        let roots = relists.chain(snapshot.requests.iter().map(RequestTree::root));
        for root in roots.filter(|root| root.is_open()) {
            self.add_with(root, snapshot.now, &late);
        }
        let traced: HashSet<(u32, u64)> =
            snapshot.open.iter().map(|call| (call.span.id.tgid, call.span.id.goid)).collect();
        let early = snapshot.census.requests.iter().filter(|request| request.stays);
        let untraced =
            |request: &&Request| !request.goids.iter().any(|goid| traced.contains(&(request.pid, *goid)));
        early.filter(untraced).for_each(|request| self.add_early(request));
    }

    /// Adds requests that were in flight before the probes, as two looks at their stacks found them: the oldest of those that
    /// wait alike, for as long as it waits at least.
    fn add_early(&mut self, request: &Request) {
        self.open += 1;
        let top = self.enter(None, Frame::of_early(&request.operation));
        let at = self.enter(Some(top), Frame::of_call(request.component, &request.operation));
        let mut at = self.enter(Some(at), Frame::of_kind(Kind::Waits));
        for function in request.frames.iter().rev() {
            at = self.enter(Some(at), Frame::of_function(function));
        }
        self.spend(at, request.since.ns);
    }

    /// Adds one tree; an open one as it is at `now`.
    pub fn add(&mut self, root: &Span, now: MonoNs) {
        self.add_with(root, now, &Late::default());
    }

    fn add_with(&mut self, root: &Span, now: MonoNs, late: &Late<'_>) {
        match (root.is_open(), root.layer()) {
            (true, _) => self.open += 1,
            (false, Layer::Relist) => self.relists += 1,
            (false, _) => self.requests += 1,
        }
        let top = self.enter(None, Frame::of_root(root));
        let whole = root.duration_ns(now);
        if violation(root).is_some() || account(root, now).total_ns() != whole {
            // A contradiction: nothing of it is certain but its length.
            let leaf = self.enter(Some(top), Frame::of_kind(Kind::Unexplained));
            return self.spend(leaf, whole);
        }
        let at = if root.is_any_relist() { top } else { self.enter(Some(top), Frame::of_span(root)) };
        self.span(at, root, now, late);
    }

    /// Spends the time of a span and of all below it; `at` is its frame.
    fn span(&mut self, at: usize, span: &Span, now: MonoNs, late: &Late<'_>) {
        for leaf in leaves(span, now) {
            self.leaf(at, span, &leaf, late);
        }
        for child in &span.children {
            let same = is_same_call(span, child);
            let below = if same { at } else { self.enter(Some(at), Frame::of_span(child)) };
            self.span(below, child, now, late);
        }
    }

    fn leaf(&mut self, at: usize, span: &Span, leaf: &Leaf<'_>, late: &Late<'_>) {
        let kind = match leaf.kind {
            LeafKind::NotParked => Kind::Runs,
            LeafKind::Parked(_) => Kind::Waits,
            LeafKind::Transport(..) => Kind::Transport,
            LeafKind::ShortParks => Kind::WaitsShortly,
            LeafKind::Unexplained => Kind::Unexplained,
            LeafKind::Process => {
                let at = late.frames(span).into_iter().fold(at, |at, frame| self.enter(Some(at), frame));
                return self.spend(at, leaf.ns);
            }
        };
        let mut at = self.enter(Some(at), Frame::of_kind(kind));
        if let LeafKind::Parked(park) = leaf.kind {
            for function in inner_functions(span, park) {
                at = self.enter(Some(at), Frame::of_function(function));
            }
        }
        self.spend(at, leaf.ns);
    }

    fn spend(&mut self, at: usize, ns: u64) {
        let node = &mut self.nodes[at];
        node.self_ns = node.self_ns.saturating_add(ns);
    }

    /// The place of a frame below another; that of "(other)" when there is no room.
    fn enter(&mut self, parent: Option<usize>, frame: Frame) -> usize {
        if let Some(other) = parent.filter(|at| self.nodes[*at].frame.kind == Kind::Other) {
            return other;
        }
        let key = (parent, frame);
        if let Some(&known) = self.index.get(&key) {
            self.nodes[known].count += 1;
            return known;
        }
        let has_room = match parent {
            None => self.roots < ROOTS,
            Some(_) => self.nodes.len() < self.limit,
        };
        if has_room {
            return self.insert(key);
        }
        self.folded_away += 1;
        let key = (parent.map(|at| self.top_of(at)), Frame::of_kind(Kind::Other));
        if let Some(&known) = self.index.get(&key) {
            self.nodes[known].count += 1;
            return known;
        }
        self.insert(key)
    }

    fn insert(&mut self, key: (Option<usize>, Frame)) -> usize {
        let at = self.nodes.len();
        self.roots += usize::from(key.0.is_none());
        self.nodes.push(Node { frame: key.1.clone(), parent: key.0, self_ns: 0, count: 1 });
        self.index.insert(key, at);
        at
    }

    fn top_of(&self, mut at: usize) -> usize {
        while let Some(parent) = self.nodes[at].parent {
            at = parent;
        }
        at
    }

    /// The stacks in which time was spent, in a fixed order: by their frames, outermost first.
    #[must_use]
    pub fn stacks(&self) -> Vec<Stack<'_>> {
        let spent = self.nodes.iter().enumerate().filter(|(_, node)| node.self_ns > 0);
        let mut stacks: Vec<Stack<'_>> = spent
            .map(|(at, node)| {
                let up = std::iter::successors(Some(at), |at| self.nodes[*at].parent);
                let mut frames: Vec<_> = up.map(|at| (&self.nodes[at].frame, self.nodes[at].count)).collect();
                frames.reverse();
                Stack { frames, ns: node.self_ns }
            })
            .collect();
        stacks.sort_by(|a, b| a.frames.iter().map(|(it, _)| it).cmp(b.frames.iter().map(|(it, _)| it)));
        stacks
    }

    /// Wall time of everything that was added, nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.self_ns))
    }

    /// Relists that have ended.
    #[must_use]
    pub fn relists(&self) -> u64 {
        self.relists
    }

    /// Requests that have ended, those in relists not counted.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Relists and requests that have not ended.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Frames that had no room of their own: their time is in "(other)".
    #[must_use]
    pub fn folded_away(&self) -> u64 {
        self.folded_away
    }

    /// Everything that ended was added: nothing had been given up before it was handed out.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }
}

/// Is this the bare client call that is all there is inside a counted one? The same call once more.
fn is_same_call(span: &Span, child: &Span) -> bool {
    span.layer() == Layer::KubeletCall
        && child.layer() == Layer::KubeletClient
        && child.operation() == span.operation()
}

/// The functions in which a goroutine waited, outermost first: those inside of the call, as far as its own function is
/// among them.
fn inner_functions<'a>(span: &Span, park: &'a GoroutinePark) -> impl Iterator<Item = &'a str> {
    let symbol = match &span.kind {
        SpanKind::Call(hook) => hook.symbol.as_str(),
        _ => "",
    };
    let own = park.stack.iter().position(|name| name == symbol && !name.is_empty());
    let inner = &park.stack[..own.unwrap_or(park.stack.len())];
    inner.iter().rev().map(String::as_str)
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
