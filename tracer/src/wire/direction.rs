//! One direction of a connection: bytes in, frames with decoded header blocks out.

use plegtrace_common::wire::grpc::Messages;
use plegtrace_common::wire::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Event, FIRST, GOAWAY, HEADERS, JOINED, LAST, LOST, ORPHAN,
    RST_STREAM, START, Step, Walker,
};

use super::hpack::{Decoder, Line};
use super::lessons::Lessons;

/// Longest header block that is decoded, bytes; grpc-go refuses more than 16 KiB.
pub const MAX_BLOCK: usize = 32 << 10;
/// Steps for one push: each frame takes a few, each byte at most one.
const MAX_STEPS: u32 = 1 << 26;

/// Who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kubelet, or another client.
    Client,
    /// The runtime.
    Server,
}

/// What a push contained.
#[derive(Debug)]
pub(super) enum Frame<'p> {
    /// From here on frames are seen; the header table may be unknown.
    Joined,
    /// From here on no frames are seen.
    Lost,
    /// A header block ended.
    Block {
        stream: u32,
        /// The sender has nothing more to say on the stream.
        is_last: bool,
        /// `None` when the block could not be decoded.
        lines: Option<Vec<Line>>,
    },
    /// Bytes of DATA.
    Data {
        stream: u32,
        bytes: &'p [u8],
        is_last: bool,
    },
    Reset {
        stream: u32,
        code: u32,
    },
    GoAway {
        last: u32,
        code: u32,
    },
}

/// A direction.
#[derive(Debug)]
pub(super) struct Direction {
    side: Side,
    walker: Walker,
    /// The header table, and what was learnt about it.
    pub(super) decoder: Decoder,
    pub(super) lessons: Lessons,
    /// Grows whenever both begin anew.
    epoch: u32,
    block: Vec<u8>,
    block_ends_stream: bool,
    /// Blocks that could not be decoded.
    broken: u64,
}

impl Direction {
    pub(super) fn new(side: Side) -> Self {
        let walker = if side == Side::Client { Walker::client() } else { Walker::server() };
        Self { walker, decoder: Decoder::new(), ..Self::late(side) }
    }

    pub(super) fn late(side: Side) -> Self {
        Self {
            side,
            walker: Walker::late(),
            decoder: Decoder::late(),
            lessons: Lessons::default(),
            epoch: 0,
            block: Vec::new(),
            block_ends_stream: false,
            broken: 0,
        }
    }

    pub(super) fn walker(&self) -> &Walker {
        &self.walker
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn broken(&self) -> u64 {
        self.broken
    }

    /// Bytes were missed.
    pub(super) fn miss(&mut self) {
        self.walker.miss();
        self.forget();
    }

    /// The table is worth nothing any more.
    pub(super) fn forget(&mut self) {
        self.decoder = Decoder::late();
        self.lessons = Lessons::default();
        self.epoch = self.epoch.wrapping_add(1);
        self.block.clear();
    }

    /// Takes the bytes of one system call.
    pub(super) fn push<'p>(&mut self, bytes: &'p [u8], mut each: impl FnMut(&mut Self, Frame<'p>)) {
        let mut at = 0;
        for _ in 0..MAX_STEPS {
            match self.walker.step(bytes, &mut at) {
                Step::Event(event) => {
                    if let Some(frame) = self.frame(event, bytes) {
                        each(self, frame);
                    }
                }
                Step::More => {}
                Step::Done => return,
            }
        }
        self.miss();
        each(self, Frame::Lost);
    }

    fn frame<'p>(&mut self, event: Event, push: &'p [u8]) -> Option<Frame<'p>> {
        let Event { stream, kind, flags, marks, at, len, value } = event;
        let part = push.get(at as usize..).and_then(|rest| rest.get(..len as usize)).unwrap_or_default();
        match kind {
            DATA => {
                let is_last = marks & LAST != 0 && flags & END_STREAM != 0;
                Some(Frame::Data { stream, bytes: part, is_last })
            }
            // The end of a block whose beginning was not seen; the table begins behind it.
            CONTINUATION if marks & ORPHAN != 0 => None,
            HEADERS | CONTINUATION => {
                if kind == HEADERS && marks & FIRST != 0 {
                    self.block.clear();
                    self.block_ends_stream = flags & END_STREAM != 0;
                }
                // One byte more than is allowed says that there was too much.
                let room = (MAX_BLOCK + 1).saturating_sub(self.block.len()).min(part.len());
                self.block.extend_from_slice(part.get(..room).unwrap_or_default());
                (marks & LAST != 0 && flags & END_HEADERS != 0).then(|| self.end_of_block(stream))
            }
            RST_STREAM => Some(Frame::Reset { stream, code: value }),
            GOAWAY => Some(Frame::GoAway { last: stream, code: value }),
            LOST => {
                self.forget();
                Some(Frame::Lost)
            }
            JOINED => {
                self.forget();
                if marks & START != 0 {
                    self.decoder = Decoder::new();
                }
                Some(Frame::Joined)
            }
            // The size of a table changes when the encoder says so in a block.
            _ => None,
        }
    }

    fn end_of_block(&mut self, stream: u32) -> Frame<'static> {
        let block = std::mem::take(&mut self.block);
        let lines = self.decode(&block);
        Frame::Block { stream, is_last: self.block_ends_stream, lines }
    }

    /// What a whole header block says; `None` when it cannot be decoded, which costs the table.
    pub(super) fn decode(&mut self, block: &[u8]) -> Option<Vec<Line>> {
        let lines = if block.len() > MAX_BLOCK { None } else { self.decoder.decode(block).ok() };
        let lines = lines.filter(|lines| !lines.iter().any(|line| self.is_of_other_side(line)));
        if lines.is_none() {
            self.broken += 1;
            self.forget();
        }
        lines
    }

    /// A request never has a status, a response no path: then this is the other direction, or none at all.
    fn is_of_other_side(&self, line: &Line) -> bool {
        let name = line.entry.name.as_deref();
        match self.side {
            Side::Client => name == Some(":status"),
            Side::Server => matches!(name, Some(":path" | ":method" | ":scheme" | ":authority")),
        }
    }
}

/// Counts the messages in a fragment of DATA.
pub(super) fn count(messages: &mut Messages, bytes: &[u8]) {
    let end = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    messages.take(bytes, 0, end, MAX_STEPS);
}
