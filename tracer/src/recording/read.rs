//! [`Recording`]: bytes of a file → records, as far as they can be read.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::DeflateDecoder;
use plegtrace_common::{
    ABI_VERSION,
    header::{HEADER_LEN, RecHeader},
    kind::RecKind,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    Damage,
    block::{BLOCK_HEADER, BlockHeader, FILE_HEADER, FORMAT, FileHeader, Kind, MARKER, MAX_STORED},
};
use crate::input::{Frame, next_frame};

/// A file that does not begin like a recording is searched this far for a block of one, bytes.
const SEARCH: u64 = 32 << 20;
/// Payloads that are damaged are searched for blocks inside, up to this many bytes in all, packed and unpacked: who
/// writes many overlapping blocks on purpose must not make us read for hours.
const PATIENCE: usize = 256 << 20;
const PIECE: usize = 64 << 10;

/// Why a file gives nothing at all.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It is something else.
    #[error("not a plegtrace recording")]
    Foreign,
    /// Its format came after this version.
    #[error(
        "the recording has format {found}, and this plegtrace reads up to {FORMAT}: use a newer plegtrace"
    )]
    Newer {
        /// Version of its format.
        found: u16,
    },
    /// It cannot be read.
    #[error("cannot read the recording")]
    Read(#[source] io::Error),
}

/// A recording that is being read, block by block. Holds one block at a time, at most 33 MiB.
#[derive(Debug)]
pub struct Recording<R> {
    source: Source<R>,
    damage: Damage,
    /// Number of the record that comes next, when nothing is missing.
    next: u64,
    /// In a place where no block is.
    lost: bool,
    /// The first block was read.
    begun: bool,
    patience: usize,
    ended: bool,
}

impl<R: Read> Recording<R> {
    /// Reads the beginning.
    ///
    /// # Errors
    ///
    /// It is no recording, or one of a later format, or it cannot be read.
    pub fn open(source: R) -> Result<Self, RecordingError> {
        let mut source =
            Source { from: source, bytes: Vec::new(), at: 0, passed: 0, error: None, ended: false };
        source.fill(FILE_HEADER);
        if let Some(error) = source.error.take_if(|_| source.bytes.len() < FILE_HEADER) {
            return Err(RecordingError::Read(error));
        }
        let mut recording = Self {
            source,
            damage: Damage::default(),
            next: 0,
            lost: false,
            begun: false,
            patience: PATIENCE,
            ended: false,
        };
        match FileHeader::read(recording.source.rest()) {
            Some(header) if header.format.get() > FORMAT => {
                return Err(RecordingError::Newer { found: header.format.get() });
            }
            Some(header) => {
                recording.damage.abi = Some(header.abi.get()).filter(|abi| *abi != ABI_VERSION);
                recording.source.skip(FILE_HEADER);
            }
            None => {
                recording.source.seek_block(SEARCH);
                if BlockHeader::read(recording.source.rest()).is_none() {
                    return Err(RecordingError::Foreign);
                }
                recording.damage.places += 1;
            }
        }
        Ok(recording)
    }

    /// Hands the records of the next block that can be read to `take`; false when there is none.
    pub fn next_block(&mut self, take: &mut dyn FnMut(Frame)) -> bool {
        while !self.ended {
            self.source.fill(BLOCK_HEADER);
            let Some(header) = BlockHeader::read(self.source.rest()) else {
                self.find_block();
                continue;
            };
            let length = BLOCK_HEADER + header.stored_len();
            self.source.fill(length);
            let payload = self.source.rest().get(BLOCK_HEADER..length);
            let raw = payload.filter(|stored| header.fits(stored)).and_then(|stored| unpack(&header, stored));
            let Some(raw) = raw else {
                self.pass_over(&header, length);
                continue;
            };
            self.source.skip(length);
            self.lost = false;
            if header.first() < self.next {
                // A copy, or a part of another recording: the stream has been further.
                self.damage.places += 1;
                continue;
            }
            self.damage.missing = self.damage.missing.saturating_add(header.first() - self.next);
            self.next = header.first().saturating_add(header.records());
            self.begun |= header.first() == 0 && header.records() > 0;
            if header.kind() == Some(Kind::End) {
                self.end(&raw);
                return false;
            }
            self.records(&header, raw.into(), take);
            return true;
        }
        false
    }

    /// What could not be read so far; whole after the last block.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Bytes it would still search for blocks in vain.
    #[cfg(test)]
    pub(super) fn patience_left(&self) -> usize {
        self.patience
    }

    fn end(&mut self, raw: &[u8]) {
        let left_out = raw.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        // These were not written, so they are no damage.
        self.damage.missing = self.damage.missing.saturating_sub(left_out);
        self.damage.left_out = left_out;
        self.source.fill(1);
        self.damage.trailing = !self.source.rest().is_empty();
        self.damage.beheaded = !self.begun;
        self.ended = true;
    }

