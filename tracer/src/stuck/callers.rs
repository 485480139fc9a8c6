//! Whose call it is, and what it waits for: what decides, beside its age, whether a call is late.

use crate::{
    correlate::{
        Caller, OpenCall, OpenMessage, ProcessKind, Request, Snapshot, WaitsFor,
        thresholds::{CALL_OPEN_NS, HELD_NS, HOOK_NS, POD_SANDBOX_NS, stuck_after_ns},
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

/// May it take longer than what is answered at once, or by a plugin?
pub(super) fn may_last(request: &Request) -> bool {
    let lasts = request.method().map(|method| method.facts().lasts);
    lasts.is_some_and(|lasts| !matches!(lasts, Lasts::Briefly | Lasts::Network))
}

/// Is a request open for longer than its operation takes?
pub(super) fn is_request_late(request: &Request, snapshot: &Snapshot) -> bool {
    let caller = caller_of(request.pid, &request.goids, snapshot);
    let too_old = is_late(&request.operation, request.since.ns, caller, snapshot);
    too_old || is_held_up(request, caller, snapshot)
}

/// Work that may last has not begun, or is over, when its request waits for something else. Whoever typed `crictl rmi` for many images
/// queues behind himself, and lists of statistics ask shim after shim, at the same place: of these, locks count, and only for the kubelet.
fn is_held_up(request: &Request, caller: Option<Caller>, snapshot: &Snapshot) -> bool {
    let is_work = request.method().is_some_and(|method| method.facts().lasts == Lasts::Work);
    let at_lock = || matches!(request.waits_for, WaitsFor::Lock(_));
    let counts = !is_work || at_lock() && kubelet_waits(request, caller, snapshot);
    may_last(request) && counts && request.since.ns > CALL_OPEN_NS && request.held_ns >= HELD_NS
}

/// Is the kubelet seen to wait for such an answer: by a call of its own or, where no probe tells who asked, on its socket?
fn kubelet_waits(request: &Request, caller: Option<Caller>, snapshot: &Snapshot) -> bool {
    let on_socket = |open: &OpenMessage| {
        let answers = [0, request.pid].contains(&open.fact.answerer) && !open.fact.over;
        answers && open.fact.method == request.operation
    };
    match caller {
        Some(Caller::Waiting) => true,
        None | Some(Caller::Unknown) => snapshot.grpc.open.iter().any(on_socket),
        Some(Caller::NotAsked | Caller::Gone(_) | Caller::Foreign | Caller::Own) => false,
    }
}

/// Who waits for the handler on this goroutine.
fn caller_of(pid: u32, goids: &[u64], snapshot: &Snapshot) -> Option<Caller> {
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
