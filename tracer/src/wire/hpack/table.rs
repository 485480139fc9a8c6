//! The dynamic table of one direction, of which the beginning may be unknown.
//!
//! Indices count from the newest entry, and change with each insertion. The *ordinal* of an entry, the number of insertions
//! before it, does not: `ordinal = insertions − 1 − offset`. A table that is joined late starts to count at [`JOIN`], so
//! what is older has an ordinal below. Evictions take the oldest entries and change no ordinal.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Error;

/// Ordinal of the first insertion that we see.
pub const JOIN: u64 = 1 << 32;
/// The size of a table unless a block changes it, bytes (RFC 7541 and RFC 9113, 6.5.2).
const DEFAULT: u64 = 4096;
/// The most that is kept, as bytes of the table; older entries become unknown.
const MAX_SIZE: u64 = 64 << 10;
/// What an entry counts besides its texts (RFC 7541, 4.1).
const OVERHEAD: u64 = 32;
/// Most entries older than us whose meaning was learnt.
const MAX_LEARNT: usize = 256;
/// No encoder has a table with more entries than that.
const MAX_OFFSET: u64 = 1 << 20;

/// A field; `None` is what we cannot know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Its value.
    pub value: Option<Arc<str>>,
}

#[derive(Debug)]
struct Sized {
    entry: Entry,
    /// At least how many bytes it counts.
    least: u64,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    /// Newest first.
    entries: VecDeque<Sized>,
    /// Sum of their sizes, at least.
    least: u64,
    learnt: BTreeMap<u64, Entry>,
    /// Ordinal of the next insertion.
    next: u64,
    /// Size of the encoder's table; `None` until it is known.
    capacity: Option<u64>,
    /// The oldest entry that can be there; `None` while there may be some that are older than us.
    oldest: Option<u64>,
}

impl Table {
    /// The table of a connection that begins.
    pub(super) fn new() -> Self {
        Self { capacity: Some(DEFAULT), oldest: Some(JOIN), ..Self::late() }
    }

    /// The table of one that we join.
    pub(super) fn late() -> Self {
        Self {
            entries: VecDeque::new(),
            least: 0,
            learnt: BTreeMap::new(),
            next: JOIN,
            capacity: None,
            oldest: None,
        }
    }

    /// Ordinal and, as far as known, content of the entry at `offset` from the newest.
    pub(super) fn get(&self, offset: u64) -> Result<(u64, Entry), Error> {
        let ordinal = self.next - 1 - Some(offset).filter(|at| *at < MAX_OFFSET).ok_or(Error::Index)?;
        if let Some(found) = usize::try_from(offset).ok().and_then(|at| self.entries.get(at)) {
            return Ok((ordinal, found.entry.clone()));
        }
        // Behind what we have: gone in a table that we know whole, and where newer entries leave no room for it.
        let room = self.capacity.is_none_or(|capacity| self.least + OVERHEAD <= capacity);
        let has_all = self.capacity.is_some_and(|capacity| capacity <= MAX_SIZE);
        if self.oldest.is_some_and(|oldest| has_all || ordinal < oldest) || !room {
            return Err(Error::Index);
        }
        Ok((ordinal, self.learnt.get(&ordinal).cloned().unwrap_or_default()))
    }

    /// Adds an entry of at least `least` bytes of text; gives its ordinal.
    pub(super) fn insert(&mut self, entry: Entry, least: u64) -> u64 {
        let ordinal = self.next;
        self.next += 1;
        self.least += least + OVERHEAD;
        self.entries.push_front(Sized { entry, least: least + OVERHEAD });
        self.evict();
        ordinal
    }

    /// The encoder's table has another size from here on.
    pub(super) fn resize(&mut self, capacity: u64) {
        self.capacity = Some(capacity);
        if capacity < OVERHEAD {
            self.entries.clear();
            self.least = 0;
            self.oldest = Some(self.next);
        }
        self.evict();
    }

    /// From now on, and as long as it is in the table, the entry of an ordinal is known.
    pub(super) fn learn(&mut self, ordinal: u64, entry: Entry) {
        let offset = self.next.checked_sub(1).and_then(|newest| newest.checked_sub(ordinal));
        let Some(offset) = offset.and_then(|at| usize::try_from(at).ok()) else { return };
        if let Some(found) = self.entries.get_mut(offset) {
            found.entry = entry;
        } else if self.learnt.len() < MAX_LEARNT {
            self.learnt.insert(ordinal, entry);
        }
    }

    /// Drops what the encoder has certainly dropped, and what is more than we keep.
    fn evict(&mut self) {
        let limit = self.capacity.unwrap_or(MAX_SIZE).min(MAX_SIZE);
        while self.least > limit {
            let Some(oldest) = self.entries.pop_back() else { break };
            self.least -= oldest.least;
            if self.capacity.is_some() {
                self.learnt.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &str) -> Entry {
        Entry { name: Some("n".into()), value: Some(value.into()) }
    }

    /// What is older than us keeps its ordinal while others come, and what was learnt of it.
    #[test]
    fn ordinals_do_not_move() {
        let mut table = Table::late();
        let (old, unknown) = table.get(3).unwrap();
        assert_eq!((old, unknown), (JOIN - 4, Entry::default()));
        table.learn(old, entry("a"));
        for number in 0..100 {
            assert_eq!(table.get(3 + number).unwrap(), (old, entry("a")));
            table.insert(entry("b"), 2);
        }
        assert_eq!(table.get(99).unwrap(), (JOIN, entry("b")));
    }

    /// A whole table has no more than its size, which the encoder may change.
    #[test]
    fn a_whole_table_forgets() {
        let mut table = Table::new();
        assert_eq!(table.get(0), Err(Error::Index));
        for _ in 0..200 {
            table.insert(entry("b"), 32);
        }
        assert!(table.get(63).is_ok());
        assert_eq!(table.get(64), Err(Error::Index));
        table.resize(128);
        assert!(table.get(1).is_ok());
        assert_eq!(table.get(2), Err(Error::Index));
        table.resize(0);
        assert_eq!(table.get(0), Err(Error::Index));
        // Larger than what we keep: what was never there still is not.
        table.resize(1 << 20);
        assert_eq!(table.get(0), Err(Error::Index));
    }

    /// As soon as the size of a table that was joined late is known, it has an end too.
    #[test]
    fn a_late_table_with_a_size_has_an_end() {
        let mut table = Table::late();
        table.learn(JOIN - 1, entry("a"));
        table.resize(4096);
        for _ in 0..63 {
            table.insert(entry("b"), 32);
        }
        assert_eq!(table.get(63).unwrap(), (JOIN - 1, entry("a")));
        table.insert(entry("b"), 32);
        assert_eq!(table.get(64), Err(Error::Index));
    }
}
