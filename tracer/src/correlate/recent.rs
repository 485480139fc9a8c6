//! What the kubelet's calls, the programs of runc and the commands of shims took lately: by operation, of the last minute.

use std::collections::BTreeMap;

use super::{
    Correlator,
    processes::{OciRuntime, ProcessKind, Run},
    thresholds::RECENT_NS,
};
use crate::{cri::Method, decode::MonoNs};

/// The durations of one kind of call, program or command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// Which.
    pub what: RecentKind,
    /// What each of those that ended took, nanoseconds, in no order.
    pub took_ns: Vec<u64>,
}

/// What can take time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecentKind {
    /// Calls of the kubelet.
    Calls(Method),
    /// Commands of runc or crun, without the hooks that they waited for.
    Runc {
        /// Which of them.
        by: OciRuntime,
        /// "create", "start", …
        sub: String,
    },
    /// Network plugins, by name and action: a DEL takes a fraction of an ADD.
    Cni {
        /// Name of the program.
        plugin: String,
        /// "ADD", "DEL", …
        action: Option<String>,
    },
    /// OCI hooks, by name.
    Hook(String),
    /// A shim's own time for each command that it executed, by process: without the runc that it ran.
    Shim(u32),
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
        let runs = self.processes.runs();
        let hooks = hooks(runs.iter().map(AsRef::as_ref));
        for run in &runs {
            let Some(kind) = kind(run) else { continue };
            let end = run.end.map(|(end, _)| end).filter(|end| *end >= since);
            if let Some(end) = end {
                let waited = hooks.get(&run.pid).into_iter().flatten().filter(|hook| hook.is_child_of(run));
                let waited: u64 = waited.map(|hook| length(hook, end)).sum();
                found.entry(kind).or_default().push(end.since(run.start).saturating_sub(waited));
            }
        }
        let shims = self.shim_times(since, &runs);
        found.extend(shims.into_iter().map(|(shim, times)| (RecentKind::Shim(shim), times)));
        found.into_iter().map(|(what, took_ns)| Recent { what, took_ns }).collect()
    }
}

fn kind(run: &Run) -> Option<RecentKind> {
    match &run.kind {
        ProcessKind::Runc { by, sub } if by.is_measured() => {
            Some(RecentKind::Runc { by: *by, sub: sub.clone() })
        }
        ProcessKind::Cni { plugin, action } => {
            Some(RecentKind::Cni { plugin: plugin.clone(), action: action.clone() })
        }
        ProcessKind::Hook { program } => Some(RecentKind::Hook(program.clone())),
        _ => None,
    }
}

/// Hooks by the runc that waits for them, one after the other.
fn hooks<'a>(runs: impl Iterator<Item = &'a Run>) -> BTreeMap<u32, Vec<&'a Run>> {
    let mut hooks: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
    for run in runs.filter(|run| matches!(run.kind, ProcessKind::Hook { .. })) {
        if let Some(parent) = run.parent {
            hooks.entry(parent).or_default().push(run);
        }
    }
    hooks
}

/// How long a program ran, up to a moment.
fn length(run: &Run, until: MonoNs) -> u64 {
    run.end.map_or(until, |(end, _)| end.min(until)).since(run.start)
}
