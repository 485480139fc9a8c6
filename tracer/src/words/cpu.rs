//! What a daemon got of the processors.

use super::{LONG, cut, human};
use crate::{
    correlate::CpuShare,
    input::{QuotaFact, RunnerFact},
};

/// `containerd 812 ran 231 ms in 15.0 s and waited 13.4 s for a CPU (all threads together)`.
#[must_use]
pub fn cpu_share(share: &CpuShare) -> String {
    format!(
        "{} {} ran {} in {} and waited {} for a CPU (all threads together)",
        share.component.name(),
        share.pid,
        human::duration(share.ran_ns),
        human::duration(share.over_ns),
        human::duration(share.waited_ns),
    )
}

/// `sh 4711 ran 9.8 s, make 4712 ran 300 ms`.
#[must_use]
pub fn runners(runners: &[RunnerFact]) -> String {
    let one = |runner: &RunnerFact| format!("{} ran {}", runner_name(runner), human::duration(runner.ran_ns));
    let all: Vec<String> = runners.iter().map(one).collect();
    all.join(", ")
}

/// `sh 4711`, or `sh 4711 and the programs that it starts`, when most of the time was theirs.
#[must_use]
pub fn runner_name(runner: &RunnerFact) -> String {
    let starts = runner.started_ns > runner.ran_ns / 2;
    let more = if starts { " and the programs that it starts" } else { "" };
    format!("{} {}{more}", cut(&runner.comm, 16), runner.pid)
}

/// `1.5 % of one CPU`.
#[must_use]
pub fn quota(quota: &QuotaFact) -> String {
    format!("{} of one CPU", human::percent(quota.quota_ns, quota.period_ns))
}

/// `throttled in 132 of 150 periods, for 13.2 s of 15.0 s, by the quota of … (1.5 % of one CPU)`.
#[must_use]
pub fn throttled(fact: &QuotaFact, over_ns: u64) -> String {
    format!(
        "throttled in {} of {} periods, for {} of {}, by the quota of {} ({})",
        human::count(fact.throttled),
        human::count(fact.periods),
        human::duration(fact.throttled_ns),
        human::duration(over_ns),
        cut(&fact.path, LONG),
        quota(fact),
    )
}
