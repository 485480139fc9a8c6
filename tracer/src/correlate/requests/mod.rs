//! CRI requests outside of relists as trees: client call, handler, and the programs that ran for it.
//!
//! A node can be sick with a healthy relist: pods that do not start, commands that hang. Open requests have a tree each,
//! the oldest first; of finished ones the longest of each operation are kept. What has ended is in rings of recent calls,
//! parks and processes; before such a ring forgets, the trees of slow requests are made and kept ([`Requests`]).

pub(super) mod belongs;
mod starts;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
};

use super::{caller::Caller, limits::Limits};
use crate::{
    decode::{Call, MonoNs},
    input::Layer,
    span::{Span, SpanId, Tree},
};

/// Finished requests that are kept of each operation.
pub(super) const PER_OPERATION: usize = 2;
/// A finished request shorter than this is forgotten with the calls of its time.
pub(super) const WORTH_KEEPING_NS: u64 = 100_000_000;
/// Parks that a kept tree has for each of its spans; the rest of its time is unexplained.
const KEPT_PARKS: usize = 256;

/// One CRI request that is no part of a relist, finished or open.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestTree {
    /// The kubelet's call with the handler that answered it; the handler alone when its caller is not certain, or is
    /// somebody else. Below the handler are the programs that ran for it.
    pub tree: Tree,
    /// Who waits for the root, or waited, when that is a handler.
    pub caller: Caller,
    /// Id of the container or sandbox that it is about, where that is certain.
    pub container: Option<String>,
    /// Programs that are not in the tree although they may have run for it: another request could have started them too,
    /// they ran beside one that is shown, or outlived the request.
    pub left_out: u64,
}

impl RequestTree {
    /// The request itself.
    #[must_use]
    pub fn root(&self) -> &Span {
        &self.tree.root
    }

    /// How much is known of it.
    fn wealth(&self) -> (usize, usize) {
        let parks = self.root().walk().map(|span| span.parks.len()).sum();
        (self.root().walk().count(), parks)
    }
}

/// When the youngest of the calls that are no longer kept ended, by hook.
#[derive(Debug, Default)]
pub(super) struct Forgotten(Vec<MonoNs>);

impl Forgotten {
    /// A call is no longer kept; its hook is one that was announced.
    pub(super) fn add(&mut self, call: &Call) {
        let place = call.hook as usize;
        if self.0.len() <= place {
            self.0.resize(place + 1, MonoNs(0));
        }
        self.0[place] = self.0[place].max(call.end);
    }

    /// 0 when there is none.
    pub(super) fn until(&self, hook: u32) -> MonoNs {
        self.0.get(hook as usize).copied().unwrap_or_default()
    }
}

/// Finished requests that outlive the calls of their time.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) kept: Vec<RequestTree>,
    /// Handlers that made room.
    pub(super) forgotten: Forgotten,
    /// What has come since slow requests were looked for.
    calls: usize,
    parks: usize,
    runs: u64,
}

impl Requests {
    /// A call came that is kept for some time.
    pub(super) fn call(&mut self) {
        self.calls += 1;
    }

    /// A park came.
    pub(super) fn park(&mut self) {
        self.parks += 1;
    }

    /// Must slow requests be looked for, before something is forgotten? `runs` programs have ended so far.
    pub(super) fn is_due(&mut self, runs: u64, limits: &Limits) -> bool {
        let due = self.calls * 2 >= limits.recent_calls.max(2)
            || self.parks * 2 >= limits.parks.max(2)
            || (runs - self.runs) * 2 >= limits.ended_processes.max(2) as u64;
        if due {
            (self.calls, self.parks, self.runs) = (0, 0, runs);
        }
        due
    }

    /// Is a finished call so long that its request must be kept, and is not yet?
    pub(super) fn wants(&self, operation: &str, ns: u64, id: SpanId) -> bool {
        let mine = || self.kept.iter().filter(|kept| kept.root().operation() == operation);
        ns >= WORTH_KEEPING_NS
            && mine().filter(|kept| length(kept) >= ns).count() < PER_OPERATION
            && !mine().any(|kept| kept.root().walk().any(|span| span.id == id))
    }

    /// Those of these handlers of which a tree of their own is kept.
    pub(super) fn answers<'a>(&self, found: impl Iterator<Item = &'a Span>) -> HashSet<SpanId> {
        let handlers = self.kept.iter().map(RequestTree::root).filter(|root| root.layer() == Layer::Handler);
        let handlers: HashSet<SpanId> = handlers.map(|root| root.id).collect();
        if handlers.is_empty() {
            return handlers;
        }
        found.map(|answer| answer.id).filter(|id| handlers.contains(id)).collect()
    }

    /// Keeps what is slow; `answers` are not what they seemed to be.
    pub(super) fn keep(&mut self, found: Vec<RequestTree>, answers: &HashSet<SpanId>, bound: usize) {
        self.kept.retain(|kept| !answers.contains(&kept.root().id));
        let slow = |found: &RequestTree| length(found) >= WORTH_KEEPING_NS;
        let mut slow: Vec<RequestTree> = found.into_iter().filter(slow).collect();
        slow.iter_mut().for_each(|found| cut_parks(&mut found.tree.root));
        self.kept = longest(slow, std::mem::take(&mut self.kept), bound);
    }
}

/// The longest of each operation, longest first. Of two trees of one request the richer one stays.
pub(super) fn longest(fresh: Vec<RequestTree>, kept: Vec<RequestTree>, bound: usize) -> Vec<RequestTree> {
    let mut all: BTreeMap<SpanId, RequestTree> =
        fresh.into_iter().map(|found| (found.root().id, found)).collect();
    for old in kept {
        let fresh = all.entry(old.root().id).or_insert_with(|| old.clone());
        if fresh.wealth() < old.wealth() {
            *fresh = old;
        }
    }
    let mut all: Vec<RequestTree> = all.into_values().collect();
    all.sort_by_key(|found| (Reverse(length(found)), found.root().id));
    let mut of_operation: BTreeMap<String, usize> = BTreeMap::new();
    all.retain(|found| {
        let count = of_operation.entry(found.root().operation().to_owned()).or_default();
        *count += 1;
        *count <= PER_OPERATION
    });
    all.truncate(bound);
    all
}

/// Length of a finished request.
fn length(found: &RequestTree) -> u64 {
    found.root().duration_ns(found.root().start())
}

/// Keeps the longest parks.
fn cut_parks(span: &mut Span) {
    if span.parks.len() > KEPT_PARKS {
        span.parks.sort_by_key(|park| (Reverse(park.end.since(park.start)), park.start));
        span.parks.truncate(KEPT_PARKS);
        span.parks.sort_by_key(|park| park.start);
    }
    span.children.iter_mut().for_each(cut_parks);
}

/// Drops what turned out to be a part of a relist.
pub(super) fn is_of_relist(found: &RequestTree, relisting: &HashSet<(u32, u64)>) -> bool {
    let root = found.root();
    root.layer() != Layer::PodRelist && relisting.contains(&(root.id.tgid, root.id.goid))
}
