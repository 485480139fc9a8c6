//! ttrpc, which containerd and its shims speak: frames, and the service and method of a request.
//!
//! A frame is a header of ten bytes (length and stream id, big endian; type; flags) and a protobuf message. A request
//! carries its service and method as literals, in this order, before anything else; an answer has nothing but the stream
//! id. Source: `github.com/containerd/ttrpc`, `PROTOCOL.md`, `channel.go`, `request.proto`.

use core::hint::black_box;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a frame's header.
pub const HEADER_LEN: u32 = 10;
/// Longest message; a longer one is refused by both sides (`messageLengthMax`).
pub const MAX_MESSAGE: u32 = 4 << 20;
/// Room for the beginning of a request; its service and method must end before the last byte.
pub const HEAD: usize = 64;

/// Types of frames.
pub mod kind {
    /// A client asks.
    pub const REQUEST: u8 = 1;
    /// A server has answered; the last frame of its stream.
    pub const ANSWER: u8 = 2;
    /// One message of a stream of many.
    pub const DATA: u8 = 3;
}

/// All bits of flags there are: remote closed, remote open, no data.
const FLAGS: u8 = 7;
/// Protobuf: field 1 and field 2, both of bytes.
const SERVICE: u8 = 0x0a;
const METHOD: u8 = 0x12;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the message.
    pub len: u32,
    /// Stream id: odd, because only clients open streams.
    pub stream: u32,
    /// One of [`kind`].
    pub kind: u8,
    /// Flags.
    pub flags: u8,
}

impl FrameHeader {
    /// The header at the beginning of `bytes`; `None` when it cannot be one.
    #[inline(always)]
    #[must_use]
    pub const fn parse(bytes: &[u8; 16]) -> Option<Self> {
        let len = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let stream = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let (kind, flags) = (bytes[8], bytes[9]);
        let sound = len <= MAX_MESSAGE
            && stream & 1 == 1
            && kind.wrapping_sub(kind::REQUEST) < kind::DATA
            && flags <= FLAGS;
        if sound { Some(Self { len, stream, kind, flags }) } else { None }
    }
}

/// How far one direction of a connection has been read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Position {
    /// Bytes of the current message that are still to come.
    pub left: u32,
    /// Bytes of the next header that are here.
    pub have: u32,
    /// These bytes.
    pub header: [u8; 16],
}

impl Position {
    /// Between two frames, where a connection begins.
    pub const BOUNDARY: Self = Self { left: 0, have: 0, header: [0; 16] };

    /// Between two frames?
    #[inline(always)]
    #[must_use]
    pub const fn is_boundary(&self) -> bool {
        self.left == 0 && self.have == 0
    }
}

/// The bytes of one write.
pub trait Bytes {
    /// Copies `count` bytes (at most 10) at `at` to `header[to..]`; `to + count` is at most 10. `false` when they cannot
    /// be read.
    fn fetch(&mut self, at: u32, header: &mut [u8; 16], to: u32, count: u32) -> bool;
}

/// What comes next in a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A frame, whose message begins at `body` of the write.
    Frame {
        /// Its header.
        header: FrameHeader,
        /// Where its message begins; equal to the length of the write when none of it is there.
        body: u32,
    },
    /// Nothing: the write has been read to its end.
    End,
    /// What is there is no header: out of step until the next write begins.
    OutOfStep,
    /// The bytes cannot be read: out of step until the next write begins.
    Unreadable,
}

/// A walk over the frames of one write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// How far the direction has been read.
    pub position: Position,
    /// Where in the write.
    at: u32,
    /// Length of the write.
    len: u32,
}

impl Walk {
    /// Begins a write of `len` bytes.
    #[inline(always)]
    #[must_use]
    pub const fn new(position: Position, len: u32) -> Self {
        Self { position, at: 0, len }
    }

