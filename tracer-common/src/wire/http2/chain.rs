//! Whether a push begins with a frame, when nobody knows.

use super::event::CONTINUATION;
use super::header::{FrameHeader, HEADER};
use crate::wire::Bytes;

/// Longest payload of a frame that is believed while out of step; in step any length is (RFC 9113, 4.2: the default).
pub const MAX_STRICT: u32 = 16_384;
/// Headers that are believed without the end of the push in sight.
const CHAIN: u32 = 4;

/// The first header of a push in which the headers follow each other up to its end, or for long enough.
pub(super) fn chain<B: Bytes + ?Sized>(push: &B) -> Option<FrameHeader> {
    let (mut at, mut block, mut first) = (0u32, 0, None);
    for seen in 1..=CHAIN {
        let bytes = push.read::<9>(at);
        let enough = seen >= CHAIN;
        let Some(bytes) = bytes else { return if enough { first } else { None } };
        let header = FrameHeader::parse(bytes);
        let follows = header.may_follow(block) || (first.is_none() && header.kind == CONTINUATION);
        if !header.is_possible() || !follows || header.length > MAX_STRICT {
            return None;
        }
        first = first.or(Some(header));
        block = header.block_after();
        at = at.saturating_add(u32::from(HEADER)).saturating_add(header.length);
        if at == push.length() || enough {
            return first;
        }
    }
    None
}
