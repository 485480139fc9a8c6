//! What the kubelet's calls, and the programs of runc, took lately: by operation, of the last minute.

use std::collections::BTreeMap;

use super::{Correlator, processes::ProcessKind, thresholds::RECENT_NS};
use crate::{cri::Method, decode::MonoNs};

/// The durations of one kind of call or program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// Which.
    pub what: RecentKind,
    /// How many ended.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
}

/// What can take time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecentKind {
    /// Calls of the kubelet.
    Calls(Method),
    /// Commands of runc, by sub-command.
    Runc(String),
    /// Network plugins, by name.
    Cni(String),
}

impl Correlator {
    /// All that ended in the last minute before `now`, by kind.
    pub(super) fn recent(&self, now: MonoNs) -> Vec<Recent> {
        let since = now.minus(RECENT_NS);
        let mut found: BTreeMap<RecentKind, Vec<u64>> = BTreeMap::new();
        for client in self.clients.all().filter(|client| client.outermost() && client.call.end >= since) {
            let hook = self.node.hooks.get(&client.call.hook).filter(|hook| !hook.long_lived);
            if let Some(method) = hook.and_then(|hook| Method::from_name(&hook.operation)) {
                found.entry(RecentKind::Calls(method)).or_default().push(client.call.duration_ns());
            }
        }
        for run in self.processes.runs() {
            let kind = match &run.kind {
                ProcessKind::Runc { sub } => RecentKind::Runc(sub.clone()),
                ProcessKind::Cni { plugin, .. } => RecentKind::Cni(plugin.clone()),
                _ => continue,
            };
            let end = run.end.map(|(end, _)| end).filter(|end| *end >= since);
            if let Some(end) = end {
                found.entry(kind).or_default().push(end.since(run.start));
            }
        }
        found.into_iter().map(|(what, durations)| median(what, durations)).collect()
    }
}

fn median(what: RecentKind, mut durations: Vec<u64>) -> Recent {
    durations.sort_unstable();
    let middle = durations.len().saturating_sub(1) / 2;
    Recent { what, count: durations.len() as u64, p50_ns: durations.get(middle).copied().unwrap_or(0) }
}
