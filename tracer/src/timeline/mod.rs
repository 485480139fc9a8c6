//! When things happened: the trees of the slowest relists and requests as slices on tracks, and what led from one track to
//! another.
//!
//! A track is a process, and in it a lane: slices of one lane lie inside or beside each other, never across. Calls of one
//! goroutine stay on one lane, so they nest; what happened elsewhere for a call (the handler, a program) is on a lane of its
//! own process, with a flow from the call.

mod build;
mod lanes;

pub use lanes::Track;

use crate::{
    decode::MonoNs,
    input::Layer,
    span::{GoroutinePark, Span},
};

/// What a slice stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum What<'a> {
    /// A relist, a call, or a program.
    Span(&'a Span),
    /// A goroutine was parked there.
    Waits(&'a GoroutinePark),
    /// It was parked while the handler of its request was between wire and wire.
    Transport,
    /// A request that no probe has seen begin: what it is called, and its stack, innermost first. It is at least so old.
    Early(&'a str, &'a [String]),
}

/// An interval on a track.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice<'a> {
    /// Index of its track.
    pub track: usize,
    /// What it is.
    pub what: What<'a>,
    /// Its begin.
    pub start: MonoNs,
    /// Its end; of an open one the moment of the snapshot, or when it was looked at last.
    pub end: MonoNs,
    /// It lasts.
    pub open: bool,
    /// Index of the slice that it lies in or happened for; `None` for a relist or request as a whole.
    pub parent: Option<usize>,
    /// Goroutine; 0 of what runs on none.
    pub goroutine: u64,
}

/// The slowest relists and requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline<'a> {
    /// Where slices are.
    pub tracks: Vec<Track>,
    /// Each after those it lies in.
    pub slices: Vec<Slice<'a>>,
    /// From a slice to one on another track that happened for it, by their indices.
    pub flows: Vec<(usize, usize)>,
    /// Relists and requests that are not shown: others were slower.
    pub left_out: u64,
}

impl Slice<'_> {
    /// Is it a relist or request as a whole?
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// Is it a relist?
    #[must_use]
    pub fn is_relist(&self) -> bool {
        matches!(self.what, What::Span(span) if span.layer() == Layer::Relist)
    }
}
