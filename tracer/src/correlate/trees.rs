//! Calls collected around a relist → a [`Relist`] with its tree and figures.

use std::{collections::BTreeMap, sync::Arc};

use plegtrace_common::rec::CALL_RESTARTED;

use super::{
    inflight::OpenEntry,
    parks::Parks,
    snapshot::{ListOutcome, Relist},
};
use crate::{
    cri::Listed,
    decode::{Call, CallResult, MonoNs},
    input::{HookFact, Layer},
    span::{Span, SpanKind, Tree},
};

/// The hooks by index.
pub(super) type Hooks = BTreeMap<u32, Arc<HookFact>>;

/// A finished call as a span. A handler ends when it has handed over its reply: what it does later nobody waits for.
pub(super) fn finished(call: &Call, hooks: &Hooks) -> Option<Span> {
    let hook = hooks.get(&call.hook)?;
    let end = if hook.layer == Layer::Handler { call.answered() } else { call.end };
    Some(Span {
        id: call.id().into(),
        kind: SpanKind::Call(Arc::clone(hook)),
        stream: call.stream,
        carried: None,
        end: Some(end),
        result: call.result(),
        depth: call.depth,
        liveness: None,
        restarted: call.restarted(),
        parked: call.parked,
        known_to: None,
        parks: Vec::new(),
        children: Vec::new(),
    })
}

/// An open call as a span.
pub(super) fn open(entry: &OpenEntry, hooks: &Hooks, parks: &Parks) -> Option<Span> {
    Some(Span {
        id: entry.id().into(),
        kind: SpanKind::Call(Arc::clone(hooks.get(&entry.fact.hook)?)),
        stream: entry.stream(),
        carried: None,
        end: None,
        result: CallResult::Unknown,
        depth: entry.fact.depth,
        liveness: Some(entry.fact.liveness),
        restarted: entry.fact.flags & CALL_RESTARTED != 0,
        parked: parks.so_far(&entry.fact),
        known_to: parks.read_at,
        parks: Vec::new(),
        children: Vec::new(),
    })
}

/// Builds a relist from its root and the calls of its goroutine inside it.
pub(super) fn relist(root: Span, parts: Vec<Span>, now: MonoNs) -> Relist {
    let tree = Tree::build(root, parts);
    let phases = |layer| tree.root.children.iter().filter(move |span| span.layer() == layer);
    let list_ns = phases(Layer::ListPhase).next().map(|span| span.duration_ns(now));
    let status_ns = phases(Layer::StatusPhase).map(|span| span.duration_ns(now)).sum();
    let status_pods = phases(Layer::StatusPhase).count() as u64;
    let (mut calls, mut failed_calls) = (0, 0);
    count_calls(&tree.root, &mut calls, &mut failed_calls);
    let list = list_outcome(&tree.root);
    Relist { tree, interval_ns: None, list_ns, status_ns, status_pods, calls, failed_calls, list }
}

/// Counts the outermost client calls below a span.
fn count_calls(span: &Span, calls: &mut u64, failed: &mut u64) {
    for child in &span.children {
        if matches!(child.layer(), Layer::KubeletCall | Layer::KubeletClient) {
            *calls += 1;
            *failed += u64::from(child.result == CallResult::Failed);
        } else {
            count_calls(child, calls, failed);
        }
    }
}

/// Does this call fetch one half of the list?
fn lists(span: &Span) -> Option<Half> {
    if !matches!(span.layer(), Layer::KubeletCall | Layer::KubeletClient) {
        return None;
    }
    match span.method()?.facts().lists? {
        Listed::Sandboxes => Some(Half::Pods),
        Listed::Containers => Some(Half::Containers),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Pods,
    Containers,
}

/// Did this relist get its list? The list phase says so itself; else its calls do; else the status phase, which only
/// begins when the list is there (`relist` in pleg/generic.go returns early otherwise).
fn list_outcome(root: &Span) -> ListOutcome {
    let phase = root.children.iter().find(|span| span.layer() == Layer::ListPhase);
    let status = root.children.iter().any(|span| span.layer() == Layer::StatusPhase);
    let calls: Vec<&Span> = match phase {
        Some(phase) => phase.walk().filter(|span| lists(span).is_some()).collect(),
        None => {
            let outside = root.children.iter().filter(|span| span.layer() != Layer::StatusPhase);
            outside.flat_map(Span::walk).filter(|span| lists(span).is_some()).collect()
        }
    };
    let got = |half| calls.iter().any(|call| lists(call) == Some(half) && call.result == CallResult::Ok);
    let failed = calls.iter().any(|call| call.result == CallResult::Failed);
    match phase {
        Some(phase) if phase.is_open() => ListOutcome::Pending,
        Some(phase) if phase.result == CallResult::Failed || failed => ListOutcome::Failed,
        Some(phase) if phase.result == CallResult::Ok => ListOutcome::Ok,
        None if failed => ListOutcome::Failed,
        _ if status || (got(Half::Pods) && got(Half::Containers)) => ListOutcome::Ok,
        _ if root.is_open() => ListOutcome::Pending,
        _ => ListOutcome::Unknown,
    }
}

/// Fills in the time from one start to the next, per process. `relists` are sorted by start.
pub(super) fn intervals(relists: &mut [Relist]) {
    let mut last: BTreeMap<u32, MonoNs> = BTreeMap::new();
    for relist in relists {
        let (tgid, start) = (relist.root().id.tgid, relist.root().start());
        relist.interval_ns = last.insert(tgid, start).map(|before| start.since(before));
    }
}

/// Relists finished and open, by start.
pub(super) fn sort(relists: &mut [Relist]) {
    relists.sort_by_key(|relist| (relist.root().start(), relist.root().id));
}
