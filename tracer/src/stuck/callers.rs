//! Whose call it is, and what it waits for: what decides, beside its age, whether a call is late.

use crate::{
    correlate::{
        Caller, OpenCall, ProcessKind, Snapshot,
        thresholds::{HOOK_NS, POD_SANDBOX_NS, stuck_after_ns},
    },
    cri::{Lasts, Method, Program},
    input::Layer,
};

/// Is a call open for longer than its operation takes, for who asked, and on this node now?
pub(crate) fn is_late(operation: &str, age_ns: u64, caller: Option<Caller>, snapshot: &Snapshot) -> bool {
    let method = Method::from_name(operation);
    let Some(limit) = stuck_after_ns(operation) else { return false };
    let limit = if waits_for_hook(method, age_ns, snapshot) { limit.max(POD_SANDBOX_NS) } else { limit };
    // Whoever typed `crictl rmi` waits for it; the kubelet does not. What is answered at once hangs for everybody.
    let is_work = method.is_some_and(|method| method.facts().lasts == Lasts::Work);
    age_ns > limit && !(is_work && caller == Some(Caller::Foreign))
}

/// Who waits for the handler on this goroutine.
pub(super) fn caller_of(pid: u32, goids: &[u64], snapshot: &Snapshot) -> Option<Caller> {
    let is_it = |call: &&OpenCall| {
        call.span.layer() == Layer::Handler && call.span.id.tgid == pid && goids.contains(&call.span.id.goid)
    };
    let mut callers = snapshot.open.iter().filter(is_it).map(|call| call.caller);
    let first = callers.next()?;
    callers.all(|other| other == first).then_some(first)
}

/// Does it create containers, and has a hook begun since that takes its time and may?
fn waits_for_hook(method: Option<Method>, age_ns: u64, snapshot: &Snapshot) -> bool {
    let creates = method.is_some_and(|method| method.facts().starts.contains(&Program::RuncCreate));
    let may_last = |ns: Option<u64>| ns.is_some_and(|ns| ns > HOOK_NS);
    creates
        && snapshot.processes.open.iter().any(|open| {
            matches!(open.kind, ProcessKind::Hook { .. })
                && may_last(open.late_after_ns)
                && !open.late
                && open.start.is_some()
                && open.age_ns <= age_ns
        })
}