    /// What stands here is no block: goes to the next, or to the end of the file.
    fn find_block(&mut self) {
        if !self.source.rest().is_empty() {
            self.damage.places += u64::from(!std::mem::replace(&mut self.lost, true));
            self.source.skip(1);
            self.source.seek_block(u64::MAX);
        }
        if self.source.rest().is_empty() {
            self.damage.cut = true;
            self.damage.beheaded = !self.begun;
            self.damage.unread = self.source.error.take().map(|error| error.to_string());
            self.ended = true;
        }
    }

    /// A block with a right header and a wrong payload.
    fn pass_over(&mut self, header: &BlockHeader, length: usize) {
        self.damage.places += u64::from(!std::mem::replace(&mut self.lost, true));
        self.source.fill(length + BLOCK_HEADER);
        let behind = self.source.rest().get(length..).unwrap_or_default();
        let price = length + header.raw_len();
        if BlockHeader::read(behind).is_some() || self.patience < price {
            self.source.skip(length);
        } else {
            // Bytes are missing, or too many: the next block may begin inside.
            self.patience -= price;
            self.source.skip(BLOCK_HEADER);
            self.source.seek_block(u64::MAX);
        }
        if self.source.rest().is_empty() && header.first() >= self.next {
            // No block will come to tell how many are missing.
            let end = header.first().saturating_add(header.records());
            self.damage.missing = self.damage.missing.saturating_add(end - self.next);
            self.next = end;
        }
    }

    fn records(&mut self, header: &BlockHeader, mut raw: Bytes, take: &mut dyn FnMut(Frame)) {
        let mut seen = 0;
        while let Some(record) = split_record(&mut raw) {
            seen += 1;
            match readable(record) {
                Some(frame) => take(frame),
                None => self.damage.foreign += 1,
            }
        }
        self.damage.missing = self.damage.missing.saturating_add(header.records().saturating_sub(seen));
    }
}

/// The payload unpacked: exactly as long as announced, or nothing.
fn unpack(header: &BlockHeader, stored: &[u8]) -> Option<Vec<u8>> {
    // Grows with what comes, so a length that lies costs nothing.
    let mut raw = Vec::new();
    let limit = u64::try_from(header.raw_len()).ok()?;
    DeflateDecoder::new(stored).take(limit + 1).read_to_end(&mut raw).ok()?;
    (raw.len() == header.raw_len()).then_some(raw)
}

/// The bytes of the next record; `None` at the end, or where its length is impossible.
fn split_record(raw: &mut Bytes) -> Option<Bytes> {
    let (header, _) = RecHeader::read_from_prefix(raw).ok()?;
    let length = header.len as usize;
    (length >= HEADER_LEN && length <= raw.len()).then(|| raw.split_to(length))
}

/// A record this version knows. Facts are JSON and can be read whatever the version of their writer.
fn readable(mut record: Bytes) -> Option<Frame> {
    let (header, payload) = RecHeader::read_from_prefix(&record).ok()?;
    if header.abi != ABI_VERSION && header.kind == RecKind::Fact as u16 {
        let header = RecHeader { abi: ABI_VERSION, ..header };
        record = [header.as_bytes(), payload].concat().into();
    }
    next_frame(&mut record).ok()
}

/// A file with a window on it that grows as it is asked to, to one block and a header at most.
#[derive(Debug)]
struct Source<R> {
    from: R,
    bytes: Vec<u8>,
    /// Where the window begins in `bytes`.
    at: usize,
    /// Bytes that were skipped.
    passed: u64,
    error: Option<io::Error>,
    ended: bool,
}

impl<R: Read> Source<R> {
    /// What is in the window.
    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Widens the window to `want` bytes, or to the end of the file.
    fn fill(&mut self, want: usize) {
        debug_assert!(want <= MAX_STORED + 2 * BLOCK_HEADER, "the window is bounded");
        if self.rest().len() >= want || self.ended {
            return;
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        while self.bytes.len() < want && !self.ended {
            let missing = u64::try_from((want - self.bytes.len()).max(PIECE)).unwrap_or(u64::MAX);
            match self.from.by_ref().take(missing).read_to_end(&mut self.bytes) {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) => (self.error, self.ended) = (Some(error), true),
            }
        }
    }

    fn skip(&mut self, bytes: usize) {
        let bytes = bytes.min(self.rest().len());
        self.at += bytes;
        self.passed += bytes as u64;
    }

    /// Moves to the next marker with a right header, or to the end; gives up `within` bytes after the beginning.
    fn seek_block(&mut self, within: u64) {
        while self.passed < within {
            self.fill(BLOCK_HEADER);
            if self.rest().len() < BLOCK_HEADER {
                return self.skip(BLOCK_HEADER);
            }
            let next = self.rest().windows(MARKER.len()).position(|window| window == MARKER);
            match next {
                Some(0) if BlockHeader::read(self.rest()).is_some() => return,
                Some(0) => self.skip(1),
                Some(next) => self.skip(next),
                // The marker may begin in the last bytes of the window.
                None => self.skip(self.rest().len() - (MARKER.len() - 1)),
            }
        }
    }
}
