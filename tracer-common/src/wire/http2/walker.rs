//! The walk itself.

use core::hint::black_box;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::chain::{MAX_STRICT, chain};
use super::event::*;
use super::header::{FrameHeader, HEADER};
use crate::wire::Bytes;

/// `SETTINGS_HEADER_TABLE_SIZE`.
const TABLE_SIZE: u16 = 1;
/// Bytes of one setting.
const SETTING: u8 = 6;
/// Bytes of the preface.
const PREFACE_LEN: u32 = PREFACE.len() as u32;
const _: () = assert!((PREFACE[0] as u32) << 16 > MAX_STRICT);

/// Where it is; zeroed is out of step.
mod phase {
    pub(super) const OUT: u8 = 0;
    pub(super) const PREFACE: u8 = 1;
    pub(super) const HEADER: u8 = 2;
    pub(super) const PROLOGUE: u8 = 3;
    pub(super) const PAYLOAD: u8 = 4;
    pub(super) const SKIP: u8 = 5;
    pub(super) const SETTING: u8 = 6;
    /// In the preface of a connection of which nobody knew that it begins.
    pub(super) const OPENING: u8 = 7;
}

/// One direction of a connection. Zeroed is one that is joined late.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Walker {
    /// Frames begun.
    pub frames: u64,
    /// Bytes skipped while out of step.
    pub skipped: u64,
    /// Times it got out of step.
    pub losses: u32,
    /// Bytes of payload still to come, without padding.
    left: u32,
    /// Stream of the current frame.
    stream: u32,
    /// Stream of a header block that has not ended; 0 when there is none.
    block: u32,
    /// A header, or the beginning of a payload, that came in pieces.
    piece: [u8; 16],
    have: u8,
    phase: u8,
    kind: u8,
    flags: u8,
    /// Bytes of padding still to come.
    padding: u8,
    /// [`FIRST`] until the first fragment of the frame was reported; [`ORPHAN`].
    marks: u8,
    reserved: [u8; 2],
}

impl Walker {
    /// The client's direction of a connection that begins.
    #[must_use]
    pub fn client() -> Self {
        Self { phase: phase::PREFACE, ..Self::default() }
    }

    /// The server's direction of a connection that begins.
    #[must_use]
    pub fn server() -> Self {
        Self { phase: phase::HEADER, ..Self::default() }
    }

    /// A direction of a connection that is older than its walker.
    #[must_use]
    pub fn late() -> Self {
        Self::default()
    }

    /// Whether it knows where the next frame begins.
    #[must_use]
    pub const fn in_step(&self) -> bool {
        self.phase != phase::OUT
    }

    /// Says that bytes were missed: it is out of step.
    pub fn miss(&mut self) {
        if self.in_step() {
            self.losses = self.losses.saturating_add(1);
        }
        (self.phase, self.have, self.block, self.left) = (phase::OUT, 0, 0, 0);
    }

    /// One step from offset `at` of `push` on, which it moves. `at` is 0 for a new push and never moved by others. Each
    /// call does a constant amount of work.
    pub fn step<B: Bytes + ?Sized>(&mut self, push: &B, at: &mut u32) -> Step {
        let end = push.length();
        if *at >= end {
            return Step::Done;
        }
        match self.phase {
            phase::PREFACE | phase::OPENING => self.preface(push, at),
            phase::HEADER => self.header(push, at),
            phase::PROLOGUE => self.prologue(push, at),
            phase::PAYLOAD => self.payload(end, at),
            phase::SKIP => self.skip(end, at),
            phase::SETTING => self.setting(push, at),
            _ => self.join(push, at),
        }
    }

    /// Takes at most `steps` steps; false when that was not enough for the push.
    pub fn walk<B: Bytes + ?Sized>(
        &mut self,
        push: &B,
        at: &mut u32,
        steps: u32,
        mut each: impl FnMut(Event),
    ) -> bool {
        for _ in 0..steps {
            match self.step(push, at) {
                Step::Event(event) => each(event),
                Step::More => {}
                Step::Done => return true,
            }
        }
        *at >= push.length()
    }

