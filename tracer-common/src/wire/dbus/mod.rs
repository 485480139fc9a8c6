//! D-Bus, which runc, the kubelet and runtimes speak to systemd: messages, and the texts of their headers.
//!
//! A connection begins with lines of text (a zero, `AUTH …`, `BEGIN`), then messages follow. A message is a header of 16
//! bytes, an array of header fields, each aligned to 8, padding up to a multiple of 8, and a body. Libraries write fields
//! in any order (godbus: the random one of a Go map), and each side may use either byte order. Source: the D-Bus
//! specification, "Message Protocol" and "Authentication Protocol".

mod walk;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use walk::Walk;

/// Bytes of a message's header before its fields.
pub const HEADER_LEN: u32 = 16;
/// Longest message, longest array of header fields.
pub const MAX_MESSAGE: u32 = 128 << 20;
/// See [`MAX_MESSAGE`].
pub const MAX_FIELDS: u32 = 64 << 20;

/// Types of messages.
pub mod kind {
    /// A call; it expects an answer unless it says otherwise.
    pub const CALL: u8 = 1;
    /// An answer.
    pub const RETURN: u8 = 2;
    /// An answer that says what went wrong.
    pub const ERROR: u8 = 3;
    /// A signal: it has no answer.
    pub const SIGNAL: u8 = 4;
}

/// Codes of header fields.
pub mod field {
    /// Object that is called.
    pub const PATH: u8 = 1;
    /// Interface of the member.
    pub const INTERFACE: u8 = 2;
    /// Method or signal.
    pub const MEMBER: u8 = 3;
    /// What went wrong.
    pub const ERROR_NAME: u8 = 4;
    /// Serial of the call that is answered.
    pub const REPLY_SERIAL: u8 = 5;
    /// Who is to get the message.
    pub const DESTINATION: u8 = 6;
    /// Who sent it; written by the bus.
    pub const SENDER: u8 = 7;
    /// Types of the body.
    pub const SIGNATURE: u8 = 8;
    /// File descriptors that come with it.
    pub const UNIX_FDS: u8 = 9;
}

/// Flag of a call that expects no answer.
pub const NO_REPLY_EXPECTED: u8 = 1;

/// How far one direction of a connection has been read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Position {
    /// Bytes to pass over before the next unit.
    pub left: u32,
    /// Bytes of the next unit that are here.
    pub have: u32,
    /// Bytes of header fields that are still to come, padding included.
    pub fields: u32,
    /// Bytes of the body of the message whose header is being read.
    pub body: u32,
    /// Bytes of that message.
    pub size: u32,
    /// Its serial.
    pub serial: u32,
    /// Serial of the call that it answers; 0 while not known.
    pub reply: u32,
    /// What the next unit is: one of `phase`.
    pub phase: u8,
    /// Type of the message.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// 1: it is big endian.
    pub big: u8,
    /// The unit as far as it is here.
    pub unit: [u8; 16],
}

impl Position {
    /// Between two messages, where a connection begins.
    pub const BOUNDARY: Self = Self {
        left: 0,
        have: 0,
        fields: 0,
        body: 0,
        size: 0,
        serial: 0,
        reply: 0,
        phase: phase::START,
        kind: 0,
        flags: 0,
        big: 0,
        unit: [0; 16],
    };

    /// Between two messages?
    #[inline(always)]
    #[must_use]
    pub const fn is_boundary(&self) -> bool {
        self.left == 0 && self.have == 0 && self.phase == phase::START
    }
}

mod phase {
    /// A header of 16 bytes, or the beginning of a line.
    pub(super) const START: u8 = 0;
    /// The rest of a line.
    pub(super) const LINE: u8 = 1;
    /// The first 8 bytes of a header field.
    pub(super) const FIELD: u8 = 2;
}

/// A message whose header has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// One of [`kind`].
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its serial, never 0.
    pub serial: u32,
    /// Serial of the call that it answers; 0 when it says none.
    pub reply: u32,
    /// Bytes of all of it.
    pub size: u32,
    /// Where in these bytes its header ends; behind them when not all of it is there.
    pub header_end: u32,
}

impl Message {
    /// Is it a call that expects an answer?
    #[inline(always)]
    #[must_use]
    pub const fn expects_answer(&self) -> bool {
        self.kind == kind::CALL && self.flags & NO_REPLY_EXPECTED == 0
    }

    /// Is it an answer?
    #[inline(always)]
    #[must_use]
    pub const fn is_answer(&self) -> bool {
        self.kind == kind::RETURN || self.kind == kind::ERROR
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A message begins: its texts follow.
    Start,
    /// A header field that is a text.
    Text {
        /// One of [`field`].
        field: u8,
        /// Where the text begins in these bytes; they may end before it does.
        at: u32,
        /// Its length.
        len: u32,
    },
    /// The header of a message has been read.
    Message(Message),
    /// A line of the preamble, or a part of one.
    Line {
        /// It is the first that a client writes: it begins with a zero.
        first: bool,
    },
    /// Something of no interest.
    Part,
    /// Nothing: all bytes have been read.
    End,
    /// What is there is not D-Bus: out of step until the next bytes.
    OutOfStep,
    /// The bytes cannot be read: out of step until the next ones.
    Unreadable,
}
