//! [`Runners`]: who has the processors while kubelet or runtime wait for one. Only then are all processes asked, each with one
//! short line of `/proc/PID/stat`, which waits for nobody: their cgroups would.

use std::{cmp::Reverse, collections::HashMap, path::Path};

use super::{cpu::text, text::ran_ticks};
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
pub(super) struct Runners(HashMap<u32, u64>);

impl Runners {
    /// Who ran most since the last look; nobody at the first one.
    pub(super) fn look(&mut self, proc: &Path) -> Vec<RunnerFact> {
        let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let (mut now, mut ran) = (HashMap::new(), Vec::new());
        for pid in pids.take(PROCESSES) {
            let stat = text(&proc.join(pid.to_string()).join("stat"));
            let Some((comm, ticks)) = stat.and_then(|stat| ran_ticks(&stat)) else { continue };
            let before = self.0.get(&pid).copied();
            let grown = before.map_or(0, |before| ticks.saturating_sub(before));
            if grown > 0 {
                ran.push((grown, pid, comm));
            }
            now.insert(pid, ticks);
        }
        self.0 = now;
        ran.sort_by_key(|(ticks, pid, _)| (Reverse(*ticks), *pid));
        let told = ran.into_iter().take(TOLD);
        told.map(|(ticks, pid, comm)| RunnerFact { pid, comm, ran_ns: ticks_to_ns(ticks, clock_ticks()) })
            .collect()
    }

    /// Nobody waits: the next look is a first one.
    pub(super) fn rest(&mut self) {
        self.0.clear();
    }
}
