//! How much of its own time a shim takes for a command, and when it last worked, as far as the programs that it starts tell.
//! Its own time is that in which a request waits for it, without the time in which its runc runs.

use std::{collections::BTreeMap, sync::Arc};

use super::{Correlator, ProcessKind, processes::Run};
use crate::{
    cri::Method,
    decode::{Call, MonoNs},
};

/// The function in which a request waits for a shim.
const WAITS: &str = "containerd/ttrpc.(*Client)";
/// So many commands that began later are looked at for one that a program belongs to.
const AT_ONCE: usize = 64;

/// When shims last started a program, by process.
pub(super) fn last_work(runs: &[Arc<Run>]) -> BTreeMap<u32, MonoNs> {
    // By start: a later one replaces an earlier one.
    runs.iter().filter_map(|run| Some((run.parent?, run.start))).collect()
}

impl Correlator {
    /// The shims' own times of the commands that ended since then, by shim. `runs` are sorted by their start.
    pub(super) fn shim_times(&self, since: MonoNs, runs: &[Arc<Run>]) -> BTreeMap<u32, Vec<u64>> {
        let is_command = |call: &&Call| {
            let hook = self.node.hooks.get(&call.hook);
            hook.is_some_and(|hook| Method::from_name(&hook.operation) == Some(Method::ExecSync))
        };
        let recent = self.handlers.iter().filter(|call| call.end >= since);
        let mut commands: Vec<&Call> = recent.filter(is_command).collect();
        commands.sort_by_key(|call| (call.start, call.id()));
        let stacks = self.parks.stacks_in(WAITS);
        let mut times: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (number, own) in own_programs(&commands, runs) {
            let call = commands[number];
            let waits = self.parks.intervals((call.tgid, call.goid), call.start, call.end, &stacks);
            if let Some(shim) = only_parent(&own).filter(|_| !waits.is_empty()) {
                times.entry(shim).or_default().push(without(&waits, &own));
            }
        }
        times
    }
}

/// The `runc exec` that ran for each command, by its place: a program belongs to the command that began last before it, of those
/// that it ended before. One of another pod that runs meanwhile belongs to a younger command.
fn own_programs<'a>(commands: &[&Call], runs: &'a [Arc<Run>]) -> BTreeMap<usize, Vec<&'a Run>> {
    let is_exec = |run: &&Arc<Run>| matches!(&run.kind, ProcessKind::Runc { sub, .. } if sub == "exec");
    let mut own: BTreeMap<usize, Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(is_exec) {
        let Some((end, _)) = run.end else { continue };
        let begun = commands.partition_point(|call| call.start <= run.start);
        let mut before = (begun.saturating_sub(AT_ONCE)..begun).rev();
        if let Some(number) = before.find(|number| commands[*number].end >= end) {
            own.entry(number).or_default().push(run);
        }
    }
    own
}

/// The shim that started all of these; `None`: several did, so it is not known whose command it is.
fn only_parent(runs: &[&Run]) -> Option<u32> {
    let parent = runs.first()?.parent?;
    runs.iter().all(|run| run.parent == Some(parent)).then_some(parent)
}

/// The length of these intervals without what ran meanwhile; both are sorted by their start.
fn without(intervals: &[(MonoNs, MonoNs)], runs: &[&Run]) -> u64 {
    let programs: Vec<(MonoNs, MonoNs)> =
        runs.iter().map(|run| (run.start, run.end.map_or(MonoNs(u64::MAX), |(end, _)| end))).collect();
    intervals.iter().map(|interval| alone(*interval, &programs)).sum()
}

/// The part of an interval that none of these touches.
fn alone((start, end): (MonoNs, MonoNs), programs: &[(MonoNs, MonoNs)]) -> u64 {
    let (mut alone, mut at) = (0, start);
    for (from, to) in programs {
        alone += (*from).min(end).since(at);
        at = at.max((*to).min(end));
    }
    alone + end.since(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What runs meanwhile is no time of the shim's, however the programs lie.
    #[test]
    fn programs_are_taken_out() {
        let alone = |programs: &[(u64, u64)]| {
            let programs: Vec<_> = programs.iter().map(|(from, to)| (MonoNs(*from), MonoNs(*to))).collect();
            alone((MonoNs(100), MonoNs(200)), &programs)
        };
        assert_eq!([alone(&[]), alone(&[(10, 20), (300, 400)])], [100, 100]);
        assert_eq!(alone(&[(110, 150)]), 60);
        assert_eq!(alone(&[(10, 120), (110, 150), (130, 140), (190, 250)]), 40);
        assert_eq!(alone(&[(10, u64::MAX)]), 0);
    }
}
