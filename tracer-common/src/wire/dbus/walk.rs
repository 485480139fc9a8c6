//! [`Walk`]: over the bytes that one system call moved.

use super::{HEADER_LEN, MAX_FIELDS, MAX_MESSAGE, Message, Next, Position, field, kind, phase};
use crate::wire::ttrpc::Bytes;

/// Bytes of a header field that are read at once: code, signature, and a number or a length.
const FIELD_LEN: u32 = 8;
/// The only version there is.
const VERSION: u8 = 1;

/// A walk over the messages of one system call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// How far the direction has been read.
    pub position: Position,
    /// Where in the bytes.
    at: u32,
    /// How many there are.
    len: u32,
}

impl Walk {
    /// Begins with `len` bytes.
    #[inline(always)]
    #[must_use]
    pub const fn new(position: Position, len: u32) -> Self {
        Self { position, at: 0, len }
    }

    /// What comes next.
    #[inline(always)]
    pub fn next(&mut self, bytes: &mut impl Bytes) -> Next {
        if self.position.phase == phase::FIELD && self.position.fields == 0 {
            return self.finish();
        }
        let here = self.len.wrapping_sub(self.at);
        if self.position.left >= here {
            self.position.left -= here;
            self.at = self.len;
            return Next::End;
        }
        self.at = self.at.wrapping_add(self.position.left);
        self.position.left = 0;
        let here = self.len.wrapping_sub(self.at);
        let unit = if self.position.phase == phase::FIELD { FIELD_LEN } else { HEADER_LEN };
        let had = if self.position.have < unit { self.position.have } else { 0 };
        let missing = unit - had;
        let count = if here < missing { here } else { missing };
        if !bytes.fetch(self.at, &mut self.position.unit, had, count) {
            return self.lost(Next::Unreadable);
        }
        self.at = self.at.wrapping_add(count);
        let have = had + count;
        let is_line = self.position.phase == phase::LINE
            || self.position.phase == phase::START && !may_be_message(&self.position.unit, have);
        if is_line {
            return self.line(have, count);
        }
        if have < unit {
            self.position.have = have;
            return Next::End;
        }
        self.position.have = 0;
        if self.position.phase == phase::FIELD { self.field() } else { self.message() }
    }

    /// A header of 16 bytes.
    #[inline(always)]
    fn message(&mut self) -> Next {
        let position = &mut self.position;
        position.big = u8::from(position.unit[0] == b'B');
        let (body, serial) = (word(position, 4), word(position, 8));
        let fields = word(position, 12);
        let sound = position.unit[1].wrapping_sub(kind::CALL) < kind::SIGNAL
            && position.unit[3] == VERSION
            && serial != 0
            && body <= MAX_MESSAGE
            && fields <= MAX_FIELDS;
        if !sound {
            return self.lost(Next::OutOfStep);
        }
        let fields = padded(fields);
        position.size = HEADER_LEN + fields + body;
        if position.size > MAX_MESSAGE {
            return self.lost(Next::OutOfStep);
        }
        (position.kind, position.flags) = (position.unit[1], position.unit[2]);
        (position.serial, position.reply) = (serial, 0);
        (position.fields, position.body) = (fields, body);
        position.phase = phase::FIELD;
        Next::Start
    }

    /// The first 8 bytes of a field: its code, a signature of one type, and a number, or the length of a text.
    #[inline(always)]
    fn field(&mut self) -> Next {
        let position = &mut self.position;
        let (code, signature) = (position.unit[0], position.unit[2]);
        let value = word(position, 4);
        let is_basic = position.unit[1] == 1 && position.unit[3] == 0;
        let size = match signature {
            // Its length, and a zero behind it.
            b's' | b'o' => 9 + u64::from(value),
            b'g' => 6 + u64::from(position.unit[4]),
            b'u' | b'i' | b'b' | b'y' | b'n' | b'q' | b'h' => 8,
            b't' | b'x' | b'd' => 16,
            _ => 0,
        };
        if !is_basic || size == 0 {
            // None of those we know: the rest of the fields is passed over.
            position.left = position.fields - FIELD_LEN;
            position.fields = 0;
            return Next::Part;
        }
        let size = (size + 7) & !7;
        if size > u64::from(position.fields) {
            return self.lost(Next::OutOfStep);
        }
        let size = size as u32;
        position.left = size - FIELD_LEN;
        position.fields -= size;
        if signature == b's' || signature == b'o' {
            return Next::Text { field: code, at: self.at, len: value };
        }
        if code == field::REPLY_SERIAL && signature == b'u' {
            position.reply = value;
        }
        Next::Part
    }

