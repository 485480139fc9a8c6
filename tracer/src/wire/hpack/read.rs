//! Integers and strings of HPACK (RFC 7541, 5).

use std::sync::Arc;

use httlib_huffman::DecoderSpeed;

use super::Error;

/// Longest string that is kept, bytes as sent; a longer one is skipped.
const MAX_TEXT: usize = 512;
/// Most bytes of an integer after its prefix: 2²⁸ is more than anything we believe.
const MAX_MORE: u32 = 4;

/// A block, read from the front.
#[derive(Debug)]
pub(super) struct Reader<'b> {
    rest: &'b [u8],
}

/// A string of a block.
#[derive(Clone, Debug)]
pub(super) struct Text {
    /// `None` when it is too long to keep, or no text.
    pub(super) text: Option<Arc<str>>,
    /// At least how many bytes it counts in a table.
    pub(super) least: u64,
}

impl<'b> Reader<'b> {
    pub(super) fn new(block: &'b [u8]) -> Self {
        Self { rest: block }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// The integer whose prefix are the lowest `bits` (1 to 8) of `first`.
    pub(super) fn integer(&mut self, first: u8, bits: u32) -> Result<u64, Error> {
        let full = (1u64 << bits) - 1;
        let mut value = u64::from(first) & full;
        if value < full {
            return Ok(value);
        }
        for at in 0..MAX_MORE {
            let byte = self.byte().ok_or(Error::Cut)?;
            value += u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Integer)
    }

    /// A string of which the end may be missing.
    pub(super) fn beginning(&mut self) -> Option<String> {
        let first = self.byte()?;
        let length = usize::try_from(self.integer(first, 7).ok()?).ok()?;
        let (bytes, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        let plain = if first & 0x80 == 0 {
            bytes.to_vec()
        } else {
            // The last code may be half of one.
            let lengths = (0..=bytes.len()).rev().take(5);
            lengths.filter_map(|length| huffman(&bytes[..length]).ok()).next()?
        };
        Some(String::from_utf8_lossy(&plain).into_owned())
    }

    pub(super) fn string(&mut self) -> Result<Text, Error> {
        let first = self.byte().ok_or(Error::Cut)?;
        let length = usize::try_from(self.integer(first, 7)?).map_err(|_| Error::Integer)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Error::Cut)?;
        self.rest = rest;
        let is_huffman = first & 0x80 != 0;
        if length > MAX_TEXT {
            // No code is longer than 30 bits.
            let least = if is_huffman { length * 8 / 30 } else { length };
            return Ok(Text { text: None, least: least as u64 });
        }
        let plain = if is_huffman { huffman(bytes)? } else { bytes.to_vec() };
        let least = plain.len() as u64;
        Ok(Text { text: String::from_utf8(plain).ok().map(Arc::from), least })
    }
}

fn huffman(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut plain = Vec::new();
    // Bit by bit: the faster ways read behind the end.
    httlib_huffman::decode(bytes, &mut plain, DecoderSpeed::OneBit).map_err(|_| Error::Huffman)?;
    Ok(plain)
}
