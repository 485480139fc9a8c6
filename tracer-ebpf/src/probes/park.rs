//! Family `park`: goroutines inside watched calls that wait.
//!
//! Two sites per executable, `runtime.gopark` and `runtime.execute`, which every goroutine passes: whoever is in no
//! watched call costs one look into a map.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::uprobe, programs::ProbeContext};
use plegtrace_common::{key::ParkerKey, reason::Reason};

use crate::{count, go, go::regs, parks, preemption, site, stack};

/// hook: runtime.gopark(unlockf func(*g, unsafe.Pointer) bool, lock unsafe.Pointer, reason waitReason, …), on the
/// goroutine that waits
#[uprobe]
pub(crate) fn park_in(ctx: ProbeContext) -> u32 {
    stack::of_the_task(&ctx);
    preemption::without(|| {
        if let Err(reason) = try_park_in(&ctx) {
            count::reason(reason);
        }
    });
    0
}

/// hook: runtime.execute(gp *g, inheritTime bool), on the scheduler's stack
#[uprobe]
pub(crate) fn park_out(ctx: ProbeContext) -> u32 {
    stack::of_the_task(&ctx);
    preemption::without(|| {
        if let Err(reason) = try_park_out(&ctx) {
            count::reason(reason);
        }
    });
    0
}

#[inline(always)]
fn try_park_in(ctx: &ProbeContext) -> Result<(), Reason> {
    let site = site::current(ctx)?;
    count::hit(site.hook);
    let goid = go::id(go::address(ctx, &site)?, &site)?;
    parks::park(ctx, &key(goid), &site);
    Ok(())
}

#[inline(always)]
fn try_park_out(ctx: &ProbeContext) -> Result<(), Reason> {
    let site = site::current(ctx)?;
    count::hit(site.hook);
    let g = regs::value(ctx, &site).ok_or(Reason::GoroutineUnreadable)?;
    let goid = go::id(g, &site)?;
    parks::resume(&key(goid), bpf_get_current_pid_tgid() as u32);
    Ok(())
}

#[inline(always)]
fn key(goid: u64) -> ParkerKey {
    ParkerKey { goid, tgid: (bpf_get_current_pid_tgid() >> 32) as u32, reserved: 0 }
}
