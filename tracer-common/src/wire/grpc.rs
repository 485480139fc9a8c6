//! Lengths of gRPC messages: one direction of one stream, whose DATA comes in fragments.
//!
//! Each message is preceded by five bytes: a flag (1: compressed) and a big-endian length (gRPC over HTTP/2,
//! "Length-Prefixed-Message").

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Bytes;

/// Bytes of the prefix.
const PREFIX: u8 = 5;

/// How far one direction of one stream is. Zeroed is a stream that begins.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Messages {
    /// Sum of the lengths of all messages begun, bytes, without prefixes.
    pub bytes: u64,
    /// Messages begun.
    pub count: u32,
    /// Length of the longest, bytes.
    pub longest: u32,
    /// Bytes of the current message still to come.
    left: u32,
    prefix: [u8; 5],
    have: u8,
    /// 1 when these are no gRPC messages: nothing is counted from there on.
    broken: u8,
    reserved: [u8; 5],
}

impl Messages {
    /// Whether something was no message.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.broken != 0
    }

    /// Whether a message has begun and not ended.
    #[must_use]
    pub const fn is_inside(&self) -> bool {
        self.left > 0 || self.have > 0
    }

    /// Takes a prefix, or the bytes of a message, from offset `at` on, which it moves; false when nothing is left to do
    /// before `end`. Each call does a constant amount of work.
    pub fn step<B: Bytes + ?Sized>(&mut self, push: &B, at: &mut u32, end: u32) -> bool {
        if *at >= end || self.is_broken() {
            return false;
        }
        if self.left > 0 {
            let taken = self.left.min(end.saturating_sub(*at));
            self.left -= taken;
            *at = at.saturating_add(taken);
            return true;
        }
        for _ in 0..PREFIX {
            if self.have >= PREFIX || *at >= end {
                break;
            }
            let Some([byte]) = push.read::<1>(*at) else {
                self.broken = 1;
                return false;
            };
            if let Some(slot) = self.prefix.get_mut(usize::from(self.have)) {
                *slot = byte;
            }
            self.have += 1;
            *at = at.saturating_add(1);
        }
        if self.have >= PREFIX {
            self.begin();
        }
        true
    }

    /// Takes all bytes between two offsets, in at most `steps` steps; false when that was not enough.
    pub fn take<B: Bytes + ?Sized>(&mut self, push: &B, from: u32, end: u32, steps: u32) -> bool {
        let mut at = from;
        for _ in 0..steps {
            if !self.step(push, &mut at, end) {
                return true;
            }
        }
        at >= end
    }

    fn begin(&mut self) {
        let [flag, a, b, c, d] = self.prefix;
        self.have = 0;
        if flag > 1 {
            self.broken = 1;
            return;
        }
        self.left = u32::from_be_bytes([a, b, c, d]);
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u64::from(self.left));
        self.longest = self.longest.max(self.left);
    }
}
