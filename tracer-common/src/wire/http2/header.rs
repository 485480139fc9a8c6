//! The nine bytes before each frame of HTTP/2, and whether they can be such (RFC 9113, 4.1 and 6).

use super::event::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HAS_PRIORITY, HEADERS, PADDED, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE,
};

/// Its length, bytes.
pub(super) const HEADER: u8 = 9;
/// The highest bit of a stream is reserved: it is 0.
const RESERVED: u32 = 1 << 31;

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Length of the payload, 24 bits.
    pub(super) length: u32,
    /// With the reserved bit.
    pub(super) stream: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
}

impl FrameHeader {
    pub(super) const fn parse([a, b, c, kind, flags, e, f, g, h]: [u8; 9]) -> Self {
        Self {
            length: u32::from_be_bytes([0, a, b, c]),
            stream: u32::from_be_bytes([e, f, g, h]),
            kind,
            flags,
        }
    }

    /// Whether a program that keeps to the protocol can have sent it. `PUSH_PROMISE` and extensions count as impossible:
    /// no gRPC program sends them.
    pub(super) const fn is_possible(&self) -> bool {
        let Self { length, stream, flags, .. } = *self;
        if stream & RESERVED != 0 {
            return false;
        }
        let of_stream = stream != 0;
        match self.kind {
            DATA => of_stream && only_flags(flags, END_STREAM | PADDED) && length >= self.least(),
            HEADERS => {
                let known = END_STREAM | END_HEADERS | PADDED | HAS_PRIORITY;
                of_stream && only_flags(flags, known) && length >= self.least()
            }
            PRIORITY => of_stream && flags == 0 && length == 5,
            RST_STREAM => of_stream && flags == 0 && length == 4,
            SETTINGS if flags == END_STREAM => !of_stream && length == 0,
            SETTINGS => !of_stream && flags == 0 && length % 6 == 0,
            PING => !of_stream && only_flags(flags, END_STREAM) && length == 8,
            GOAWAY => !of_stream && flags == 0 && length >= 8,
            WINDOW_UPDATE => flags == 0 && length == 4,
            CONTINUATION => of_stream && only_flags(flags, END_HEADERS),
            _ => false,
        }
    }

    /// Whether it may come while the header block of stream `block` (0: none) is unfinished.
    pub(super) const fn may_follow(&self, block: u32) -> bool {
        if block == 0 { self.kind != CONTINUATION } else { self.kind == CONTINUATION && self.stream == block }
    }

    /// The stream whose header block is unfinished after it; 0 when there is none.
    pub(super) const fn block_after(&self) -> u32 {
        let of_block = matches!(self.kind, HEADERS | CONTINUATION);
        if of_block && self.flags & END_HEADERS == 0 { self.stream } else { 0 }
    }

    /// The shortest payload it can have.
    const fn least(&self) -> u32 {
        self.prologue() as u32
    }

    /// Bytes to be read before the payload.
    pub(super) const fn prologue(&self) -> u8 {
        let padded = if self.flags & PADDED != 0 { 1 } else { 0 };
        match self.kind {
            DATA => padded,
            HEADERS if self.flags & HAS_PRIORITY != 0 => padded + 5,
            HEADERS => padded,
            RST_STREAM => 4,
            GOAWAY => 8,
            _ => 0,
        }
    }
}

const fn only_flags(flags: u8, known: u8) -> bool {
    flags & !known == 0
}
