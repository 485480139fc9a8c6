//! [`Flight`]: the last records of the stream, packed, in memory. It is cut into segments, each with the facts that make it
//! a stream of its own, so the oldest can be dropped.

use std::collections::VecDeque;

use crate::{
    input::Frame,
    recording::{Encoder, Recording},
};

/// A segment is closed after this time, nanoseconds.
const SEGMENT_NS: u64 = 30_000_000_000;
/// Segments that fill the memory that there is.
const SEGMENTS: usize = 4;
/// What is older than this, nanoseconds, is dropped also where there is room: a stall is named within seconds to a minute, the
/// kubelet's health check fails after three, and nobody's memory has to grow for half an hour before it is full.
const KEPT_NS: u64 = 300_000_000_000;

/// Records of one piece of time, packed.
#[derive(Debug)]
struct Segment {
    blocks: Vec<u8>,
    /// Records that were told again at its beginning.
    preamble: usize,
    began_ns: u64,
}

/// The last of the stream.
#[derive(Debug)]
pub(crate) struct Flight {
    /// The youngest is the one that grows.
    segments: VecDeque<Segment>,
    /// Of that one. It takes more memory than a quiet minute, packed: there is one for all of them, one after the other.
    encoder: Encoder,
    limit: usize,
}

/// A copy of it, still packed: recordings, and how many records of each are told again.
#[derive(Debug)]
pub(crate) struct Flown(Vec<(Vec<u8>, usize)>);

impl Flight {
    /// Takes at most so many bytes of memory, and one piece of what comes in a second more.
    pub(crate) fn new(limit: usize) -> Self {
        Self { segments: VecDeque::new(), encoder: Encoder::new(), limit }
    }

    /// Forgets everything: another stream begins.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.encoder = Encoder::new();
    }

    /// Takes a record.
    pub(crate) fn push(&mut self, frame: &Frame) {
        if self.segments.is_empty() {
            self.begin(0);
        }
        self.add(frame);
    }

    fn add(&mut self, frame: &Frame) {
        if let Some(segment) = self.segments.back_mut() {
            segment.blocks.extend(self.encoder.push(&frame.bytes).unwrap_or_default());
        }
    }

    /// Finishes the block that grows.
    fn flush(&mut self) {
        if let Some(segment) = self.segments.back_mut() {
            segment.blocks.extend(self.encoder.block().unwrap_or_default());
        }
    }

    /// Is it time for another segment?
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.segments.back().is_none_or(|segment| {
            let full = segment.blocks.len() >= self.limit / SEGMENTS;
            full || now_ns.saturating_sub(segment.began_ns) >= SEGMENT_NS
        })
    }

    /// Begins another segment with what a stream that begins now must know.
    pub(crate) fn cut(&mut self, now_ns: u64, preamble: &[Frame]) {
        self.flush();
        if let Some(last) = self.segments.back_mut() {
            last.blocks.shrink_to_fit();
        }
        self.begin(now_ns);
        preamble.iter().for_each(|frame| self.add(frame));
        if let Some(segment) = self.segments.back_mut() {
            segment.preamble = preamble.len();
        }
        while self.segments.len() > 1 && (self.bytes() > self.limit || self.oldest_is_too_old(now_ns)) {
            self.segments.pop_front();
        }
    }

    /// Did also the end of the oldest segment happen long ago?
    fn oldest_is_too_old(&self, now_ns: u64) -> bool {
        self.segments.get(1).is_some_and(|next| now_ns.saturating_sub(next.began_ns) > KEPT_NS)
    }

    fn begin(&mut self, now_ns: u64) {
        self.encoder.begin_again();
        self.segments.push_back(Segment { blocks: Vec::new(), preamble: 0, began_ns: now_ns });
    }

    fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.blocks.capacity()).sum()
    }

    /// A copy of what there is.
    pub(crate) fn copy(&mut self) -> Flown {
        self.flush();
        let whole =
            |segment: &Segment| ([Encoder::header(), segment.blocks.clone()].concat(), segment.preamble);
        Flown(self.segments.iter().map(whole).collect())
    }
}

