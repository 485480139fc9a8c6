//! Per-CPU counters → sums.

use plegtrace_common::{
    hist::BUCKETS,
    key::HookStats,
    reason::{Reason, Weight},
};

use super::{error::KernelError, load::Kernel};
use crate::input::{HookCounters, LossCount};

impl Kernel {
    /// Why hits led to nothing since the start; zero counts are left out.
    ///
    /// # Errors
    ///
    /// The map cannot be read, or the programs cannot be asked about.
    pub fn reasons(&self) -> Result<Vec<LossCount>, KernelError> {
        let mut counts = Vec::new();
        for reason in Reason::ALL {
            let values = self
                .reasons
                .get(&(reason as u32), 0)
                .map_err(|source| KernelError::Map { map: "REASONS", source })?;
            let count = values.iter().sum();
            if count > 0 {
                counts.push(LossCount {
                    stage: "kernel".to_owned(),
                    reason: reason.name().to_owned(),
                    sentence: reason.sentence().to_owned(),
                    count,
                    is_loss: reason.weight() == Weight::Loss,
                });
            }
        }
        counts.extend(self.missed_runs()?);
        Ok(counts)
    }

    /// System calls of the whole machine since the programs of family `wire` were attached.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn system_calls(&self) -> Result<u64, KernelError> {
        let values = self.system_calls.get(&0, 0);
        let values = values.map_err(|source| KernelError::Map { map: "SYSTEM_CALLS", source })?;
        Ok(values.iter().sum())
    }

    /// What the hooks `0..hooks` measured since the start; hooks that never fired are left out.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn counters(&self, hooks: u32) -> Result<Vec<HookCounters>, KernelError> {
        let mut out = Vec::new();
        for hook in 0..hooks {
            let values =
                self.hooks.get(&hook, 0).map_err(|source| KernelError::Map { map: "HOOKS", source })?;
            let sum = sum(hook, values.iter().map(|v| &v.0));
            if sum.hits > 0 {
                out.push(sum);
            }
        }
        Ok(out)
    }
}

fn sum<'a>(hook: u32, per_cpu: impl Iterator<Item = &'a HookStats>) -> HookCounters {
    let mut total = HookCounters { hook, buckets: vec![0; BUCKETS], ..HookCounters::default() };
    for cpu in per_cpu {
        total.hits += cpu.hits;
        total.calls += cpu.calls;
        total.failed += cpu.failed;
        total.unmatched += cpu.unmatched;
        total.sum_ns += cpu.sum_ns;
        total.max_ns = total.max_ns.max(cpu.max_ns);
        for (to, from) in total.buckets.iter_mut().zip(cpu.buckets) {
            *to += from;
        }
    }
    let used = total.buckets.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
    // The kernel side gives up raising a maximum when others on its CPU keep raising it.
    total.max_ns = total.max_ns.max(used.checked_sub(1).map_or(0, shortest_in));
    total.buckets.truncate(used);
    total
}

/// The shortest duration that a bucket holds, nanoseconds.
fn shortest_in(bucket: usize) -> u64 {
    if bucket == 0 { 0 } else { 1 << bucket }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A maximum is never below the bucket of the longest call.
    #[test]
    fn the_maximum_is_in_the_last_bucket() {
        let mut stats = HookStats {
            hits: 1,
            calls: 1,
            failed: 0,
            unmatched: 0,
            sum_ns: 1500,
            max_ns: 70,
            buckets: [0; BUCKETS],
        };
        stats.buckets[plegtrace_common::hist::bucket(1500)] = 1;
        assert_eq!(sum(0, [&stats].into_iter()).max_ns, 1024);
        stats.max_ns = 1500;
        assert_eq!(sum(0, [&stats].into_iter()).max_ns, 1500);
    }

    /// CPUs add up, the maximum is the largest, empty buckets at the end go.
    #[test]
    fn cpus_add_up() {
        let mut a = HookStats {
            hits: 1,
            calls: 1,
            failed: 0,
            unmatched: 0,
            sum_ns: 5,
            max_ns: 5,
            buckets: [0; BUCKETS],
        };
        a.buckets[2] = 1;
        let b = HookStats { max_ns: 9, ..a };
        let total = sum(3, [&a, &b].into_iter());
        assert_eq!((total.hook, total.calls, total.sum_ns, total.max_ns), (3, 2, 10, 9));
        assert_eq!(total.buckets, [0, 0, 2]);
    }
}
