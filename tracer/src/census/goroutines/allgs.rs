//! `runtime.allgs`: which candidate is the list of all goroutines, and the list itself.
//!
//! A slice of pointers that only grows; `runtime.allgadd` appends to it, dead goroutines stay in it for reuse. Nothing
//! says where it is, so every address that `allgadd` refers to is tried, and exactly one must hold a list of goroutines.

use std::collections::HashSet;

use super::header::{Header, word};
use crate::census::memory::{Memory, MemoryError, Piece};
use crate::target::GOffsets;

/// Entries that are looked at to believe a candidate.
const SAMPLE: usize = 64;
/// Longest list believed.
const MAX_LEN: u64 = 1 << 26;
/// A list that grows while it is read is read again this often.
const TRIES: usize = 8;

/// The list at one moment.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Addresses of `g`s.
    pub(super) entries: Vec<u64>,
    /// Entries that were left out because there are more than asked for.
    pub(super) left_out: u64,
}

/// Reads the slice at `addr`; `None` when there cannot be one.
pub(super) fn read(memory: &dyn Memory, addr: u64, limit: usize) -> Result<Option<List>, MemoryError> {
    for _ in 0..TRIES {
        let Some(slice) = slice(memory, addr)? else { return Ok(None) };
        let kept = usize::try_from(slice.1).unwrap_or(usize::MAX).min(limit);
        let mut bytes = vec![0; 8 * kept];
        let whole = memory.read_one(slice.0, &mut bytes)?;
        // An append in between may have moved it, and the old place may hold something else by now.
        if self::slice(memory, addr)?.is_some_and(|again| again.0 == slice.0) {
            let entries = || bytes.chunks_exact(8).filter_map(|bytes| word(bytes, 0)).collect();
            let left_out = slice.1 - kept as u64;
            return Ok(whole.then(|| List { entries: entries(), left_out }));
        }
    }
    Ok(None)
}

/// Address and length of the slice at `addr`.
fn slice(memory: &dyn Memory, addr: u64) -> Result<Option<(u64, u64)>, MemoryError> {
    let mut bytes = [0; 24];
    if !memory.read_one(addr, &mut bytes)? {
        return Ok(None);
    }
    let [first, len, cap] = [0, 8, 16].map(|at| word(&bytes, at).unwrap_or(0));
    let sound = first != 0 && first % 8 == 0 && 0 < len && len <= cap && cap <= MAX_LEN;
    Ok(sound.then_some((first, len)))
}

/// Is there a list of goroutines at `addr`?
pub(super) fn is_list(memory: &dyn Memory, g: &GOffsets, addr: u64) -> Result<bool, MemoryError> {
    let Some(list) = read(memory, addr, SAMPLE)? else { return Ok(false) };
    if list.entries.iter().any(|entry| *entry == 0 || entry % 8 != 0) {
        return Ok(false);
    }
    let size = Header::size(g);
    let mut bytes = vec![0; size * list.entries.len()];
    let mut pieces: Vec<Piece<'_>> =
        list.entries.iter().zip(bytes.chunks_mut(size)).map(|(at, into)| Piece::new(*at, into)).collect();
    memory.read(&mut pieces)?;
    if pieces.iter().any(|piece| !piece.whole) {
        return Ok(false);
    }
    let headers: Vec<Header> = bytes.chunks(size).map(|bytes| Header::parse(g, bytes)).collect();
    Ok(are_goroutines(&list.entries, &headers))
}

/// All plausible, all distinct, and at least one that lives.
fn are_goroutines(entries: &[u64], headers: &[Header]) -> bool {
    let mut places = HashSet::new();
    let mut goids = HashSet::new();
    let live = headers.iter().filter(|header| !header.is_vacant());
    headers.iter().all(Header::is_plausible)
        && entries.iter().all(|entry| places.insert(*entry))
        && live.clone().count() > 0
        && live.clone().all(|header| goids.insert(header.goid))
}

#[cfg(test)]
#[path = "allgs_tests.rs"]
mod tests;
