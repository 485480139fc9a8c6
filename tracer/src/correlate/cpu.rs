//! [`CpuState`]: readings of processor time → what each daemon got of the last minute ([`CpuShare`]).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

use super::traced::TracedProcess;
use crate::{
    decode::MonoNs,
    input::{Component, CpuFact, DaemonCpu, QuotaFact, RunnerFact, Weight},
};

/// Readings of so long ago are forgotten, …
const RECENT_NS: u64 = 60_000_000_000;
/// … and those beyond this number.
const READINGS: usize = 128;
/// Processes and cgroups of a reading that are kept.
const DAEMONS: usize = 64;
/// Processes that ran meanwhile, of a reading and of all.
const RUNNERS: usize = 5;

/// What the daemons of the node got of its processors lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// One entry per daemon that was looked at twice.
    pub daemons: Vec<CpuShare>,
    /// For how long some task of the node waited for a processor, and of how long that was; `None`: not known.
    pub pressure: Option<(u64, u64)>,
    /// Who ran most while a daemon waited for one, the most first, with the times of all readings.
    pub runners: Vec<RunnerFact>,
}

/// What one daemon got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuShare {
    /// Process.
    pub pid: u32,
    /// What it is.
    pub component: Component,
    /// Between two looks that lie so far apart, nanoseconds …
    pub over_ns: u64,
    /// … its threads ran for so long, added up; a lower bound.
    pub ran_ns: u64,
    /// They were ready and waited for a processor for so long, added up; a lower bound.
    pub waited_ns: u64,
    /// The quotas over it, with what happened between the looks.
    pub quotas: Vec<QuotaFact>,
}

/// The readings that are kept, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuState(VecDeque<CpuFact>);

impl CpuState {
    /// What the readings that are kept take, bytes.
    pub(super) fn bytes(&self) -> usize {
        Weight::sum(&self.0)
    }

    /// Takes a reading; one that is older than the last is ignored.
    pub(super) fn push(&mut self, mut fact: CpuFact) {
        if self.0.back().is_some_and(|last| last.at_ns >= fact.at_ns) {
            return;
        }
        fact.daemons.truncate(DAEMONS);
        fact.runners.truncate(RUNNERS);
        fact.daemons.iter_mut().for_each(|daemon| daemon.quotas.truncate(DAEMONS));
        let since = fact.at_ns.saturating_sub(RECENT_NS);
        self.0.push_back(fact);
        while self.0.len() > READINGS || self.0.front().is_some_and(|first| first.at_ns < since) {
            self.0.pop_front();
        }
    }

    /// All of them, to be told again.
    pub(super) fn readings(&self) -> impl Iterator<Item = &CpuFact> {
        self.0.iter()
    }

    /// What came of it.
    pub(super) fn view(&self, targets: &BTreeMap<u32, TracedProcess>) -> Cpu {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else { return Cpu::default() };
        let share = |now: &DaemonCpu| {
            let component = targets.get(&now.pid)?.fact.component;
            let since = |fact: &CpuFact| fact.daemons.iter().find(|it| it.pid == now.pid).cloned();
            let (at, before) = self.0.iter().find_map(|fact| Some((MonoNs(fact.at_ns), since(fact)?)))?;
            let over_ns = MonoNs(last.at_ns).since(at);
            (over_ns > 0).then(|| CpuShare {
                pid: now.pid,
                component,
                over_ns,
                ran_ns: now.ran_ns.saturating_sub(before.ran_ns),
                waited_ns: now.waited_ns.saturating_sub(before.waited_ns),
                quotas: now.quotas.iter().filter_map(|quota| self.since(now.pid, quota)).collect(),
            })
        };
        let over_ns = last.at_ns.saturating_sub(first.at_ns);
        let waited = last.pressure_ns.zip(first.pressure_ns).map(|(now, then)| now.saturating_sub(then));
        Cpu {
            daemons: last.daemons.iter().filter_map(share).collect(),
            pressure: waited.filter(|_| over_ns > 0).map(|waited| (waited, over_ns)),
            runners: self.runners(),
        }
    }

