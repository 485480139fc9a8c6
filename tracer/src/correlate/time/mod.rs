//! [`TimeTable`]: where the time of relists, or of requests, goes: one row per [`Place`]. The rows add up to the whole
//! to the nanosecond; what no measured interval covers is a row of its own.

mod collect;
mod place;

use std::cmp::Reverse;

use super::latency::Latency;
use crate::{
    decode::MonoNs,
    span::{Span, leaves},
};

pub(super) use collect::request_time;
pub use place::{Doing, Place};

/// Rows of a table; programs beyond are not told apart.
const ROWS: usize = 32;

/// Where the time of some relists or requests went.
#[derive(Clone, Debug, Default)]
pub struct TimeTable {
    /// How many.
    pub count: u64,
    /// Of these, how many have not ended.
    pub open: u64,
    /// Their lengths together; open ones up to the moment of the table.
    pub wall_ns: u64,
    /// The parts of which that is the sum, the largest first.
    pub rows: Vec<TimeRow>,
}

/// One part.
#[derive(Clone, Debug)]
pub struct TimeRow {
    /// Where.
    pub place: Place,
    /// All of it.
    pub sum_ns: u64,
    /// What it took of those that came there at all.
    per: Latency,
}

/// Where the time of the slowest requests went.
#[derive(Clone, Debug)]
pub struct RequestTime {
    /// Their operation.
    pub operation: String,
    /// The longest of them.
    pub table: TimeTable,
}

impl TimeTable {
    /// Of these trees.
    pub fn of<'a>(roots: impl Iterator<Item = &'a Span>, now: MonoNs) -> Self {
        let mut table = Self::default();
        roots.for_each(|root| table.add(root, now));
        table.sort();
        table
    }

    /// Adds a tree.
    pub(super) fn add(&mut self, root: &Span, now: MonoNs) {
        let mut parts: Vec<(Place, u64)> = Vec::new();
        for span in root.walk() {
            for leaf in leaves(span, now) {
                let place = Place::of(span, &leaf);
                match parts.iter_mut().find(|(other, _)| *other == place) {
                    Some((_, ns)) => *ns += leaf.ns,
                    None => parts.push((place, leaf.ns)),
                }
            }
        }
        self.count += 1;
        self.open += u64::from(root.is_open());
        self.wall_ns += root.duration_ns(now);
        for (place, ns) in parts.into_iter().filter(|(_, ns)| *ns > 0) {
            let row = self.row(place);
            row.sum_ns += ns;
            row.per.record(ns);
        }
    }

    /// The row of a place; where there is no room for it, that of the next best.
    fn row(&mut self, place: Place) -> &mut TimeRow {
        let known = |place: &Place| self.rows.iter().position(|row| row.place == *place);
        // The last row is kept for what is not told apart any more.
        let room = self.rows.len() + 1 < ROWS;
        let coarse = Place { program: None, ..place.clone() };
        let usable = |place: &Place| room || known(place).is_some();
        let place = [place, coarse].into_iter().find(usable).unwrap_or(Place::UNEXPLAINED);
        let at = known(&place).unwrap_or(self.rows.len());
        if at == self.rows.len() {
            self.rows.push(TimeRow { place, sum_ns: 0, per: Latency::default() });
        }
        &mut self.rows[at]
    }

    fn sort(&mut self) {
        self.rows.sort_by(|a, b| (Reverse(a.sum_ns), &a.place).cmp(&(Reverse(b.sum_ns), &b.place)));
    }

    /// What a part takes in a share `q` of all relists or requests at most: 0 where that many never come there.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a rank among a few million at most")]
    pub fn quantile_ns(&self, row: &TimeRow, q: f64) -> u64 {
        let (all, there) = (self.count as f64, row.per.count() as f64);
        let without = all - there;
        let rank = (q * all).ceil().max(1.0);
        if rank <= without || there == 0.0 {
            return 0;
        }
        row.per.quantile_ns((rank - without) / there).unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
