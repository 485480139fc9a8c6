//! Family `call`: Go calls, from the stack check of a function to one of its end sites.
//!
//! Two programs serve every hook: what a hit means is in the site's table entry.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::uprobe,
    programs::ProbeContext,
};
use plegtrace_common::{
    key::CallKey,
    reason::Reason,
    rec::{CALL_FAILED, CALL_OK},
    site::{SiteConf, action, pairing},
};

use crate::{count, go, go::regs, inflight, inflight::Hit, preemption, site, stack, streams, watch};

/// A call begins.
#[uprobe]
pub(crate) fn call_in(ctx: ProbeContext) -> u32 {
    stack::of_the_task(&ctx);
    preemption::without(|| {
        if let Err(reason) = try_call_in(&ctx) {
            count::reason(reason);
        }
    });
    0
}

/// A call ends, replies, or shows its result.
#[uprobe]
pub(crate) fn call_out(ctx: ProbeContext) -> u32 {
    stack::of_the_task(&ctx);
    preemption::without(|| {
        if let Err(reason) = try_call_out(&ctx) {
            count::reason(reason);
        }
    });
    0
}

#[inline(always)]
fn try_call_in(ctx: &ProbeContext) -> Result<(), Reason> {
    let (site, hit) = arrive(ctx)?;
    #[cfg(feature = "debug-log")]
    aya_log_ebpf::info!(ctx, "call_in hook {} goroutine {}", site.hook, hit.goroutine.id);
    inflight::start(&key(&site, &hit), &site, &hit)
}

#[inline(always)]
fn try_call_out(ctx: &ProbeContext) -> Result<(), Reason> {
    let (site, hit) = arrive(ctx)?;
    let key = key(&site, &hit);
    if site.action == action::SENT || site.action == action::CAME {
        streams::note(ctx, &key, &site);
        return Ok(());
    }
    let outcome = outcome(ctx, &site);
    match site.action {
        action::REPLY => inflight::reply(&key, &site, &hit),
        action::RESULT => inflight::result(&key, &site, outcome),
        _ => inflight::end(&key, &site, &hit, outcome),
    }
    Ok(())
}

/// What every hit asks first: which site, is the process ours, which goroutine.
#[inline(always)]
fn arrive(ctx: &ProbeContext) -> Result<(SiteConf, Hit), Reason> {
    let pid_tgid = bpf_get_current_pid_tgid();
    let tgid = (pid_tgid >> 32) as u32;
    if watch::get(tgid).is_none() {
        return Err(Reason::NotWatched);
    }
    let site = site::current(ctx)?;
    count::hit(site.hook);
    let goroutine = go::current(ctx, &site)?;
    // SAFETY: no arguments.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    Ok((site, Hit { now_ns, tgid, tid: pid_tgid as u32, goroutine }))
}

#[inline(always)]
fn key(site: &SiteConf, hit: &Hit) -> CallKey {
    let depth = if site.pairing == pairing::FRAME { hit.goroutine.depth } else { 0 };
    CallKey { goid: hit.goroutine.id, tgid: hit.tgid, class: site.class, depth, reserved: 0 }
}

/// `CALL_OK` or `CALL_FAILED` when the site shows an error result, else 0.
#[inline(always)]
fn outcome(ctx: &ProbeContext, site: &SiteConf) -> u32 {
    match regs::value(ctx, site) {
        Some(0) => CALL_OK,
        Some(_) => CALL_FAILED,
        None => 0,
    }
}
