//! What waits in the kernel, and since when: threads by their calls, goroutines of kubelets by their stacks.

use super::{BlockedThread, FileCall, ProcessSeen, frames::is_file_call};
use crate::{
    decode::MonoNs,
    input::{Component, GoroutineGroup, GoroutinesFact, ParkedThreads, ProcessFact},
};

/// Goroutines of one process that are kept.
const MAX_CALLS: usize = 256;

/// The threads of a process that wait so. `looked`: when the look that found it ended.
pub(super) fn threads(
    fact: &ProcessFact,
    before: Option<&ProcessSeen>,
    looked: MonoNs,
) -> Vec<BlockedThread> {
    let before = before.filter(|seen| seen.fact.is_same_process(fact));
    let waiting = fact.parked.iter().filter(|park| park.waits_in_kernel());
    let since = |park: &ParkedThreads| {
        let same = before?.fact.parked.iter().any(|old| old.tid == park.tid && is_same_call(old, park));
        let known = before?.blocked.iter().find(|thread| thread.tid == park.tid);
        known.filter(|_| same).map(|thread| thread.since)
    };
    let thread = |park: &ParkedThreads| BlockedThread { tid: park.tid, since: since(park).unwrap_or(looked) };
    waiting.map(thread).collect()
}

/// Is a thread of it in state D, now and at the look before, if there was one?
pub(super) fn stays_in_kernel(fact: &ProcessFact, before: Option<&ProcessSeen>) -> bool {
    let is_in = |fact: &ProcessFact| fact.parked.iter().any(|park| park.state == 'D');
    let before = before.filter(|seen| seen.fact.is_same_process(fact));
    is_in(fact) && before.is_none_or(|seen| is_in(&seen.fact))
}

/// Is a thread in the same call with the same arguments? Without its call nothing is known.
pub(super) fn is_same_call(a: &ParkedThreads, b: &ParkedThreads) -> bool {
    let call = |park: &ParkedThreads| park.syscall.as_ref().map(|call| (call.nr, call.args));
    call(a).is_some() && call(a) == call(b)
}

/// The goroutines of a kubelet that are in calls to a file system.
pub(super) fn file_calls(fact: &GoroutinesFact, before: &[FileCall]) -> Vec<FileCall> {
    let is_meant =
        |group: &&GoroutineGroup| fact.component == Component::Kubelet && is_file_call(&group.frames);
    let calls = fact.groups.iter().filter(is_meant).flat_map(|group| {
        group.goids.iter().map(move |goid| {
            let stays = before.iter().any(|old| old.goid == *goid && old.frames == group.frames);
            FileCall { pid: fact.pid, goid: *goid, frames: group.frames.clone(), stays }
        })
    });
    calls.take(MAX_CALLS).collect()
}
