//! [`Lanes`]: room on the tracks of each process.

use std::collections::HashMap;

use crate::{decode::MonoNs, input::Component};

/// A lane of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// What the process is.
    pub component: Component,
    /// Its id.
    pub pid: u32,
    /// Which of its lanes, from 1 on.
    pub lane: usize,
}

/// What lies on a lane already: begins and ends, in no order.
type Taken = Vec<(MonoNs, MonoNs)>;

/// All lanes, and what lies on them.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    pub(super) tracks: Vec<Track>,
    taken: Vec<Taken>,
    of_process: HashMap<u32, Vec<usize>>,
}

impl Lanes {
    /// The first track of a process on which nothing lies in this interval.
    pub(super) fn place(&mut self, component: Component, pid: u32, from: MonoNs, to: MonoNs) -> usize {
        // What takes no time takes room.
        let to = to.max(from.plus(1));
        let own = self.of_process.entry(pid).or_default();
        let is_free =
            |track: &&usize| self.taken[**track].iter().all(|(start, end)| *end <= from || to <= *start);
        let track = own.iter().find(is_free).copied().unwrap_or_else(|| {
            let track = self.tracks.len();
            own.push(track);
            self.tracks.push(Track { component, pid, lane: own.len() });
            self.taken.push(Taken::new());
            track
        });
        self.taken[track].push((from, to));
        track
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What overlaps gets lanes of its own, what does not shares one; another process has other tracks.
    #[test]
    fn lanes_are_shared() {
        let mut lanes = Lanes::default();
        let mut place = |pid, from, to| lanes.place(Component::Kubelet, pid, MonoNs(from), MonoNs(to));
        assert_eq!([place(1, 0, 10), place(1, 5, 15), place(1, 10, 12), place(2, 0, 1)], [0, 1, 0, 2]);
        assert_eq!([place(1, 20, 20), place(1, 20, 20), place(1, 12, 20)], [0, 1, 0]);
        assert_eq!(lanes.tracks[1], Track { component: Component::Kubelet, pid: 1, lane: 2 });
    }
}
