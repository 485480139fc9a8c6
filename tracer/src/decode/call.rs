//! [`CallRec`] → [`Call`].

use plegtrace_common::{
    key,
    kind::RecKind,
    rec::{CALL_PARKS, CallRec},
};
use zerocopy::FromBytes;

use super::{Call, DecodeError, MonoNs, Parked};

/// Reads a finished call.
pub(super) fn decode(bytes: &[u8]) -> Result<Call, DecodeError> {
    let rec = CallRec::read_from_bytes(bytes).map_err(|_| DecodeError::Size {
        kind: RecKind::Call,
        want: size_of::<CallRec>(),
        have: bytes.len(),
    })?;
    let (start, end) = (MonoNs(rec.start_ns), MonoNs(rec.header.ts_ns));
    if end < start {
        return Err(DecodeError::Backwards { start, end });
    }
    Ok(Call {
        tgid: rec.header.tgid,
        goid: rec.goid,
        hook: rec.hook,
        depth: rec.depth,
        flags: rec.flags,
        start,
        end,
        mark: (rec.mark_ns != 0).then_some(MonoNs(rec.mark_ns)),
        parked: (rec.flags & CALL_PARKS != 0).then_some(Parked {
            ns: rec.parked_ns,
            short_ns: rec.short_ns,
            count: rec.parks,
        }),
        stream: key::stream(rec.stream),
    })
}

#[cfg(test)]
mod tests {
    use plegtrace_common::{ABI_VERSION, header::RecHeader};
    use zerocopy::IntoBytes;

    use super::*;

    fn rec(start_ns: u64, ts_ns: u64) -> CallRec {
        let len = u32::try_from(size_of::<CallRec>()).unwrap();
        CallRec {
            header: RecHeader { ts_ns, len, kind: RecKind::Call as u16, abi: ABI_VERSION, tgid: 10, tid: 11 },
            start_ns,
            mark_ns: 0,
            goid: 12,
            g_addr: 0,
            hook: 3,
            flags: 0,
            depth: 99,
            start_tid: 11,
            parked_ns: 2,
            short_ns: 1,
            parks: 7,
            stream: 0,
        }
    }

    /// Each field lands where it belongs.
    #[test]
    fn fields() {
        let call = decode(rec(5, 9).as_bytes()).unwrap();
        assert_eq!((call.tgid, call.goid, call.hook, call.depth), (10, 12, 3, 99));
        assert_eq!((call.duration_ns(), call.mark, call.parked), (4, None, None));
    }

    /// Stream 0 is the connection itself, so it stands for one that is not known.
    #[test]
    fn streams() {
        assert_eq!(decode(rec(5, 9).as_bytes()).unwrap().stream, None);
        assert_eq!(decode(CallRec { stream: 17, ..rec(5, 9) }.as_bytes()).unwrap().stream, Some(17));
    }

    /// Sums of parks count only when the kernel side says that it measured them.
    #[test]
    fn measured_parks() {
        let call = decode(CallRec { flags: CALL_PARKS, ..rec(5, 9) }.as_bytes()).unwrap();
        assert_eq!(call.parked, Some(Parked { ns: 2, short_ns: 1, count: 7 }));
    }

    /// A call cannot end before it starts.
    #[test]
    fn backwards_is_an_error() {
        assert!(matches!(decode(rec(9, 5).as_bytes()), Err(DecodeError::Backwards { .. })));
    }
}