    /// The next frame.
    #[inline(always)]
    pub fn next(&mut self, bytes: &mut impl Bytes) -> Next {
        let here = self.len.wrapping_sub(self.at);
        if self.position.left >= here {
            self.position.left -= here;
            self.at = self.len;
            return Next::End;
        }
        self.at = self.at.wrapping_add(self.position.left);
        self.position.left = 0;
        let here = self.len.wrapping_sub(self.at);
        let have = if self.position.have < HEADER_LEN { self.position.have } else { 0 };
        let missing = HEADER_LEN - have;
        let count = if here < missing { here } else { missing };
        if !bytes.fetch(self.at, &mut self.position.header, have, count) {
            return self.lost(Next::Unreadable);
        }
        self.at = self.at.wrapping_add(count);
        if count < missing {
            self.position.have = have + count;
            return Next::End;
        }
        self.position.have = 0;
        match FrameHeader::parse(&self.position.header) {
            Some(header) => {
                self.position.left = header.len;
                Next::Frame { header, body: self.at }
            }
            None => self.lost(Next::OutOfStep),
        }
    }

    /// Both sides begin each message with a write of its own, so the next one is where a header is.
    #[inline(always)]
    fn lost(&mut self, why: Next) -> Next {
        self.position = Position::BOUNDARY;
        self.at = self.len;
        why
    }
}

/// Where service and method are at the beginning of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Bytes of the service, which begins at 2.
    pub service: u32,
    /// Bytes of the method, which begins two bytes behind the service.
    pub method: u32,
}

/// What the beginning of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// It has both names.
    Named(Names),
    /// It begins like a request, but its names are not all there.
    Unnamed,
    /// It is no request.
    Other,
}

impl Names {
    /// Finds them in the first `have` bytes of a request; what is behind those is not looked at.
    #[inline(always)]
    #[must_use]
    pub fn find(head: &[u8; HEAD], have: u32) -> Head {
        const LAST: usize = HEAD - 1;
        if have < 2 {
            return Head::Unnamed;
        }
        let service = head[1] as usize;
        if head[0] != SERVICE || service == 0 {
            return Head::Other;
        }
        let at = 2 + service;
        if at + 2 > have as usize || at + 2 > LAST {
            return Head::Unnamed;
        }
        let method = byte(head, at + 1) as usize;
        if byte(head, at) != METHOD || method == 0 {
            return Head::Other;
        }
        let end = at + 2 + method;
        if end > have as usize || end > LAST {
            return Head::Unnamed;
        }
        Head::Named(Self { service: service as u32, method: method as u32 })
    }

    /// How many bytes they take, with what stands before each.
    #[inline(always)]
    #[must_use]
    pub const fn end(self) -> u32 {
        4 + self.service + self.method
    }

    /// Service and method as texts; `None` when they cannot be names.
    #[must_use]
    pub fn texts(self, head: &[u8; HEAD]) -> Option<(&str, &str)> {
        let (service, method) = (self.service as usize, self.method as usize);
        let service_end = service.checked_add(2)?;
        let method_end = service_end.checked_add(2)?.checked_add(method)?;
        let name = |bytes: &[u8]| bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_'));
        let (service, method) = (head.get(2..service_end)?, head.get(service_end + 2..method_end)?);
        if !name(service) || !name(method) {
            return None;
        }
        Some((str::from_utf8(service).ok()?, str::from_utf8(method).ok()?))
    }
}

/// The byte at `place`, which is in there. The mask is a bound that the verifier of every kernel sees.
#[inline(always)]
fn byte(head: &[u8; HEAD], place: usize) -> u8 {
    head[black_box(place) & (HEAD - 1)]
}

