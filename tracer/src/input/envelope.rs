//! Bytes ↔ [`Frame`]: one record, its header checked, its payload untouched.

use bytes::{BufMut, Bytes, BytesMut};
use plegtrace_common::{
    ABI_VERSION,
    header::{HEADER_LEN, RecHeader},
    kind::RecKind,
};
use zerocopy::{FromBytes, IntoBytes};

use super::Fact;

/// Longest record taken, header included; a longer one is damage.
pub(crate) const MAX_FRAME: usize = 16 << 20;

/// One record of the stream.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The checked header.
    pub header: RecHeader,
    /// What it is.
    pub kind: RecKind,
    /// The whole record, header included.
    pub bytes: Bytes,
}

impl Frame {
    /// What follows the header.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADER_LEN..]
    }
}

/// What was read on the node: a record of the kernel side, or a fact of user space that nobody needs as a record.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "handed over at once, never stored")]
pub enum Arrival {
    /// A record.
    Record(Frame),
    /// A fact.
    Fact {
        /// When it was so, CLOCK_MONOTONIC nanoseconds.
        at_ns: u64,
        /// What was so.
        fact: Fact,
    },
}

/// Why bytes are not a record.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than a header, or than the header says.
    #[error("record is cut: {have} of {want} bytes")]
    Cut {
        /// Bytes needed.
        want: usize,
        /// Bytes there are.
        have: usize,
    },
    /// The header gives an impossible length.
    #[error("record of kind {kind:#06x} says it is {len} bytes long")]
    Length {
        /// Kind number.
        kind: u16,
        /// Length the header gives.
        len: u32,
    },
    /// Written by a version with another layout.
    #[error("record has layout version {found}, this plegtrace reads {ABI_VERSION}")]
    Abi {
        /// Version found.
        found: u16,
    },
    /// Not a kind this version knows.
    #[error("record kind {0:#06x} is unknown")]
    Kind(u16),
}

/// Takes the first record off `bytes`. On an error the bytes are left as they were.
///
/// # Errors
///
/// The bytes are not a whole, known record.
pub fn next_frame(bytes: &mut Bytes) -> Result<Frame, FrameError> {
    let have = bytes.len();
    let (header, _) =
        RecHeader::read_from_prefix(bytes).map_err(|_| FrameError::Cut { want: HEADER_LEN, have })?;
    let len = header.len as usize;
    if !(HEADER_LEN..=MAX_FRAME).contains(&len) {
        return Err(FrameError::Length { kind: header.kind, len: header.len });
    }
    if header.abi != ABI_VERSION {
        return Err(FrameError::Abi { found: header.abi });
    }
    let kind = RecKind::from_u16(header.kind).ok_or(FrameError::Kind(header.kind))?;
    if kind.size().is_some_and(|size| size != len) {
        return Err(FrameError::Length { kind: header.kind, len: header.len });
    }
    if have < len {
        return Err(FrameError::Cut { want: len, have });
    }
    Ok(Frame { header, kind, bytes: bytes.split_to(len) })
}

/// A fact as a record made at `ts_ns` (CLOCK_MONOTONIC).
#[must_use]
pub fn frame_fact(ts_ns: u64, fact: &Fact) -> Frame {
    let json = serde_json::to_vec(fact).expect("facts have string keys only");
    let header = RecHeader {
        ts_ns,
        len: u32::try_from(HEADER_LEN + json.len()).expect("facts are bounded"),
        kind: RecKind::Fact as u16,
        abi: ABI_VERSION,
        tgid: 0,
        tid: 0,
    };
    let mut bytes = BytesMut::with_capacity(header.len as usize);
    bytes.put_slice(header.as_bytes());
    bytes.put_slice(&json);
    Frame { header, kind: RecKind::Fact, bytes: bytes.freeze() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Stop, StopWhy};

    fn sample() -> Frame {
        frame_fact(7, &Fact::Stop(Stop { why: StopWhy::Duration }))
    }

    /// What was framed can be taken off again, and the rest stays.
    #[test]
    fn round_trip() {
        let mut stream = BytesMut::new();
        stream.put_slice(&sample().bytes);
        stream.put_slice(&sample().bytes);
        let mut stream = stream.freeze();
        let frame = next_frame(&mut stream).unwrap();
        assert_eq!((frame.header.ts_ns, frame.kind), (7, RecKind::Fact));
        assert_eq!(stream.len(), frame.bytes.len());
    }

    /// Every truncation is an error that takes nothing.
    #[test]
    fn truncations_are_errors() {
        let whole = sample().bytes;
        for len in 0..whole.len() {
            let mut cut = whole.slice(..len);
            assert!(matches!(next_frame(&mut cut), Err(FrameError::Cut { .. })), "at {len}");
            assert_eq!(cut.len(), len);
        }
    }

    /// A length below the header, or of another kind's size, is refused.
    #[test]
    fn impossible_lengths_are_refused() {
        let mut bytes = sample().bytes.to_vec();
        bytes[8..12].copy_from_slice(&3u32.to_le_bytes());
        assert!(matches!(next_frame(&mut Bytes::from(bytes.clone())), Err(FrameError::Length { .. })));
        bytes[8..12].copy_from_slice(&30u32.to_le_bytes());
        bytes[12..14].copy_from_slice(&(RecKind::Call as u16).to_le_bytes());
        assert!(matches!(next_frame(&mut Bytes::from(bytes)), Err(FrameError::Length { .. })));
    }
}