impl Flown {
    /// One recording: what the oldest segment must know, then all records in order.
    pub(crate) fn into_recording(self) -> Vec<u8> {
        let (mut encoder, mut bytes) = (Encoder::new(), Encoder::header());
        for (number, (segment, preamble)) in self.0.into_iter().enumerate() {
            // They begin as recordings do: we have just made them.
            let Ok(mut recording) = Recording::open(segment.as_slice()) else { continue };
            let mut told_again = if number == 0 { 0 } else { preamble };
            while recording.next_block(&mut |frame| {
                if told_again > 0 {
                    told_again -= 1;
                } else {
                    bytes.extend(encoder.push(&frame.bytes).unwrap_or_default());
                }
            }) {}
        }
        bytes.extend(encoder.block().unwrap_or_default());
        bytes.extend(encoder.end());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        input::{Fact, Start, frame_fact},
        recording::Damage,
    };

    fn frame(at: u64, node: &str) -> Frame {
        frame_fact(at, &Fact::Start(Start { node: node.to_owned(), ..Start::default() }))
    }

    fn times(bytes: &[u8]) -> Vec<u64> {
        let (mut recording, mut times) = (Recording::open(bytes).unwrap(), Vec::new());
        while recording.next_block(&mut |frame| times.push(frame.header.ts_ns)) {}
        assert_eq!(*recording.damage(), Damage::default());
        times
    }

    /// The first preamble, then each record once and in order.
    #[test]
    fn a_recording_of_the_last() {
        let mut flight = Flight::new(1 << 20);
        flight.cut(0, &[frame(1, "p"), frame(2, "p")]);
        (10..13).for_each(|at| flight.push(&frame(at, "n")));
        flight.cut(SEGMENT_NS, &[frame(13, "p")]);
        flight.push(&frame(14, "n"));
        assert_eq!(times(&flight.copy().into_recording()), [1, 2, 10, 11, 12, 14]);
        flight.push(&frame(15, "n"));
        assert_eq!(times(&flight.copy().into_recording()), [1, 2, 10, 11, 12, 14, 15], "it goes on");
        flight.clear();
        flight.push(&frame(20, "n"));
        assert_eq!(times(&flight.copy().into_recording()), [20]);
    }

    /// A quiet node, which fills no memory: nothing older than the five minutes and a segment is kept, nothing younger is dropped.
    #[test]
    fn what_is_old_goes() {
        let mut flight = Flight::new(1 << 20);
        let at = |second: u64| second * 1_000_000_000;
        for second in 0..=900 {
            if flight.is_due(at(second)) {
                flight.cut(at(second), &[frame(at(second), "p")]);
            }
            flight.push(&frame(at(second), "n"));
        }
        let times = times(&flight.copy().into_recording());
        assert_eq!((times[0], times.last()), (at(900) - KEPT_NS - SEGMENT_NS, Some(&at(900))));
    }

    /// What is too old for the memory is dropped, and what is left begins with its own preamble.
    #[test]
    fn memory_is_bounded() {
        let (limit, mut seed) = (64 << 10, 7_u64);
        let mut flight = Flight::new(limit);
        for second in 0..400_u64 {
            if flight.is_due(second * 1_000_000_000) {
                flight.cut(second * 1_000_000_000, &[frame(1_000_000 + second, "p")]);
            }
            for _ in 0..20 {
                // Nothing that packs well.
                let text: String = (0..40)
                    .map(|_| {
                        seed = seed
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        format!("{seed:x}")
                    })
                    .collect();
                flight.push(&frame(second, &text));
            }
            assert!(flight.bytes() <= limit + (300 << 10), "{}", flight.bytes());
        }
        let times = times(&flight.copy().into_recording());
        assert!(times[0] > 1_000_000 && times[1..].is_sorted() && times.ends_with(&[399]), "{times:?}");
    }
}
