//! [`Runners`]: who has the processors while kubelet or runtime wait for one. Only then are all processes asked, each with one
//! short line of `/proc/PID/stat`, which waits for nobody: their cgroups would.
//!
//! A program that starts many short ones runs for next to nothing itself, and they are gone at each look. What they took is added to
//! it when it has waited for them.

use std::{cmp::Reverse, collections::HashMap, path::Path};

use super::{
    cpu::text,
    text::{Ran, ran_ticks},
};
use crate::{
    input::RunnerFact,
    target::{clock_ticks, ticks_to_ns},
};

/// Processes that are asked; of a node with more, the first of `/proc`.
const PROCESSES: usize = 8192;
/// Processes that are reported.
const TOLD: usize = 5;

/// What each process had run at the last look.
#[derive(Debug, Default)]
pub(super) struct Runners(HashMap<u32, Ran>);

impl Runners {
    /// Who ran most since the last look; nobody at the first one.
    pub(super) fn look(&mut self, proc: &Path) -> Vec<RunnerFact> {
        let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let one = |pid: u32| Some((pid, ran_ticks(&text(&proc.join(pid.to_string()).join("stat"))?)?));
        let now: HashMap<u32, Ran> = pids.take(PROCESSES).filter_map(one).collect();
        let told_before = self.told_before(&now);
        let mut ran = Vec::new();
        for (pid, seen) in &now {
            let Some(before) = self.0.get(pid) else { continue };
            let told = told_before.get(pid).copied().unwrap_or(0);
            let started = seen.ended.saturating_sub(before.ended).saturating_sub(told);
            let grown = seen.own.saturating_sub(before.own).saturating_add(started);
            if grown > 0 {
                ran.push((grown, started, *pid, &seen.comm));
            }
        }
        ran.sort_by_key(|(ticks, _, pid, _)| (Reverse(*ticks), *pid));
        let ns = |ticks| ticks_to_ns(ticks, clock_ticks());
        let fact = |(ticks, started, pid, comm): (u64, u64, u32, &String)| RunnerFact {
            pid,
            comm: comm.clone(),
            ran_ns: ns(ticks),
            started_ns: ns(started),
        };
        let told = ran.into_iter().take(TOLD).map(fact).collect();
        self.0 = now;
        told
    }

    /// By parent, what those of its children had run at the last look that have ended since: that is in its sum now, too.
    fn told_before(&self, now: &HashMap<u32, Ran>) -> HashMap<u32, u64> {
        let mut told: HashMap<u32, u64> = HashMap::new();
        for (_, gone) in self.0.iter().filter(|(pid, _)| !now.contains_key(pid)) {
            let sum = told.entry(gone.parent).or_default();
            *sum = sum.saturating_add(gone.own).saturating_add(gone.ended);
        }
        told
    }

    /// Nobody waits: the next look is a first one.
    pub(super) fn rest(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A tick is a hundredth of a second.
    const TICK_NS: u64 = 10_000_000;

    fn stat(proc: &Path, pid: u32, parent: u32, own: u64, ended: u64) {
        let line = format!("{pid} (p{pid}) S {parent} 1 1 0 -1 0 0 0 0 0 {own} 0 {ended} 0 20 0 1 0 100\n");
        fs::create_dir_all(proc.join(pid.to_string())).unwrap();
        fs::write(proc.join(pid.to_string()).join("stat"), line).unwrap();
    }

    /// Who starts many short programs ran for as long as they did; what a long one took before it ended was told as its own.
    #[test]
    fn short_programs_count_for_who_starts_them() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path();
        let mut runners = Runners::default();
        let seen = |told: Vec<RunnerFact>| -> Vec<_> {
            told.into_iter().map(|it| (it.pid, it.ran_ns / TICK_NS, it.started_ns / TICK_NS)).collect()
        };
        for (pid, parent, own, ended) in [(7, 1, 10, 0), (8, 1, 5, 50), (9, 8, 300, 20), (10, 1, 1, 0)] {
            stat(proc, pid, parent, own, ended);
        }
        assert_eq!(seen(runners.look(proc)), []);
        stat(proc, 7, 1, 12, 90);
        fs::remove_dir_all(proc.join("9")).unwrap();
        stat(proc, 8, 1, 5, 50 + 330);
        assert_eq!(seen(runners.look(proc)), [(7, 92, 90), (8, 10, 10)]);
        runners.rest();
        assert_eq!(seen(runners.look(proc)), []);
    }
}
