//! Work on several things at once: so many lanes, each of which takes the next thing as soon as it is free.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does the work on all items, so many at once; results in the order of the items.
pub(crate) fn in_lanes<T: Sync, R: Send>(items: &[T], lanes: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let lane = || {
        let taken = std::iter::from_fn(|| {
            let index = next.fetch_add(1, Ordering::Relaxed);
            Some((index, items.get(index)?))
        });
        taken.map(|(index, item)| (index, work(item))).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes.clamp(1, items.len().max(1))).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("the thread of a lane does not panic")).collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Two run at once, all are done, the order is kept.
    #[test]
    fn lanes_keep_the_order() {
        let both = Barrier::new(2);
        let twice = |item: &u32| {
            both.wait();
            2 * item
        };
        assert_eq!(in_lanes(&[1, 2, 3, 4], 2, twice), [2, 4, 6, 8]);
        assert_eq!(in_lanes(&[5], 9, |item| item + 1), [6]);
        assert_eq!(in_lanes(&[] as &[u32], 3, |item| *item), [0; 0]);
    }
}
