//! Learning what table entries older than us mean, from a teacher that knows what a few streams were.
//!
//! A teacher (a uprobe, or the goroutine of a stream) says: *this stream was method X*. One of the entries without
//! content that its header block refers to is then `:path: X`. Which one follows from what was taught before: an entry in
//! the blocks of two methods is the path of neither. When one entry is left it is known for good; and a block that refers
//! to all entries that are left is X whichever of them it is. Nothing else is concluded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Most blocks that are remembered; the oldest go.
const MAX_TAUGHT: usize = 128;
/// Most entries that are remembered.
const MAX_ENTRIES: usize = 4096;

/// What was taught about the entries of one table.
#[derive(Debug, Default)]
pub struct Lessons {
    /// The value in whose blocks an entry was seen; `None` for more than one.
    owners: BTreeMap<u64, Option<Arc<str>>>,
    taught: VecDeque<Taught>,
    /// Entries that were certain before.
    told: BTreeSet<u64>,
}

#[derive(Debug, PartialEq, Eq)]
struct Taught {
    value: Arc<str>,
    /// Entries without content, ascending.
    among: Vec<u64>,
}

/// That what was taught cannot all be true of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction;

impl Lessons {
    /// A block with the entries `among` without content has the field with this value as one of them. Gives all entries of
    /// which that is now certain, with their values.
    ///
    /// # Errors
    ///
    /// When no entry can be it.
    pub fn teach(&mut self, value: &Arc<str>, among: &[u64]) -> Result<Vec<(u64, Arc<str>)>, Contradiction> {
        let mut among = among.to_vec();
        among.sort_unstable();
        among.dedup();
        for entry in &among {
            if !self.owners.contains_key(entry) && self.owners.len() >= MAX_ENTRIES {
                self.owners.pop_first();
            }
            let owner = self.owners.entry(*entry).or_insert_with(|| Some(Arc::clone(value)));
            if owner.as_ref().is_some_and(|owner| owner != value) {
                *owner = None;
            }
        }
        let taught = Taught { value: Arc::clone(value), among };
        if !self.taught.contains(&taught) {
            if self.taught.len() >= MAX_TAUGHT {
                self.taught.pop_front();
            }
            self.taught.push_back(taught);
        }
        let mut certain = BTreeMap::new();
        for taught in &self.taught {
            match self.left(taught).as_slice() {
                [] => return Err(Contradiction),
                [entry] => _ = certain.insert(*entry, Arc::clone(&taught.value)),
                _ => {}
            }
        }
        Ok(certain.into_iter().collect())
    }

    /// Those of `certain` that were not before; at most as many as entries are remembered.
    pub fn news(&mut self, certain: &[(u64, Arc<str>)]) -> impl Iterator<Item = (u64, Arc<str>)> {
        let room = MAX_ENTRIES.saturating_sub(self.told.len());
        let news: Vec<_> =
            certain.iter().filter(|(entry, _)| !self.told.contains(entry)).take(room).cloned().collect();
        self.told.extend(news.iter().map(|(entry, _)| *entry));
        news.into_iter()
    }

    /// The value of a block with these entries, when it is certain.
    #[must_use]
    pub fn value_of(&self, among: &[u64]) -> Option<&Arc<str>> {
        let holds = |taught: &&Taught| {
            let left = self.left(taught);
            !left.is_empty() && left.iter().all(|entry| among.contains(entry))
        };
        let mut values = self.taught.iter().filter(holds).map(|taught| &taught.value);
        let first = values.next()?;
        values.all(|other| other == first).then_some(first)
    }

    /// Whether an entry was in the blocks of two values, so that it is neither.
    #[must_use]
    pub fn is_common(&self, entry: u64) -> bool {
        self.owners.get(&entry).is_some_and(Option::is_none)
    }

    /// What can still be the field of a taught block.
    fn left(&self, taught: &Taught) -> Vec<u64> {
        taught.among.iter().copied().filter(|entry| !self.is_common(*entry)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Arc<str> {
        text.into()
    }

    /// Two methods whose blocks share all but the path: both paths are known.
    #[test]
    fn what_two_methods_share_is_no_path() {
        let mut lessons = Lessons::default();
        assert_eq!(lessons.teach(&value("A"), &[5, 1, 2]), Ok(vec![]));
        assert_eq!(lessons.value_of(&[1, 2, 5, 9]).map(|value| &**value), Some("A"));
        assert_eq!(lessons.value_of(&[1, 2, 6]), None, "5 may be the path");
        let known = lessons.teach(&value("B"), &[6, 1, 2]).unwrap();
        assert_eq!(known, [(5, value("A")), (6, value("B"))]);
        assert_eq!(lessons.value_of(&[6, 40]).map(|value| &**value), Some("B"));
        assert_eq!(lessons.value_of(&[1, 2]), None);
        assert!(lessons.is_common(1) && !lessons.is_common(5));
    }

    /// The same block as two methods: one of the two lessons is wrong, or the table is.
    #[test]
    fn contradictions_are_seen() {
        let mut lessons = Lessons::default();
        lessons.teach(&value("A"), &[1, 2]).unwrap();
        assert_eq!(lessons.teach(&value("B"), &[1, 2]), Err(Contradiction));
        assert_eq!(Lessons::default().teach(&value("A"), &[]), Err(Contradiction));
    }
}