    /// Out of step: believes the beginning of a push when the headers in it follow each other.
    fn join<B: Bytes + ?Sized>(&mut self, push: &B, at: &mut u32) -> Step {
        if *at == 0 && push.read::<24>(0) == Some(PREFACE) {
            *at = 24;
            self.phase = phase::HEADER;
            return Step::Event(Event { marks: START, ..self.event(JOINED, *at) });
        }
        // Less than the preface, and no frame either: one that begins so is longer than any that is believed here.
        if *at == 0 && push.length() < PREFACE_LEN && push.read::<1>(0) == Some([PREFACE[0]]) {
            self.phase = phase::OPENING;
            return Step::More;
        }
        let first = if *at == 0 { chain(push) } else { None };
        let Some(first) = first else {
            self.skipped = self.skipped.saturating_add(u64::from(push.length().saturating_sub(*at)));
            *at = push.length();
            return Step::Done;
        };
        self.phase = phase::HEADER;
        self.marks = 0;
        if first.kind == CONTINUATION {
            (self.block, self.marks) = (first.stream, ORPHAN);
        }
        Step::Event(self.event(JOINED, *at))
    }

    fn preface<B: Bytes + ?Sized>(&mut self, push: &B, at: &mut u32) -> Step {
        // One byte: a loop over what is left is too much for old verifiers.
        let want = PREFACE.get(usize::from(self.have)).copied();
        if want.is_none() || push.read::<1>(*at) != want.map(|want| [want]) {
            return self.lose(push.length(), at);
        }
        self.have += 1;
        *at = at.saturating_add(1);
        if usize::from(self.have) < PREFACE.len() {
            return Step::More;
        }
        let was_known = self.phase == phase::PREFACE;
        (self.have, self.phase) = (0, phase::HEADER);
        if was_known { Step::More } else { Step::Event(Event { marks: START, ..self.event(JOINED, *at) }) }
    }

    /// Takes one of `want` bytes, or a whole header; `Some(true)` when all are there, `None` when they cannot be read. One at
    /// a time, because a loop over what is left is too much for old verifiers.
    fn gather<B: Bytes + ?Sized>(&mut self, push: &B, at: &mut u32, want: u8) -> Option<bool> {
        if want == HEADER
            && self.have == 0
            && let Some(whole) = push.read::<9>(*at)
        {
            if let Some(start) = self.piece.first_chunk_mut() {
                *start = whole;
            }
            *at = at.saturating_add(u32::from(HEADER));
            return Some(true);
        }
        let [byte] = push.read::<1>(*at)?;
        // The mask is a bound that the verifier of every kernel sees.
        if let Some(slot) = self.piece.get_mut(black_box(usize::from(self.have)) & 15) {
            *slot = byte;
        }
        self.have = self.have.saturating_add(1);
        *at = at.saturating_add(1);
        let whole = self.have >= want;
        if whole {
            self.have = 0;
        }
        Some(whole)
    }

    fn header<B: Bytes + ?Sized>(&mut self, push: &B, at: &mut u32) -> Step {
        match self.gather(push, at, HEADER) {
            None => return self.lose(push.length(), at),
            Some(false) => return Step::More,
            Some(true) => {}
        }
        let header = FrameHeader::parse(self.start());
        if !header.is_possible() || !header.may_follow(self.block) {
            return self.lose(push.length(), at);
        }
        self.frames = self.frames.saturating_add(1);
        (self.stream, self.kind, self.flags) = (header.stream, header.kind, header.flags);
        (self.left, self.padding) = (header.length, 0);
        self.marks = FIRST | (self.marks & ORPHAN);
        self.block = header.block_after();
        self.phase = match header.kind {
            PRIORITY | PING | WINDOW_UPDATE => phase::SKIP,
            SETTINGS => phase::SETTING,
            _ if header.prologue() > 0 => phase::PROLOGUE,
            _ => return self.begin_payload(*at),
        };
        self.after_skip()
    }

