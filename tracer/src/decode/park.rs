//! [`ParkRec`] → [`ParkEvent`].

use plegtrace_common::{kind::RecKind, rec::ParkRec};
use zerocopy::FromBytes;

use super::{DecodeError, MonoNs, ParkEvent};

/// Reads a park that is over.
pub(super) fn decode(bytes: &[u8]) -> Result<ParkEvent, DecodeError> {
    let rec = ParkRec::read_from_bytes(bytes).map_err(|_| DecodeError::Size {
        kind: RecKind::Park,
        want: size_of::<ParkRec>(),
        have: bytes.len(),
    })?;
    let (start, end) = (MonoNs(rec.start_ns), MonoNs(rec.header.ts_ns));
    if end < start {
        return Err(DecodeError::Backwards { start, end });
    }
    Ok(ParkEvent {
        tgid: rec.header.tgid,
        goid: rec.goid,
        hook: rec.hook,
        reason: rec.reason,
        start,
        end,
        stack: stack(rec.start_code, rec.caller, &rec.frames),
    })
}

/// Return addresses relative to the start of the code, innermost first, from what the kernel side keeps of a park;
/// none when the start of the code is not known. `frames` begins in `gopark` itself, whose frame is not made yet;
/// Linux 6.12 and later then repeat its caller.
#[must_use]
pub fn stack(start_code: u64, caller: u64, frames: &[u64]) -> Vec<u64> {
    if start_code == 0 {
        return Vec::new();
    }
    let callers = frames.get(1..).unwrap_or_default();
    let callers = callers.strip_prefix(&[caller]).unwrap_or(callers);
    let known = std::iter::once(&caller).chain(callers).take_while(|address| **address != 0);
    known.map(|address| address.wrapping_sub(start_code)).collect()
}

#[cfg(test)]
mod tests {
    use plegtrace_common::{ABI_VERSION, header::RecHeader, rec::PARK_FRAMES};
    use zerocopy::IntoBytes;

    use super::*;

    fn rec(start_ns: u64, ts_ns: u64) -> ParkRec {
        let len = u32::try_from(size_of::<ParkRec>()).unwrap();
        let mut frames = [0; PARK_FRAMES];
        frames[..3].copy_from_slice(&[0x1005, 0x1200, 0x1300]);
        ParkRec {
            header: RecHeader { ts_ns, len, kind: RecKind::Park as u16, abi: ABI_VERSION, tgid: 10, tid: 11 },
            start_ns,
            goid: 12,
            start_code: 0x1000,
            hook: 3,
            reason: 17,
            caller: 0x1100,
            frames,
        }
    }

    /// Each field lands where it belongs.
    #[test]
    fn fields() {
        let park = decode(rec(5, 9).as_bytes()).unwrap();
        assert_eq!((park.tgid, park.goid, park.hook, park.reason), (10, 12, 3, 17));
        assert_eq!((park.start, park.end), (MonoNs(5), MonoNs(9)));
        assert_eq!(park.stack, [0x100, 0x200, 0x300]);
        assert!(matches!(decode(rec(9, 5).as_bytes()), Err(DecodeError::Backwards { .. })));
    }

    /// The caller stands in the stack once, whether the kernel repeats it or not, and a full stack has no end mark.
    #[test]
    fn the_caller_stands_once() {
        assert_eq!(stack(1, 10, &[5, 10, 20, 0, 7]), [9, 19]);
        assert_eq!(stack(1, 10, &[5, 20, 30]), [9, 19, 29]);
        assert_eq!(stack(1, 10, &[]), [9]);
    }

    /// Without a start of the code, or without a caller, there is no stack.
    #[test]
    fn unknown_places() {
        assert!(stack(0, 10, &[5, 20]).is_empty());
        assert!(stack(1, 0, &[5, 20]).is_empty());
    }
}
