//! [`Encoder`]: records → bytes of a recording. No I/O.

use flate2::{Compress, Compression, FlushCompress, Status};
use zerocopy::IntoBytes;

use super::block::{BlockHeader, FileHeader, Kind, MAX_RAW};

/// A block is closed at this size, bytes unpacked; a longer record has one of its own.
const BLOCK: usize = 256 << 10;
/// Facts repeat themselves: more effort would gain little.
const EFFORT: u32 = 3;

/// Puts records into blocks.
#[derive(Debug)]
pub struct Encoder {
    packer: Compress,
    raw: Vec<u8>,
    /// Records before the block that is being filled.
    first: u64,
    /// Records in it.
    records: u32,
    left_out: u64,
    /// Records of the block that was made last.
    last: u64,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// Nothing recorded yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            packer: Compress::new(Compression::new(EFFORT), false),
            raw: Vec::new(),
            first: 0,
            records: 0,
            left_out: 0,
            last: 0,
        }
    }

    /// Forgets what it has counted, and what is not in a block yet: another recording begins, in the same memory.
    pub fn begin_again(&mut self) {
        self.raw.clear();
        (self.first, self.records, self.left_out, self.last) = (0, 0, 0, 0);
    }

    /// How a file begins.
    #[must_use]
    pub fn header() -> Vec<u8> {
        FileHeader::new().as_bytes().to_vec()
    }

    /// Takes the bytes of a whole record. What comes back is written first: the block that had no room for it.
    pub fn push(&mut self, record: &[u8]) -> Option<Vec<u8>> {
        if record.len() > MAX_RAW {
            let full = self.block();
            self.leave_out(1);
            return full;
        }
        let full = if self.raw.len() + record.len() > BLOCK { self.block() } else { None };
        self.raw.extend_from_slice(record);
        self.records += 1;
        full
    }

    /// Counts records that are not recorded; the block that was being filled must have been taken.
    pub fn leave_out(&mut self, records: u64) {
        self.first = self.first.saturating_add(records);
        self.left_out = self.left_out.saturating_add(records);
    }

    /// Records that were taken, and those that were left out.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let all = self.first.saturating_add(u64::from(self.records));
        (all.saturating_sub(self.left_out), self.left_out)
    }

    /// Closes the block that is being filled; `None` when nothing is in it.
    pub fn block(&mut self) -> Option<Vec<u8>> {
        if self.records == 0 {
            return None;
        }
        let block = self.pack(Kind::Records);
        self.last = u64::from(self.records);
        self.first = self.first.saturating_add(self.last);
        self.records = 0;
        self.raw.clear();
        Some(block)
    }

    /// Counts the records of the block that was made last as left out: it is not written.
    pub fn take_back(&mut self) {
        self.left_out = self.left_out.saturating_add(self.last);
    }

    /// The last block of a whole recording; the one that was being filled must have been taken.
    pub fn end(&mut self) -> Vec<u8> {
        self.raw.clear();
        self.raw.extend_from_slice(&self.left_out.to_le_bytes());
        let block = self.pack(Kind::End);
        self.raw.clear();
        block
    }

    fn pack(&mut self, kind: Kind) -> Vec<u8> {
        self.packer.reset();
        let mut stored = Vec::with_capacity(self.raw.len() / 4 + 64);
        let mut status = Status::Ok;
        // With all of the input there and room in the output, each round gets further.
        while status != Status::StreamEnd {
            let done = usize::try_from(self.packer.total_in()).unwrap_or(usize::MAX);
            stored.reserve(4096);
            let rest = self.raw.get(done..).unwrap_or_default();
            status = self
                .packer
                .compress_vec(rest, &mut stored, FlushCompress::Finish)
                .expect("packing has no state that could be wrong");
        }
        let raw_len = u32::try_from(self.raw.len()).expect("blocks are bounded");
        let header = BlockHeader::new(kind, self.first, self.records, raw_len, &stored);
        [header.as_bytes(), &stored].concat()
    }
}
