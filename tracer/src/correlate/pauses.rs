//! [`Pauses`]: when nothing on the machine ran although its clock went on, as while a hypervisor stops it. What was open then is no
//! older for it.
//!
//! CLOCK_MONOTONIC does not count a suspend, but a guest whose clock is the counter of its processor finds it ahead after a stop. Nothing
//! tells the guest. So it is taken for a pause only when three things agree: for long no record came and no reading of processor time was
//! made, and kubelet and runtime did not get what they get otherwise.

use std::collections::VecDeque;

use super::thresholds::SECOND_NS;
use crate::{decode::MonoNs, input::CpuFact};

/// Readings of processor time lie at most five seconds apart; a gap that is not longer than this is none.
const PAUSE_NS: u64 = 8 * SECOND_NS;
/// The order of records that lie so close together says nothing.
const CLOSE_NS: u64 = SECOND_NS;
/// Less than this, in the time of a gap, proves nothing: kubelet and runtime are idle.
const WORK_NS: u64 = 10_000_000;
/// Pauses and gaps that are kept.
const KEPT: usize = 16;

/// A time in which nothing ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The last sign of life before it.
    pub from: MonoNs,
    /// The first after it.
    pub to: MonoNs,
}

impl Pause {
    /// Its length, nanoseconds.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.to.since(self.from)
    }

    /// How much of it lies between two moments, nanoseconds.
    #[must_use]
    pub fn within(&self, from: MonoNs, to: MonoNs) -> u64 {
        self.to.min(to).since(self.from.max(from))
    }

    /// What ran then shows that it was shorter, or none: then it is left empty.
    fn lived(&mut self, at: MonoNs) {
        if at <= self.from || at >= self.to {
            return;
        }
        if at.since(self.from) <= CLOSE_NS {
            self.from = at;
        } else if self.to.since(at) <= CLOSE_NS {
            self.to = at;
        } else {
            self.to = self.from;
        }
    }
}

/// A reading: when, and how much daemons had run.
type Reading = (MonoNs, CpuFact);

/// The pauses so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// The last sign of life.
    alive: MonoNs,
    /// What the next reading decides.
    gaps: Vec<Pause>,
    last: Option<Reading>,
    /// What daemons ran for, and in what time, between the two readings before.
    usual: Option<(u64, u64)>,
    found: VecDeque<Pause>,
}

impl Pauses {
    /// Something ran at this moment.
    pub(super) fn lived(&mut self, at: MonoNs) {
        self.gaps.iter_mut().chain(&mut self.found).for_each(|pause| pause.lived(at));
        let is_gap = self.alive.0 > 0 && at.since(self.alive) > PAUSE_NS;
        if is_gap && self.gaps.len() < KEPT {
            self.gaps.push(Pause { from: self.alive, to: at });
        }
        self.alive = self.alive.max(at);
    }

    /// Processor time was read, which decides.
    pub(super) fn read(&mut self, fact: &CpuFact) {
        let at = MonoNs(fact.at_ns);
        if self.last.as_ref().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        self.lived(at);
        let since = self.last.as_ref().map(|(last, before)| (ran(before, fact), at.since(*last)));
        let gaps = std::mem::take(&mut self.gaps);
        let gaps = gaps.into_iter().filter(|gap| gap.ns() > PAUSE_NS);
        let paused: Vec<Pause> = gaps.filter(|gap| since.is_some_and(|now| self.stood(now, gap))).collect();
        // What daemons run for after a pause, or in an unusual time, is not usual.
        if paused.is_empty() {
            self.usual = since;
        }
        self.found.extend(paused);
        while self.found.len() > KEPT {
            self.found.pop_front();
        }
        self.last = Some((at, fact.clone()));
    }

    /// Have daemons run for less than they would have in half of the gap and the rest of the time?
    fn stood(&self, (ran, elapsed): (u64, u64), gap: &Pause) -> bool {
        let Some((usual, of)) = self.usual else { return false };
        let in_time = |ns: u64| u64::try_from(u128::from(usual) * u128::from(ns) / u128::from(of.max(1)));
        let expected = in_time(elapsed.saturating_sub(gap.ns() / 2)).unwrap_or(u64::MAX);
        in_time(gap.ns()).unwrap_or(u64::MAX) >= WORK_NS && ran < expected
    }

    /// Those that were found, oldest first.
    pub(super) fn found(&self) -> Vec<Pause> {
        self.found.iter().filter(|pause| pause.ns() > PAUSE_NS).copied().collect()
    }
}

/// How long the daemons of both readings ran between them.
fn ran(before: &CpuFact, now: &CpuFact) -> u64 {
    let one = |now: &crate::input::DaemonCpu| {
        let before = before.daemons.iter().find(|daemon| daemon.pid == now.pid)?;
        Some(now.ran_ns.saturating_sub(before.ran_ns))
    };
    now.daemons.iter().filter_map(one).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::DaemonCpu;

    const S: u64 = SECOND_NS;

    fn reading(at: u64, ran_ns: u64) -> CpuFact {
        let daemons = vec![DaemonCpu { pid: 7, ran_ns, ..DaemonCpu::default() }];
        CpuFact { at_ns: at * S, daemons, ..CpuFact::default() }
    }

    /// Readings each second, with the processor time of a daemon in them.
    fn pauses(readings: &[(u64, u64)], records: &[u64]) -> Vec<(u64, u64)> {
        let mut pauses = Pauses::default();
        readings.iter().for_each(|(at, ran)| pauses.read(&reading(*at, *ran)));
        records.iter().for_each(|at| pauses.lived(MonoNs(*at * S)));
        pauses.found().iter().map(|pause| (pause.from.0 / S, pause.to.0 / S)).collect()
    }

    /// A gap in which nothing ran is a pause; one in which daemons ran, or of which a record tells, is not; nor is a short one.
    #[test]
    fn a_gap_in_which_nothing_ran() {
        let ms = 1_000_000;
        let before = [(1, 0), (2, 50 * ms), (3, 100 * ms)];
        let then = |at, ran| [&before[..], &[(at, ran)]].concat();
        assert_eq!(pauses(&then(63, 150 * ms), &[]), [(3, 63)]);
        assert_eq!(pauses(&then(63, 3_100 * ms), &[]), [], "they ran all the time");
        assert_eq!(pauses(&then(63, 150 * ms), &[30]), [], "a record of that time came late");
        assert_eq!(pauses(&then(11, 150 * ms), &[]), [], "readings may lie so far apart");
        assert_eq!(pauses(&[(1, 0), (63, 0)], &[]), [], "what is usual is not known");
        assert_eq!(pauses(&[(1, 0), (2, 0), (63, 0)], &[]), [], "idle daemons prove nothing");
    }
}
