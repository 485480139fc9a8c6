//! The runtime's own words for why a goroutine waits: `runtime.waitReasonStrings`, read out of the process.
//!
//! Numbers and words changed in most releases, so no table of ours is used. The array is found like the list of
//! goroutines: by what `waitReason.String` refers to. It is believed when its first two strings are those that every
//! release from Go 1.11 to 1.27 begins with; without it, reasons are shown as numbers.

use super::header::word;
use crate::census::memory::{Memory, MemoryError, Piece};

/// Go 1.27 has 50.
const MAX_REASONS: usize = 128;
/// "GC background sweeper wait" has 26 bytes.
const MAX_WORDS: usize = 64;
/// Number 0 is the empty string, number 1 this one.
const FIRST: &str = "GC assist marking";

/// Words by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reasons {
    words: Vec<String>,
}

impl Reasons {
    /// Reads them at the one of these addresses where they are.
    pub(super) fn find(memory: &dyn Memory, candidates: &[u64]) -> Result<Self, MemoryError> {
        let mut found = Self::default();
        for addr in candidates {
            let words = read(memory, *addr)?;
            if words.get(1).is_some_and(|word| word == FIRST) {
                if !found.words.is_empty() {
                    return Ok(Self::default());
                }
                found = Self { words };
            }
        }
        Ok(found)
    }

    /// The words for a number; `None` for 0, which means no reason.
    pub(super) fn words(&self, number: u8) -> Option<String> {
        let known = self.words.get(usize::from(number)).cloned();
        (number != 0).then(|| known.unwrap_or_else(|| format!("wait reason {number}")))
    }
}

/// The array of strings at `addr`, up to the first that cannot be one.
fn read(memory: &dyn Memory, addr: u64) -> Result<Vec<String>, MemoryError> {
    let mut array = vec![0; 16 * MAX_REASONS];
    let mut entries = Vec::new();
    // The array may end right before memory that is not there.
    for (index, bytes) in array.chunks_mut(256).enumerate() {
        if !memory.read_one(addr.wrapping_add(256 * index as u64), bytes)? {
            break;
        }
        let pairs = bytes.chunks_exact(16).filter_map(|pair| Some((word(pair, 0)?, word(pair, 8)?)));
        entries.extend(pairs);
    }
    if entries.first().is_none_or(|(_, len)| *len != 0) {
        return Ok(Vec::new());
    }
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for (_, len) in entries.iter().skip(1) {
        match usize::try_from(*len) {
            Ok(len) if (1..=MAX_WORDS).contains(&len) => texts.push(vec![0; len]),
            _ => break,
        }
    }
    let mut pieces: Vec<Piece<'_>> = entries[1..]
        .iter()
        .zip(&mut texts)
        .map(|((addr, _), text)| Piece::new(*addr, text.as_mut_slice()))
        .collect();
    memory.read(&mut pieces)?;
    let plain = |piece: &&Piece<'_>| piece.whole && piece.into.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let words = pieces.iter().take_while(plain).map(|piece| String::from_utf8_lossy(piece.into).into_owned());
    Ok(std::iter::once(String::new()).chain(words).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::memory::ProcessMemory;

    /// An array in our own memory: what is no text ends it, and unknown numbers stay numbers.
    #[test]
    fn own_memory() {
        let me = ProcessMemory { pid: std::process::id() };
        let texts = ["", FIRST, "IO wait", "\x1b[31m", "later"];
        let array: Vec<(u64, u64)> =
            texts.iter().map(|text| (text.as_ptr() as u64, text.len() as u64)).collect();
        let mut flat: Vec<u64> = array.iter().flat_map(|(at, len)| [*at, *len]).collect();
        flat.resize(2 * MAX_REASONS, 0);
        let at = flat.as_ptr() as u64;
        let reasons = Reasons::find(&me, &[8, at + 8, at, at + 16]).unwrap();
        assert_eq!(reasons.words, ["", FIRST, "IO wait"]);
        assert_eq!((reasons.words(0), reasons.words(2)), (None, Some("IO wait".to_owned())));
        assert_eq!(reasons.words(77), Some("wait reason 77".to_owned()));
        // Two places that hold it: neither is believed.
        assert_eq!(Reasons::find(&me, &[at, at]).unwrap(), Reasons::default());
    }
}
