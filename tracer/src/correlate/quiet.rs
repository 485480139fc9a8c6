//! [`Quiet`]: from when to when no probe on a relist was hit, as the counters of the kernel side tell. A relist that a look at the
//! goroutines finds in that time did not begin in it.

use crate::decode::MonoNs;

/// What is known of the probes on relists.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// They are on since then, all of them; `None`: they are not.
    since: Option<MonoNs>,
    /// What they had counted at the last reading.
    hits: Option<u64>,
    from: Option<MonoNs>,
    until: Option<MonoNs>,
}

impl Quiet {
    /// Other probes are on from now on, or none: what was known is of no use.
    pub(super) fn begin(&mut self, since: Option<MonoNs>) {
        *self = Self { since, ..Self::default() };
    }

    /// The counters were read, from `at` on: all the hits so far. They are those of the programs before, too, so a figure that stays
    /// says as much as zero does; but a hit may have come between the moment and the reading, so it counts from the second one on.
    pub(super) fn read(&mut self, at: MonoNs, hits: u64) {
        let Some(since) = self.since.filter(|since| *since <= at) else { return };
        match self.hits.replace(hits) {
            None if hits == 0 => (self.from, self.until) = (Some(since), Some(at)),
            Some(before) if before == hits => {
                self.from.get_or_insert(at);
                self.until = Some(at);
            }
            _ => (self.from, self.until) = (None, None),
        }
    }

    /// From when to when none was hit.
    pub(super) fn span(&self) -> Option<(MonoNs, MonoNs)> {
        self.from.zip(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found between these readings, each at its moment.
    fn told(since: u64, readings: &[(u64, u64)]) -> Option<(u64, u64)> {
        let mut quiet = Quiet::default();
        quiet.begin(Some(MonoNs(since)));
        readings.iter().for_each(|(at, hits)| quiet.read(MonoNs(*at), *hits));
        quiet.span().map(|(from, until)| (from.0, until.0))
    }

    /// Without a hit it is quiet since the probes are on; after one, from the second reading on that finds no other.
    #[test]
    fn figures_that_stay() {
        assert_eq!(told(5, &[]), None);
        assert_eq!(told(5, &[(7, 0)]), Some((5, 7)));
        assert_eq!(told(5, &[(7, 0), (8, 0)]), Some((5, 8)));
        assert_eq!(told(5, &[(7, 0), (8, 2)]), None);
        assert_eq!(told(5, &[(7, 40)]), None, "of a program before");
        assert_eq!(told(5, &[(7, 40), (8, 40), (9, 40)]), Some((8, 9)));
        assert_eq!(told(5, &[(7, 40), (8, 40), (9, 41), (10, 41)]), Some((10, 10)));
        assert_eq!(told(5, &[(4, 0)]), None, "they were not on");
    }

    /// What was known of other probes is forgotten.
    #[test]
    fn others() {
        let mut quiet = Quiet::default();
        quiet.read(MonoNs(1), 0);
        assert_eq!(quiet.span(), None);
        quiet.begin(Some(MonoNs(2)));
        quiet.read(MonoNs(3), 0);
        quiet.begin(Some(MonoNs(4)));
        assert_eq!(quiet.span(), None);
        quiet.begin(None);
        quiet.read(MonoNs(5), 0);
        assert_eq!(quiet.span(), None);
    }
}