    /// Those of all readings.
    fn runners(&self) -> Vec<RunnerFact> {
        let mut all: BTreeMap<(u32, &str), RunnerFact> = BTreeMap::new();
        for runner in self.0.iter().flat_map(|fact| &fact.runners) {
            let key = (runner.pid, runner.comm.as_str());
            let sum =
                all.entry(key).or_insert_with(|| RunnerFact { ran_ns: 0, started_ns: 0, ..runner.clone() });
            sum.ran_ns += runner.ran_ns;
            sum.started_ns += runner.started_ns;
        }
        let mut all: Vec<RunnerFact> = all.into_values().collect();
        all.sort_by_key(|runner| (Reverse(runner.ran_ns), runner.pid));
        all.truncate(RUNNERS);
        all
    }

    /// A quota with what its counters grew by since the first reading that has it.
    fn since(&self, pid: u32, now: &QuotaFact) -> Option<QuotaFact> {
        let of = |fact: &CpuFact| {
            let daemon = fact.daemons.iter().find(|daemon| daemon.pid == pid)?;
            daemon.quotas.iter().find(|quota| quota.path == now.path).cloned()
        };
        let before = self.0.iter().find_map(of)?;
        Some(QuotaFact {
            periods: now.periods.saturating_sub(before.periods),
            throttled: now.throttled.saturating_sub(before.throttled),
            throttled_ns: now.throttled_ns.saturating_sub(before.throttled_ns),
            ..now.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{correlate::traced::TracedState, input::TargetFact};

    const S: u64 = 1_000_000_000;

    fn reading(second: u64, throttled: u64) -> CpuFact {
        let quota = QuotaFact { path: "/g".into(), throttled, periods: 10 * second, ..QuotaFact::default() };
        let sums = (second * 1000, second * 10);
        let daemon =
            DaemonCpu { pid: 7, ran_ns: sums.0, waited_ns: sums.1, quotas: vec![quota], ..<_>::default() };
        CpuFact {
            at_ns: second * S,
            daemons: vec![daemon],
            pressure_ns: Some(second * 5),
            ..CpuFact::default()
        }
    }

    fn targets() -> BTreeMap<u32, TracedProcess> {
        let fact = TargetFact {
            component: Component::Containerd,
            pid: 7,
            started_ns: None,
            exe: String::new(),
            version: None,
            go_version: None,
            socket: None,
            unproved: false,
        };
        BTreeMap::from([(7, TracedProcess { fact, seen: MonoNs(0), state: TracedState::Live })])
    }

    /// Shares are of the time between two looks; a quota that shows later counts from then on.
    #[test]
    fn differences() {
        let mut state = CpuState::default();
        assert_eq!(state.view(&targets()), Cpu::default());
        let mut first = reading(3, 0);
        first.daemons[0].quotas.clear();
        state.push(first);
        assert!(state.view(&targets()).daemons.is_empty(), "one look is none");
        state.push(reading(5, 20));
        state.push(reading(9, 25));
        state.push(reading(8, 99));
        let cpu = state.view(&targets());
        let share = &cpu.daemons[0];
        assert_eq!((share.over_ns, share.ran_ns, share.waited_ns), (6 * S, 6000, 60));
        assert_eq!((share.quotas[0].throttled, share.quotas[0].periods), (5, 40));
        assert_eq!(cpu.pressure, Some((30, 6 * S)));
        assert!(state.view(&BTreeMap::new()).daemons.is_empty(), "what is no target is left out");
    }

    /// Only the last minute counts, and readings are bounded.
    #[test]
    fn old_readings_go() {
        let mut state = CpuState::default();
        (0..500).for_each(|second| state.push(reading(second, second)));
        assert_eq!(state.0.len(), 61);
        assert_eq!(state.view(&targets()).daemons[0].over_ns, 60 * S);
        (0..1000).for_each(|n| state.push(CpuFact { at_ns: 500 * S + n, ..CpuFact::default() }));
        assert_eq!(state.0.len(), READINGS);
    }
}
