//! [`Frontier`]: how shallow a goroutine has been, to tell open calls from entries that a panic left behind.

use crate::decode::{Call, MonoNs};

/// Entries kept per goroutine; calls nest five levels deep at most.
const SLOTS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    depth: u32,
    start: MonoNs,
    end: MonoNs,
}

/// The finished calls of one goroutine that no shallower, later one makes superfluous.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frontier {
    slots: [Seen; SLOTS],
    len: usize,
}

impl Frontier {
    /// Adds a finished call.
    pub(super) fn add(&mut self, call: &Call) {
        if call.depth == 0 {
            return;
        }
        let new = Seen { depth: call.depth, start: call.start, end: call.end };
        let mut kept = Self::default();
        for seen in &self.slots[..self.len] {
            if seen.depth <= new.depth && seen.end >= new.end {
                return;
            }
            if !(new.depth <= seen.depth && new.end >= seen.end) {
                kept.slots[kept.len] = *seen;
                kept.len += 1;
            }
        }
        if kept.len == SLOTS {
            // Full: the deepest proves least.
            let deepest = (0..SLOTS).max_by_key(|&slot| kept.slots[slot].depth).unwrap_or(0);
            if kept.slots[deepest].depth > new.depth {
                kept.slots[deepest] = new;
            }
        } else {
            kept.slots[kept.len] = new;
            kept.len += 1;
        }
        *self = kept;
    }

    /// Is a call that started at `start` with `depth` bytes of stack in use certainly over?
    ///
    /// Yes when a shallower call returned after that start, or one in the same place began after it.
    pub(super) fn proves_over(&self, depth: u32, start: MonoNs) -> bool {
        let over = |seen: &Seen| {
            (seen.depth < depth && seen.end > start) || (seen.depth == depth && seen.start > start)
        };
        depth != 0 && self.slots[..self.len].iter().any(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(depth: u32, start: u64, end: u64) -> Call {
        let (start, end) = (MonoNs(start), MonoNs(end));
        Call {
            tgid: 1,
            goid: 1,
            hook: 0,
            depth,
            flags: 0,
            start,
            end,
            mark: None,
            parked: None,
            stream: None,
        }
    }

    /// A call is over when the one around it has returned.
    #[test]
    fn a_shallower_end_proves_it() {
        let mut frontier = Frontier::default();
        frontier.add(&call(100, 10, 50));
        assert!(frontier.proves_over(200, MonoNs(20)));
        assert!(!frontier.proves_over(200, MonoNs(60)), "it began after that return");
        assert!(!frontier.proves_over(50, MonoNs(20)), "it is the outer one");
    }

    /// A call is over when another one began in its place.
    #[test]
    fn the_same_place_proves_it() {
        let mut frontier = Frontier::default();
        frontier.add(&call(100, 30, 50));
        assert!(frontier.proves_over(100, MonoNs(20)));
        assert!(!frontier.proves_over(100, MonoNs(30)));
    }

    /// More calls than slots never prove too much.
    #[test]
    fn bounded() {
        let mut frontier = Frontier::default();
        for n in 0..100u32 {
            frontier.add(&call(100 + n, 10, 50 + u64::from(n)));
        }
        assert!(frontier.proves_over(101, MonoNs(20)));
        assert!(!frontier.proves_over(99, MonoNs(20)));
    }
}
