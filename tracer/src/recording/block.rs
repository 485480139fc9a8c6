//! Headers of files and blocks: bytes ↔ numbers, with their checksums.

use plegtrace_common::ABI_VERSION;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

use crate::input::MAX_FRAME;

/// Version of the format.
pub(super) const FORMAT: u16 = 1;
/// How a file begins.
pub(super) const MAGIC: [u8; 8] = *b"\x89PLT\r\n\x1a\n";
/// How a block begins.
pub(super) const MARKER: [u8; 4] = *b"\xb7PLB";
/// Longest payload, unpacked: one record of the greatest length.
pub(super) const MAX_RAW: usize = MAX_FRAME;
/// Longest payload as stored: DEFLATE makes what cannot be packed a little longer.
pub(super) const MAX_STORED: usize = MAX_RAW + (1 << 20);

/// The first bytes of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub(super) struct FileHeader {
    magic: [u8; 8],
    pub(super) format: U16,
    pub(super) abi: U16,
    crc: U32,
}

/// Length of [`FileHeader`].
pub(super) const FILE_HEADER: usize = size_of::<FileHeader>();

impl FileHeader {
    /// That of this version.
    pub(super) fn new() -> Self {
        let mut header = Self { magic: MAGIC, format: FORMAT.into(), abi: ABI_VERSION.into(), crc: 0.into() };
        header.crc = header.checksum().into();
        header
    }

    /// Reads one; `None` when these bytes are none, or damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(bytes).ok()?;
        (header.magic == MAGIC && header.crc == header.checksum()).then_some(header)
    }

    fn checksum(&self) -> u32 {
        crc32fast::hash(&self.as_bytes()[..FILE_HEADER - 4])
    }
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Records.
    Records,
    /// The last block of a whole recording.
    End,
}

/// The first bytes of a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub(super) struct BlockHeader {
    marker: [u8; 4],
    kind: U32,
    first: U64,
    records: U32,
    stored_len: U32,
    raw_len: U32,
    payload_crc: U32,
    crc: U32,
}

/// Length of [`BlockHeader`].
pub(super) const BLOCK_HEADER: usize = size_of::<BlockHeader>();

impl BlockHeader {
    /// That of a block with this payload. The lengths are bounded by the caller.
    pub(super) fn new(kind: Kind, first: u64, records: u32, raw_len: u32, stored: &[u8]) -> Self {
        let kind = match kind {
            Kind::Records => 1,
            Kind::End => 2,
        };
        let stored_len = u32::try_from(stored.len()).unwrap_or(u32::MAX);
        let mut header = Self {
            marker: MARKER,
            kind: kind.into(),
            first: first.into(),
            records: records.into(),
            stored_len: stored_len.into(),
            raw_len: raw_len.into(),
            payload_crc: crc32fast::hash(stored).into(),
            crc: 0.into(),
        };
        header.crc = header.checksum().into();
        header
    }

    /// Reads one; `None` when these bytes are none, damaged, or of impossible lengths.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(bytes).ok()?;
        let sound = header.marker == MARKER && header.crc == header.checksum();
        let bounded = header.stored_len() <= MAX_STORED && header.raw_len() <= MAX_RAW;
        (sound && bounded && header.kind().is_some()).then_some(header)
    }

    /// What it is; `None` for what a later version may have added.
    pub(super) fn kind(&self) -> Option<Kind> {
        match self.kind.get() {
            1 => Some(Kind::Records),
            2 => Some(Kind::End),
            _ => None,
        }
    }

    /// Number of records before it.
    pub(super) fn first(&self) -> u64 {
        self.first.get()
    }

    /// Number of records in it.
    pub(super) fn records(&self) -> u64 {
        u64::from(self.records.get())
    }

    /// Length of the payload as stored, bytes.
    pub(super) fn stored_len(&self) -> usize {
        self.stored_len.get() as usize
    }

    /// Length of the payload when unpacked, bytes.
    pub(super) fn raw_len(&self) -> usize {
        self.raw_len.get() as usize
    }

    /// Is this its payload?
    pub(super) fn fits(&self, stored: &[u8]) -> bool {
        stored.len() == self.stored_len() && crc32fast::hash(stored) == self.payload_crc.get()
    }

    fn checksum(&self) -> u32 {
        crc32fast::hash(&self.as_bytes()[..BLOCK_HEADER - 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layouts are those of the documentation.
    #[test]
    fn layouts_are_for_ever() {
        assert_eq!((FILE_HEADER, BLOCK_HEADER), (16, 36));
        assert_eq!(FileHeader::new().as_bytes()[..8], [0x89, 0x50, 0x4c, 0x54, 0x0d, 0x0a, 0x1a, 0x0a]);
        let header = BlockHeader::new(Kind::End, 7, 0, 8, b"abc");
        assert_eq!(header.as_bytes()[..20], *b"\xb7PLB\x02\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0");
    }

    /// Whatever bit is wrong, a header is none.
    #[test]
    fn flipped_bits_are_seen() {
        let (file, block) = (FileHeader::new(), BlockHeader::new(Kind::Records, 1, 2, 3, b"abc"));
        assert!(FileHeader::read(file.as_bytes()).is_some() && BlockHeader::read(block.as_bytes()).is_some());
        for bit in 0..FILE_HEADER * 8 {
            let mut bytes = file.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(FileHeader::read(&bytes).is_none(), "bit {bit}");
        }
        for bit in 0..BLOCK_HEADER * 8 {
            let mut bytes = block.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(BlockHeader::read(&bytes).is_none(), "bit {bit}");
        }
    }

    /// Lengths beyond the bounds are refused even when the checksum is right.
    #[test]
    fn lengths_are_bounded() {
        let mut header = BlockHeader::new(Kind::Records, 0, 1, 1 + MAX_RAW as u32, b"");
        assert!(BlockHeader::read(header.as_bytes()).is_none());
        header = BlockHeader::new(Kind::Records, 0, 1, MAX_RAW as u32, b"");
        assert!(BlockHeader::read(header.as_bytes()).is_some());
        header.stored_len = (1 + MAX_STORED as u32).into();
        header.crc = header.checksum().into();
        assert!(BlockHeader::read(header.as_bytes()).is_none());
    }
}
