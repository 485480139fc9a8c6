//! Ids of traces and spans: the same for the same interval, whoever sends it and when.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{
    correlate::Snapshot,
    timeline::{Slice, Timeline, What},
};

/// What tells nodes, and boots of a node, apart: their names and the moment at which their clocks began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids<'a> {
    node: &'a str,
    booted_ns: i64,
}

impl<'a> Ids<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        // Wall clocks are set; a second or so is no other boot.
        const GRAIN_NS: i64 = 60 * 1_000_000_000;
        Self { node: &snapshot.start.node, booted_ns: snapshot.start.realtime_offset_ns / GRAIN_NS }
    }

    /// 16 bytes, by the root of the trace.
    pub(super) fn trace(self, timeline: &Timeline<'_>, root: usize) -> Vec<u8> {
        [self.hash(timeline, root, 1), self.hash(timeline, root, 2)].concat()
    }

    /// 8 bytes.
    pub(super) fn span(self, timeline: &Timeline<'_>, slice: usize) -> Vec<u8> {
        self.hash(timeline, slice, 3).to_vec()
    }

    fn hash(self, timeline: &Timeline<'_>, slice: usize, salt: u8) -> [u8; 8] {
        let mut hasher = DefaultHasher::new();
        (salt, self.node, self.booted_ns).hash(&mut hasher);
        key(&timeline.slices[slice], timeline).hash(&mut hasher);
        // An id of zeros is none.
        hasher.finish().max(1).to_be_bytes()
    }
}

/// What tells a slice from every other. A request from before the probes has no moment of its own: its goroutine tells it.
fn key(slice: &Slice<'_>, timeline: &Timeline<'_>) -> (u8, u32, u64, u64, String) {
    let pid = timeline.tracks[slice.track].pid;
    let (kind, start, name) = match &slice.what {
        What::Span(span) => (0, span.start().0, format!("{:?}", span.id.source)),
        What::Waits(_) => (1, slice.start.0, String::new()),
        What::Transport => (2, slice.start.0, String::new()),
        What::Early(operation, _) => (3, 0, (*operation).to_owned()),
    };
    (kind, pid, slice.goroutine, start, name)
}
