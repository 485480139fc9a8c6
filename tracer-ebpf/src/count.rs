//! Counters: why hits led to nothing, and what each hook measured.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

use plegtrace_common::{
    hist::{BUCKETS, bucket},
    key::HookStats,
    reason::Reason,
};

use crate::maps::{HOOKS, REASONS, SYSTEM_CALLS};

/// Adds to a counter that another program on this CPU may interrupt.
#[inline(always)]
fn add(counter: *mut u64, n: u64) {
    // The library hides `fetch_add` on targets without compare-and-swap; the instruction itself (BPF_XADD) is there.
    // SAFETY: the pointer is into a map value that lives as long as the program runs, and is aligned.
    unsafe {
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, n);
    }
}

/// How often a larger value than ours may come in between; whoever put it there was a hit on this very CPU.
const RETRIES: u32 = 4;

/// Raises a maximum that another program on this CPU may raise at the same time: from Linux 6.0 on uprobe programs can be
/// preempted, by a task that runs into a probe itself, and its longer call would be overwritten.
///
/// The instruction exists since 5.12. For older kernels the loader puts a plain store in its place
/// (`tracer/src/kernel/atomics.rs`), which is as good there: their uprobe programs run with preemption off.
#[inline(always)]
fn raise(maximum: *mut u64, n: u64) {
    // SAFETY: as above.
    unsafe {
        let mut seen = maximum.read_volatile();
        for _ in 0..RETRIES {
            if n <= seen {
                return;
            }
            let (old, done) = atomic_cxchg::<u64, { AtomicOrdering::Relaxed }, { AtomicOrdering::Relaxed }>(
                maximum, seen, n,
            );
            if done {
                return;
            }
            seen = old;
        }
    }
}

/// Counts an early return.
#[inline(always)]
pub(crate) fn reason(reason: Reason) {
    if let Some(counter) = REASONS.get_ptr_mut(reason as u32) {
        add(counter, 1);
    }
}

/// Counts a system call, whoever makes it: without a locked instruction, which would cost more than all the rest.
#[inline(always)]
pub(crate) fn system_call() {
    if let Some(counter) = SYSTEM_CALLS.get_ptr_mut(0) {
        // SAFETY: a map value of this CPU's, aligned; one that is interrupted here loses a count.
        unsafe { counter.write_volatile(counter.read_volatile().wrapping_add(1)) };
    }
}

#[inline(always)]
fn with_hook(hook: u32, f: impl FnOnce(*mut HookStats)) {
    if let Some(stats) = HOOKS.get_ptr_mut(hook) {
        f(stats);
    }
}

/// A site of this hook fired.
#[inline(always)]
pub(crate) fn hit(hook: u32) {
    // SAFETY: `stats` is valid for the whole value.
    with_hook(hook, |stats| add(unsafe { &raw mut (*stats).hits }, 1));
}

/// An end of this hook found nothing open.
#[inline(always)]
pub(crate) fn unmatched(hook: u32) {
    // SAFETY: `stats` is valid for the whole value.
    with_hook(hook, |stats| add(unsafe { &raw mut (*stats).unmatched }, 1));
    reason(Reason::EndWithoutStart);
}

/// A call of this hook ended after `ns`.
#[inline(always)]
pub(crate) fn call(hook: u32, ns: u64, failed: bool) {
    with_hook(hook, |stats| {
        // SAFETY: `stats` is valid for the whole value; the bucket index is checked.
        unsafe {
            add(&raw mut (*stats).calls, 1);
            add(&raw mut (*stats).failed, u64::from(failed));
            add(&raw mut (*stats).sum_ns, ns);
            raise(&raw mut (*stats).max_ns, ns);
            let i = bucket(ns);
            if i < BUCKETS {
                add((&raw mut (*stats).buckets).cast::<u64>().add(i), 1);
            }
        }
    });
}
