//! [`Rows`]: the tables: one row per operation, side and process.

use std::{collections::HashMap, sync::Arc};

use super::Latency;
use crate::{
    decode::{Call, CallResult},
    input::{Component, HookCounters, HookFact, Layer},
};

/// At which end of a call, and at which layer, it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Whole relists.
    Relist,
    /// Whole relists of one pod.
    PodRelist,
    /// List and status phases, wherever the kubelet runs them.
    Phase,
    /// Client calls at the layer that the kubelet's own metrics count.
    Counted,
    /// Client calls of the bare service, with no counted call around them.
    Bare,
    /// Handlers in the runtime.
    Server,
    /// Phases of all runc together.
    RuncPhase,
}

impl Side {
    /// The table of a layer; bare client calls are found otherwise.
    pub(super) fn of_layer(layer: Layer) -> Option<Self> {
        match layer {
            Layer::Relist => Some(Self::Relist),
            Layer::PodRelist => Some(Self::PodRelist),
            Layer::ListPhase | Layer::StatusPhase => Some(Self::Phase),
            Layer::KubeletCall => Some(Self::Counted),
            Layer::KubeletClient => Some(Self::Bare),
            Layer::Handler => Some(Self::Server),
            Layer::RuncPhase => Some(Self::RuncPhase),
            Layer::Mark | Layer::Process => None,
        }
    }
}

/// What a row counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// Which table.
    pub side: Side,
    /// Component it was measured in.
    pub component: Component,
    /// Process it was measured in; 0: all that run such a program.
    pub tgid: u32,
    /// CRI method or function.
    pub operation: String,
    /// gRPC service or Go type.
    pub service: String,
}

/// One row of a table.
#[derive(Clone, Debug)]
pub struct RpcRow {
    /// What it counts.
    pub key: RowKey,
    /// Finished calls.
    pub latency: Latency,
    /// Of these, with an error.
    pub failed: u64,
    /// Of these, with no known result.
    pub unknown: u64,
    /// Calls whose end was not seen (panic or lost end); in no other figure of the row.
    pub unwound: u64,
    /// Ends without a start, as the kernel counted them.
    pub unmatched: u64,
    /// Counters the kernel kept for exactly these calls; `None` when it keeps them for more than this row.
    pub kernel: Option<HookCounters>,
    /// Hooks that feed the row.
    pub(super) hooks: Vec<u32>,
}

impl RpcRow {
    /// Calls that returned without an error.
    #[must_use]
    pub fn ok(&self) -> u64 {
        self.latency.count().saturating_sub(self.failed + self.unknown)
    }

    /// Adds a finished call.
    pub(super) fn add(&mut self, call: &Call) {
        if call.unwound() {
            self.unwound += 1;
            return;
        }
        self.latency.record(call.duration_ns());
        match call.result() {
            CallResult::Ok => {}
            CallResult::Failed => self.failed += 1,
            CallResult::Unknown => self.unknown += 1,
        }
    }
}

/// All rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<RpcRow>,
    by_key: HashMap<RowKey, usize>,
    /// Where the calls of a hook in a process go; saves comparing texts for each record.
    by_hook: HashMap<(u32, u32), usize>,
    pub(super) dropped: u64,
}

impl Rows {
    /// Adds a call to the row of its hook and process.
    pub(super) fn add(&mut self, call: &Call, hook: &Arc<HookFact>, side: Side, bound: usize) {
        let slot = match self.by_hook.get(&(hook.index, call.tgid)) {
            Some(&slot) => slot,
            None => match self.slot(call, hook, side, bound) {
                Some(slot) => slot,
                None => {
                    self.dropped += 1;
                    return;
                }
            },
        };
        self.rows[slot].add(call);
    }

    fn slot(&mut self, call: &Call, hook: &HookFact, side: Side, bound: usize) -> Option<usize> {
        let key = row_key(call.tgid, hook, side);
        let slot = match self.by_key.get(&key) {
            Some(&slot) => slot,
            None if self.rows.len() >= bound => return None,
            None => {
                self.by_key.insert(key.clone(), self.rows.len());
                self.rows.push(empty_row(key));
                self.rows.len() - 1
            }
        };
        self.by_hook.insert((hook.index, call.tgid), slot);
        if !self.rows[slot].hooks.contains(&hook.index) {
            self.rows[slot].hooks.push(hook.index);
        }
        Some(slot)
    }

    /// A hook stands for something else from now on.
    pub(super) fn forget_hook(&mut self, index: u32) {
        self.by_hook.retain(|(hook, _), _| *hook != index);
        self.rows.iter_mut().for_each(|row| row.hooks.retain(|hook| *hook != index));
    }

    /// Forgets the rows of a process that is gone; gives the number of calls in them.
    pub(super) fn forget_process(&mut self, tgid: u32) -> u64 {
        let of_process = |row: &RpcRow| row.key.tgid == tgid;
        let calls = self.rows.iter().filter(|row| of_process(row));
        let calls = calls.map(|row| row.latency.count() + row.unwound).sum();
        self.rows.retain(|row| !of_process(row));
        self.by_key = self.rows.iter().enumerate().map(|(slot, row)| (row.key.clone(), slot)).collect();
        self.by_hook.clear();
        calls
    }

    /// The rows so far, in the order of their keys, with `pending` bare calls added.
    pub(super) fn list<'a>(&self, pending: impl Iterator<Item = (Call, &'a Arc<HookFact>)>) -> Vec<RpcRow> {
        let mut rows = self.rows.clone();
        let mut extra: HashMap<RowKey, usize> = HashMap::new();
        for (call, hook) in pending {
            let key = row_key(call.tgid, hook, Side::Bare);
            let slot = self.by_key.get(&key).or_else(|| extra.get(&key)).copied().unwrap_or_else(|| {
                extra.insert(key.clone(), rows.len());
                rows.push(empty_row(key));
                rows.len() - 1
            });
            rows[slot].add(&call);
        }
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows
    }
}

fn row_key(tgid: u32, hook: &HookFact, side: Side) -> RowKey {
    RowKey {
        side,
        component: hook.component,
        tgid,
        operation: hook.operation.clone(),
        service: hook.service.clone(),
    }
}

fn empty_row(key: RowKey) -> RpcRow {
    let latency = Latency::default();
    RpcRow { key, latency, failed: 0, unknown: 0, unwound: 0, unmatched: 0, kernel: None, hooks: Vec::new() }
}
