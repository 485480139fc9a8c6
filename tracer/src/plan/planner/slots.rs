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
}