    /// The bytes before, or instead of, a payload.
    fn prologue<B: Bytes + ?Sized>(&mut self, push: &B, at: &mut u32) -> Step {
        let header =
            FrameHeader { length: self.left, stream: self.stream, kind: self.kind, flags: self.flags };
        let want = header.prologue();
        match self.gather(push, at, want) {
            None => return self.lose(push.length(), at),
            Some(false) => return Step::More,
            Some(true) => {}
        }
        self.left = self.left.saturating_sub(u32::from(want));
        let [a, b, c, d, e, f, g, h, _] = self.start();
        match self.kind {
            RST_STREAM => {
                self.phase = phase::HEADER;
                let event = self.event(RST_STREAM, *at);
                Step::Event(Event { stream: self.stream, value: u32::from_be_bytes([a, b, c, d]), ..event })
            }
            GOAWAY => {
                self.phase = phase::SKIP;
                let event = self.event(GOAWAY, *at);
                let stream = u32::from_be_bytes([a & 0x7f, b, c, d]);
                self.after_skip();
                Step::Event(Event { stream, value: u32::from_be_bytes([e, f, g, h]), ..event })
            }
            _ => {
                if self.flags & PADDED != 0 {
                    if u32::from(a) > self.left {
                        return self.lose(push.length(), at);
                    }
                    self.padding = a;
                    self.left -= u32::from(a);
                }
                self.begin_payload(*at)
            }
        }
    }

    /// A payload without bytes is reported at once: no later push need come.
    fn begin_payload(&mut self, at: u32) -> Step {
        if self.left > 0 {
            self.phase = phase::PAYLOAD;
            return Step::More;
        }
        self.fragment(at, 0)
    }

    fn payload(&mut self, end: u32, at: &mut u32) -> Step {
        let taken = self.left.min(end.saturating_sub(*at));
        let from = *at;
        self.left -= taken;
        *at = at.saturating_add(taken);
        self.fragment(from, taken)
    }

    fn fragment(&mut self, at: u32, len: u32) -> Step {
        let mut event = Event { stream: self.stream, at, len, ..self.event(self.kind, at) };
        event.marks = self.marks;
        self.marks &= ORPHAN;
        if self.left == 0 {
            event.marks |= LAST;
            (self.left, self.padding) = (u32::from(self.padding), 0);
            self.phase = phase::SKIP;
            if self.block == 0 {
                self.marks = 0;
            }
            self.after_skip();
        }
        Step::Event(event)
    }

    fn skip(&mut self, end: u32, at: &mut u32) -> Step {
        let taken = self.left.min(end.saturating_sub(*at));
        self.left -= taken;
        *at = at.saturating_add(taken);
        self.after_skip()
    }

    fn after_skip(&mut self) -> Step {
        if self.left == 0 {
            self.phase = phase::HEADER;
        }
        Step::More
    }

    fn setting<B: Bytes + ?Sized>(&mut self, push: &B, at: &mut u32) -> Step {
        match self.gather(push, at, SETTING) {
            None => return self.lose(push.length(), at),
            Some(false) => return Step::More,
            Some(true) => {}
        }
        self.left = self.left.saturating_sub(u32::from(SETTING));
        self.after_skip();
        let [a, b, c, d, e, f, ..] = self.start();
        if u16::from_be_bytes([a, b]) != TABLE_SIZE {
            return Step::More;
        }
        Step::Event(Event { value: u32::from_be_bytes([c, d, e, f]), ..self.event(SETTINGS, *at) })
    }

    fn lose(&mut self, end: u32, at: &mut u32) -> Step {
        self.miss();
        self.skipped = self.skipped.saturating_add(u64::from(end.saturating_sub(*at)));
        *at = end;
        Step::Event(self.event(LOST, end))
    }

    /// The first nine bytes of the piece.
    const fn start(&self) -> [u8; 9] {
        let [a, b, c, d, e, f, g, h, i, ..] = self.piece;
        [a, b, c, d, e, f, g, h, i]
    }

    const fn event(&self, kind: u8, at: u32) -> Event {
        Event { stream: 0, kind, flags: self.flags, marks: 0, at, len: 0, value: 0 }
    }
}
