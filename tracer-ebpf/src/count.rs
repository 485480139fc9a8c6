//! Counters: why hits led to nothing, and what each hook measured.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use plegtrace_common::{
    hist::{BUCKETS, bucket},
    key::HookStats,
    reason::Reason,
};

use crate::maps::{HOOKS, REASONS};

/// Adds to a counter that another program on this CPU may interrupt.
#[inline(always)]
fn add(counter: *mut u64, n: u64) {
    // The library hides `fetch_add` on targets without compare-and-swap; the instruction itself (BPF_XADD) is there.
    // SAFETY: the pointer is into a map value that lives as long as the program runs, and is aligned.
    unsafe {
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, n);
    }
}

/// Counts an early return.
#[inline(always)]
pub(crate) fn reason(reason: Reason) {
    if let Some(counter) = REASONS.get_ptr_mut(reason as u32) {
        add(counter, 1);
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
            if ns > (*stats).max_ns {
                (*stats).max_ns = ns;
            }
            let i = bucket(ns);
            if i < BUCKETS {
                add((&raw mut (*stats).buckets).cast::<u64>().add(i), 1);
            }
        }
    });
}
