//! What a walk gives.

/// DATA.
pub const DATA: u8 = 0;
/// HEADERS.
pub const HEADERS: u8 = 1;
/// PRIORITY: skipped.
pub const PRIORITY: u8 = 2;
/// `RST_STREAM`.
pub const RST_STREAM: u8 = 3;
/// SETTINGS.
pub const SETTINGS: u8 = 4;
/// PING: skipped.
pub const PING: u8 = 6;
/// GOAWAY.
pub const GOAWAY: u8 = 7;
/// `WINDOW_UPDATE`: skipped.
pub const WINDOW_UPDATE: u8 = 8;
/// CONTINUATION of a header block.
pub const CONTINUATION: u8 = 9;
/// No frame: from here on it is out of step.
pub const LOST: u8 = 0xfe;
/// No frame: it was out of step, or had not begun, and is in step from here on.
pub const JOINED: u8 = 0xff;

/// Flag of DATA and HEADERS: the sender's half of the stream ends. ACK of SETTINGS and PING.
pub const END_STREAM: u8 = 0x1;
/// Flag of HEADERS and CONTINUATION: the header block ends.
pub const END_HEADERS: u8 = 0x4;
/// Flag of DATA and HEADERS: a byte of padding length comes first.
pub const PADDED: u8 = 0x8;
/// Flag of HEADERS: five bytes of priority come first.
pub const HAS_PRIORITY: u8 = 0x20;

/// Mark of an [`Event`]: the first fragment of its frame.
pub const FIRST: u8 = 0x1;
/// Mark of an [`Event`]: the last fragment of its frame.
pub const LAST: u8 = 0x2;
/// Mark of a fragment of a header block whose beginning was not seen.
pub const ORPHAN: u8 = 0x4;
/// Mark of [`JOINED`]: here the connection itself begins.
pub const START: u8 = 0x8;

/// What a client sends first (RFC 9113, 3.4).
pub const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame, or a fragment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its stream; of GOAWAY the last stream that was or will be served; 0 for the connection.
    pub stream: u32,
    /// [`DATA`], [`HEADERS`], [`CONTINUATION`], [`RST_STREAM`], [`GOAWAY`], [`SETTINGS`], [`LOST`] or [`JOINED`].
    pub kind: u8,
    /// Flags of the frame.
    pub flags: u8,
    /// [`FIRST`], [`LAST`], [`ORPHAN`], [`START`].
    pub marks: u8,
    /// Where in the push the fragment of DATA or of a header block begins, without padding and priority.
    pub at: u32,
    /// Its length.
    pub len: u32,
    /// Error code of `RST_STREAM` and GOAWAY; the header table's size in SETTINGS.
    pub value: u32,
}

/// What one step gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something to tell; call again.
    Event(Event),
    /// Nothing to tell; call again.
    More,
    /// The push is used up.
    Done,
}
