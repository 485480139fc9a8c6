//! How long the threads of a process have waited for a CPU: what others on the machine cost it, and no doing of its own.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Of each thread, by its number.
#[derive(Clone, Debug, Default)]
pub struct RunDelays(BTreeMap<u32, Duration>);

impl RunDelays {
    /// Up to now; empty when the process is gone.
    #[must_use]
    pub fn of(pid: u32) -> RunDelays {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let delays = threads.filter_map(|thread| {
            let tid = thread.file_name().to_str()?.parse().ok()?;
            Some((tid, waited(&fs::read_to_string(thread.path().join("schedstat")).ok()?)?))
        });
        RunDelays(delays.collect())
    }

    /// What the thread that waited longest waited between `before` and this: so long, at least, all of them together took longer.
    #[must_use]
    pub fn longest_since(&self, before: &RunDelays) -> Duration {
        let grown = self
            .0
            .iter()
            .map(|(tid, now)| now.saturating_sub(before.0.get(tid).copied().unwrap_or_default()));
        grown.max().unwrap_or_default()
    }
}

/// The second number, in nanoseconds (Documentation/scheduler/sched-stats.rst).
fn waited(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each thread by itself: what two of them wait at the same time does not count twice.
    #[test]
    fn the_thread_that_waited_longest() {
        let delays = |all: &[(u32, u64)]| {
            RunDelays(all.iter().map(|&(tid, ms)| (tid, Duration::from_millis(ms))).collect())
        };
        let (before, after) = (delays(&[(1, 10), (2, 70)]), delays(&[(1, 30), (2, 75), (3, 15)]));
        assert_eq!(after.longest_since(&before), Duration::from_millis(20));
        assert_eq!(delays(&[]).longest_since(&before), Duration::ZERO);
        assert_eq!(waited("8000 2500 17\n"), Some(Duration::from_nanos(2500)));
        assert!(!RunDelays::of(std::process::id()).0.is_empty());
        assert!(RunDelays::of(u32::MAX).0.is_empty());
    }
}