    /// All fields have been seen; of the last one, and the body, bytes may be still to come.
    #[inline(always)]
    fn finish(&mut self) -> Next {
        let position = &mut self.position;
        let header_end = self.at.wrapping_add(position.left);
        position.left = position.left.wrapping_add(position.body);
        position.phase = phase::START;
        Next::Message(Message {
            kind: position.kind,
            flags: position.flags,
            serial: position.serial,
            reply: position.reply,
            size: position.size,
            header_end,
        })
    }

    /// Text of the preamble. What is behind its end is read again.
    #[inline(always)]
    fn line(&mut self, have: u32, count: u32) -> Next {
        let unit = &self.position.unit;
        let first = self.position.phase == phase::START && unit[0] == 0;
        let low = lanes(half(unit, 0), if have < 8 { have } else { 8 });
        let high = lanes(half(unit, 8), have.saturating_sub(8));
        let end = if low.end != 0 {
            low.end
        } else if high.end != 0 {
            8 + high.end
        } else {
            0
        };
        let is_text = low.odd & !u64::from(first) == 0 && (low.end != 0 || high.odd == 0);
        let back = have.wrapping_sub(end);
        if !is_text || end != 0 && back > count {
            return self.lost(Next::OutOfStep);
        }
        self.position.have = 0;
        self.position.phase = phase::LINE;
        if end != 0 {
            self.at = self.at.wrapping_sub(back);
            self.position.phase = phase::START;
        }
        Next::Line { first }
    }

    /// Writers begin a message with a system call of its own, and readers read to its end, so the next bytes are looked
    /// at anew.
    #[inline(always)]
    fn lost(&mut self, why: Next) -> Next {
        self.position = Position::BOUNDARY;
        self.at = self.len;
        why
    }
}

/// Eight bytes of a unit.
#[inline(always)]
const fn half(unit: &[u8; 16], at: usize) -> u64 {
    u64::from_le_bytes([
        unit[at],
        unit[at + 1],
        unit[at + 2],
        unit[at + 3],
        unit[at + 4],
        unit[at + 5],
        unit[at + 6],
        unit[at + 7],
    ])
}

/// What eight bytes of a line are.
struct Lanes {
    /// One behind the end of the line; 0: it does not end here.
    end: u32,
    /// A bit for each byte up to there that no line has.
    odd: u64,
}

/// Looks at the first `have` of eight bytes at once: a branch for each byte makes too many paths for the verifier.
#[inline(always)]
const fn lanes(word: u64, have: u32) -> Lanes {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const NUMBERS: u64 = 0x0102_0304_0506_0708;
    let there = if have >= 8 { u64::MAX } else { (1 << (8 * have)) - 1 };
    let newlines = zeros(word ^ (b'\n' as u64 * ONES)) & there;
    let returns = zeros(word ^ (b'\r' as u64 * ONES));
    let controls = zeros(word & (0xe0 * ONES)) & !returns & !newlines;
    let last = newlines & newlines.wrapping_neg();
    // Bits up to that of the newline; all when there is none.
    let line = last.wrapping_sub(1) & there;
    let odd = (controls | word >> 7 & ONES | zeros(word ^ (0x7f * ONES))) & line;
    Lanes { end: (last.wrapping_mul(NUMBERS) >> 56) as u32, odd }
}

/// The lowest bit of each byte that is zero.
#[inline(always)]
const fn zeros(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    !(((word & LOW) + LOW) | word | LOW) >> 7
}

/// `l`, or a `B` that is not that of `BEGIN`.
#[inline(always)]
fn may_be_message(unit: &[u8; 16], have: u32) -> bool {
    unit[0] == b'l' || unit[0] == b'B' && (have < 2 || unit[1] <= kind::SIGNAL)
}

#[inline(always)]
const fn padded(len: u32) -> u32 {
    (len + 7) & !7
}

/// A number in the byte order of the message.
#[inline(always)]
fn word(position: &Position, at: usize) -> u32 {
    let unit = &position.unit;
    let bytes = [unit[at], unit[at + 1], unit[at + 2], unit[at + 3]];
    if position.big != 0 { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}
