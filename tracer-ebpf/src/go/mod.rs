//! The running goroutine.
//!
//! Facts about `runtime.g` (src/runtime/runtime2.go, Go 1.13 to 1.27): `stack.lo` is at 0 and `stack.hi` at 8; the
//! offset of `goid` varies with the version and comes with the site.

pub(crate) mod regs;

use aya_ebpf::programs::ProbeContext;
use plegtrace_common::{
    reason::Reason,
    site::{SiteConf, g_source},
};

use crate::task;

/// Offset of `g.stack.hi`.
const STACK_HI: u64 = 8;

/// The goroutine a probe fired on.
pub(crate) struct Goroutine {
    pub(crate) address: u64,
    pub(crate) id: u64,
    /// Bytes of its stack in use; unchanged when the stack is moved.
    pub(crate) depth: u32,
}

/// Address of the `runtime.g` that runs.
#[inline(always)]
pub(crate) fn address(ctx: &ProbeContext, site: &SiteConf) -> Result<u64, Reason> {
    match site.g_source {
        g_source::REGISTER => Ok(regs::g(ctx)),
        g_source::RCX => Ok(regs::rcx(ctx)),
        _ => {
            let at = task::thread_pointer()?.wrapping_add(site.tls_off as i64 as u64);
            task::user_word(at).ok_or(Reason::GoroutineUnreadable)
        }
    }
}

/// Id of the goroutine of a `runtime.g`; 0 for the scheduler's own.
#[inline(always)]
pub(crate) fn id(address: u64, site: &SiteConf) -> Result<u64, Reason> {
    task::user_word(address.wrapping_add(u64::from(site.goid_off))).ok_or(Reason::GoroutineUnreadable)
}

/// Reads the current goroutine.
#[inline(always)]
pub(crate) fn current(ctx: &ProbeContext, site: &SiteConf) -> Result<Goroutine, Reason> {
    let address = address(ctx, site)?;
    let id = id(address, site)?;
    let hi = task::user_word(address.wrapping_add(STACK_HI)).ok_or(Reason::GoroutineUnreadable)?;
    if id == 0 {
        return Err(Reason::SystemGoroutine);
    }
    Ok(Goroutine { address, id, depth: hi.wrapping_sub(regs::sp(ctx)) as u32 })
}