impl Bytes for &[u8] {
    fn fetch(&mut self, at: u32, header: &mut [u8; 16], to: u32, count: u32) -> bool {
        let (at, to, count) = (at as usize, to as usize, count as usize);
        let (Some(from), Some(to)) = (self.get(at..at + count), header.get_mut(to..to + count)) else {
            return false;
        };
        to.copy_from_slice(from);
        true
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{vec, vec::Vec};

    use super::*;

    /// A request as containerd 1.6 sent it, up to its payload.
    const STATE: &[u8] = b"\0\0\0\x90\0\0\x01W\x01\0\n\x17containerd.task.v2.Task\x12\x05State\x1aB\n@";

    fn header_of(bytes: &[u8]) -> Option<FrameHeader> {
        let mut header = [0; 16];
        header[..10].copy_from_slice(&bytes[..10]);
        FrameHeader::parse(&header)
    }

    fn head_of(bytes: &[u8]) -> ([u8; HEAD], u32) {
        let mut head = [0xee; HEAD];
        let have = bytes.len().min(HEAD - 1);
        head[..have].copy_from_slice(&bytes[..have]);
        (head, have as u32)
    }

    fn names(bytes: &[u8]) -> Head {
        let (head, have) = head_of(bytes);
        Names::find(&head, have)
    }

    /// A real request is read.
    #[test]
    fn a_request_of_containerd() {
        let header = header_of(STATE).unwrap();
        assert_eq!(header, FrameHeader { len: 0x90, stream: 0x157, kind: kind::REQUEST, flags: 0 });
        let Head::Named(found) = names(&STATE[10..]) else { panic!("it has names") };
        assert_eq!(found.texts(&head_of(&STATE[10..]).0), Some(("containerd.task.v2.Task", "State")));
        assert_eq!(found.end() as usize, 2 + 23 + 2 + 5);
    }

    /// Each part of a header is checked: bytes that are none are rarely taken for one.
    #[test]
    fn what_is_no_header() {
        let with = |at: usize, byte: u8| {
            let mut bytes = [0, 0, 0, 9, 0, 0, 0, 1, 1, 0];
            bytes[at] = byte;
            header_of(&bytes)
        };
        assert!(with(9, 7).is_some() && with(8, 3).is_some() && with(1, 0x3f).is_some());
        assert_eq!([with(7, 2), with(7, 0)], [None; 2], "no client opens a stream with an even id");
        assert_eq!([with(8, 0), with(8, 4), with(8, 255)], [None; 3]);
        assert_eq!([with(9, 8), with(0, 1), with(1, 0x41)], [None; 3]);
        assert_eq!(header_of(b"PRI * HTTP"), None);
    }

    /// A head without all its names is not the same as one that is no request.
    #[test]
    fn names_that_are_not_there() {
        let whole = b"\n\x03a.B\x12\x01M";
        assert!(matches!(names(whole), Head::Named(_)));
        for have in 0..whole.len() {
            assert_eq!(names(&whole[..have]), Head::Unnamed, "{have} bytes");
        }
        for (at, byte) in [(0, 0x0b), (1, 0), (5, 0x13), (6, 0)] {
            let mut other = *whole;
            other[at] = byte;
            assert_eq!(names(&other), Head::Other, "{at}");
        }
        let long = [&b"\n\x3a"[..], &[b's'; 58], b"\x12\x01M"].concat();
        assert_eq!(long.len(), 63);
        assert!(matches!(names(&long), Head::Named(_)), "the longest that fit");
        let longer = [&b"\n\x3b"[..], &[b's'; 59], b"\x12\x01M"].concat();
        assert_eq!(names(&longer), Head::Unnamed);
        assert_eq!(names(b"\n\xff"), Head::Unnamed);
    }

    /// Bytes that no service has are no names.
    #[test]
    fn names_are_words() {
        let hostile = b"\n\x03a/B\x12\x01M";
        let Head::Named(found) = names(hostile) else { panic!("laid out like names") };
        assert_eq!(found.texts(&head_of(hostile).0), None);
    }

    /// After bytes that are no header, the next write is read again.
    #[test]
    fn in_step_again() {
        let mut walk = Walk::new(Position::BOUNDARY, 14);
        assert_eq!(walk.next(&mut &b"HTTP/2.0 bytes"[..]), Next::OutOfStep);
        assert_eq!(walk.next(&mut &b"HTTP/2.0 bytes"[..]), Next::End);
        let frame: Vec<u8> = [&[0, 0, 0, 2, 0, 0, 0, 3, 2, 0][..], b"ok"].concat();
        let mut walk = Walk::new(walk.position, 12);
        assert!(matches!(walk.next(&mut &frame[..]), Next::Frame { header, body: 10 } if header.stream == 3));
        assert_eq!(walk.next(&mut &frame[..]), Next::End);
        assert!(walk.position.is_boundary());
        let mut walk = Walk::new(Position::BOUNDARY, 12);
        assert_eq!(walk.next(&mut &frame[..5]), Next::Unreadable);
        assert_eq!(vec![walk.position], [Position::BOUNDARY]);
    }
}
