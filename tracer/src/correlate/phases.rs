//! [`Phases`]: in which phase each runc is. Not among the open calls: a runc is short-lived, and its last phase ends with
//! an `execve` or with the process, of which nothing may stay.

use std::{collections::HashMap, sync::Arc};

use super::{generations::Generations, limits::Limits, node::NodeState, rows::Rows};
use crate::{
    decode::{Call, CallId, MonoNs},
    input::{HookFact, InFlight, Layer, Liveness, OpenCallFact},
};

/// Finished phases remembered to recognise them in a later reading.
const ENDED: usize = 4096;

/// A phase that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The function, with the end of its package: `systemd.startUnit`.
    pub operation: String,
    /// When it began.
    pub start: MonoNs,
    /// For how long it lasts.
    pub age_ns: u64,
}

impl Phase {
    /// Does it wait for systemd or for a reply of the bus? The rows of the catalogue that do so: `plan/runc.rs`.
    #[must_use]
    pub fn waits_for_bus(&self) -> bool {
        let name = self.operation.rsplit('.').next();
        matches!(name, Some("startUnit" | "stopUnit" | "Call" | "CallWithContext"))
    }
}

/// The open phases of all runc, as they were read last.
#[derive(Debug)]
pub(super) struct Phases {
    open: HashMap<u32, Vec<OpenCallFact>>,
    ended: Generations<CallId, ()>,
    pub(super) dropped: u64,
}

impl Default for Phases {
    fn default() -> Self {
        Self { open: HashMap::new(), ended: Generations::new(ENDED), dropped: 0 }
    }
}

impl Phases {
    /// Takes the phases out of a reading.
    pub(super) fn reading(&mut self, reading: &mut InFlight, node: &NodeState, limits: &Limits) {
        let (phases, others) =
            std::mem::take(&mut reading.calls).into_iter().partition(|call: &OpenCallFact| {
                node.hooks.get(&call.hook).is_some_and(|hook| hook.layer == Layer::RuncPhase)
            });
        reading.calls = others;
        self.open.clear();
        let phases: Vec<OpenCallFact> = phases;
        self.dropped += phases.len().saturating_sub(limits.open_calls) as u64;
        for call in phases.into_iter().take(limits.open_calls) {
            if self.ended.touch(&id(&call)).is_none() && call.liveness != Liveness::Over {
                self.open.entry(call.tgid).or_default().push(call);
            }
        }
    }

    /// A phase ended. All runc share the rows: each lives for a moment.
    pub(super) fn call(&mut self, call: &Call, hook: &Arc<HookFact>, rows: &mut Rows, limits: &Limits) {
        self.ended.entry(call.id());
        if let Some(open) = self.open.get_mut(&call.tgid) {
            open.retain(|other| id(other) != call.id());
        }
        if let Some(side) = super::rows::Side::of_layer(hook.layer) {
            rows.add(&Call { tgid: 0, ..*call }, hook, side, limits.rows);
        }
    }

    /// Forgets ends that no reading has shown for long.
    pub(super) fn forget_old(&mut self) {
        self.ended.turn();
    }

    /// All that are open.
    pub(super) fn open(&self) -> impl Iterator<Item = &OpenCallFact> {
        self.open.values().flatten()
    }

    /// The phases of a process whose program began at `since`, outermost first.
    pub(super) fn phases_of(
        &self,
        pid: u32,
        since: Option<MonoNs>,
        now: MonoNs,
        node: &NodeState,
    ) -> Vec<Phase> {
        let mut calls: Vec<&OpenCallFact> = self
            .open
            .get(&pid)
            .into_iter()
            .flatten()
            .filter(|call| Some(MonoNs(call.start_ns)) >= since)
            .collect();
        calls.sort_by_key(|call| (call.goid, call.start_ns));
        let mut open: Vec<&OpenCallFact> = Vec::new();
        for call in calls {
            // Whoever begins something as far out has left what was deeper.
            open.retain(|outer| outer.goid != call.goid || outer.depth < call.depth);
            open.push(call);
        }
        let phase = |call: &OpenCallFact| {
            let hook = node.hooks.get(&call.hook)?;
            let start = MonoNs(call.start_ns);
            let operation = format!("{}.{}", hook.service, hook.operation);
            Some(Phase { operation, start, age_ns: now.since(start) })
        };
        open.into_iter().filter_map(phase).collect()
    }
}

fn id(call: &OpenCallFact) -> CallId {
    CallId { tgid: call.tgid, goid: call.goid, hook: call.hook, start: MonoNs(call.start_ns) }
}
