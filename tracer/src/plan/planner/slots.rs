//! [`Slots`]: indexes into a table of the kernel side, each used by one thing at a time.

use std::collections::VecDeque;

/// Which indexes are in use.
#[derive(Debug)]
pub(super) struct Slots {
    /// Indexes from here on have never been used.
    next: u32,
    /// Indexes that were given back, the one that has rested longest first.
    free: VecDeque<u32>,
    most: u32,
}

impl Slots {
    /// A table with `most` places, all free.
    pub(super) fn new(most: u32) -> Self {
        Self { next: 0, free: VecDeque::new(), most }
    }

    /// From now on the table has `most` places, but no fewer than have been used.
    pub(super) fn limit(&mut self, most: u32) {
        self.most = most.max(self.next);
    }

    /// How many places it has.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// How many are free.
    pub(super) fn room(&self) -> usize {
        self.free.len() + (self.most - self.next) as usize
    }

    /// A free index; `None` when there is none. One that was used before comes first, so that the part of the table that
    /// is in use, and is read, stays short.
    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop_front() {
            return Some(index);
        }
        let fresh = (self.next < self.most).then_some(self.next)?;
        self.next += 1;
        Some(fresh)
    }

    /// Gives an index back that [`Self::take`] gave.
    pub(super) fn give_back(&mut self, index: u32) {
        debug_assert!(index < self.next && !self.free.contains(&index));
        self.free.push_back(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is given back is used again, the longest rested first; no index is ever given twice.
    #[test]
    fn indexes_are_used_again() {
        let mut slots = Slots::new(3);
        assert_eq!([(); 4].map(|()| slots.take()), [Some(0), Some(1), Some(2), None]);
        slots.give_back(2);
        slots.give_back(0);
        assert_eq!(slots.room(), 2);
        assert_eq!([(); 3].map(|()| slots.take()), [Some(2), Some(0), None]);
    }

    /// A table can become smaller, but keeps what is in use.
    #[test]
    fn a_smaller_table() {
        let mut slots = Slots::new(9);
        slots.take();
        slots.limit(2);
        assert_eq!([(); 2].map(|()| slots.take()), [Some(1), None]);
        slots.limit(1);
        assert_eq!((slots.most(), slots.room()), (2, 0));
    }
}
