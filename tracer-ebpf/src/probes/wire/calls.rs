//! On the entries and exits of all system calls.
//!
//! Two raw tracepoints that every system call of the machine passes, or the events of those that matter.

use aya_ebpf::{
    EbpfContext,
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use plegtrace_common::reason::Reason;

use super::{
    Found, NUMBER, Way,
    connects::{CONNECT, connected},
    try_enter, try_exit,
};
use crate::{count, task};

/// hook: include/trace/events/syscalls.h: sys_enter(struct pt_regs *regs, long id)
#[raw_tracepoint(tracepoint = "sys_enter")]
pub(crate) fn wire_enter(ctx: RawTracePointContext) -> i32 {
    count::system_call();
    if let Some(way) = Way::of(arg(&ctx, 1))
        && let Err(reason) = try_enter(arg(&ctx, 0), way, Found::ByDescriptor)
    {
        count::reason(reason);
    }
    0
}

/// hook: include/trace/events/syscalls.h: sys_exit(struct pt_regs *regs, long ret)
#[raw_tracepoint(tracepoint = "sys_exit")]
pub(crate) fn wire_exit(ctx: RawTracePointContext) -> i32 {
    if let Err(reason) = exits(arg(&ctx, 0), arg(&ctx, 1) as i64) {
        count::reason(reason);
    }
    0
}

/// The same as [`wire_enter`], on kernels that preempt the programs of raw tracepoints: events switch preemption off.
///
/// hook: kernel/trace/trace_syscalls.c: syscalls:sys_enter_write and the others of [`Way`]
#[tracepoint]
pub(crate) fn wire_enter_tp(ctx: TracePointContext) -> u32 {
    count::system_call();
    if let Some(way) = Way::of(number(&ctx))
        && let Err(reason) = try_enter(task::registers(), way, Found::ByDescriptor)
    {
        count::reason(reason);
    }
    0
}

/// The same of [`wire_exit`].
#[tracepoint]
pub(crate) fn wire_exit_tp(ctx: TracePointContext) -> u32 {
    if let Err(reason) = exits(task::registers(), result(&ctx)) {
        count::reason(reason);
    }
    0
}

/// Number of the system call: `nr` in `struct syscall_trace_enter` and `struct syscall_trace_exit` (kernel/trace/trace.h).
#[inline(always)]
fn number(ctx: &TracePointContext) -> u64 {
    // SAFETY: the events of system calls have it behind the common fields.
    unsafe { u64::from(*ctx.as_ptr().cast::<u32>().add(2)) }
}

/// What it returns: `ret` in `struct syscall_trace_exit`.
#[inline(always)]
fn result(ctx: &TracePointContext) -> i64 {
    // SAFETY: as above, behind the number.
    unsafe { *ctx.as_ptr().cast::<i64>().add(2) }
}

/// Argument `n` of a raw tracepoint.
#[inline(always)]
fn arg(ctx: &RawTracePointContext, n: usize) -> u64 {
    // SAFETY: `bpf_raw_tracepoint_args` is an array of words, and these tracepoints have two.
    unsafe { *ctx.as_ptr().cast::<u64>().add(n) }
}

/// A system call with these registers returns this.
#[inline(always)]
fn exits(regs: u64, result: i64) -> Result<(), Reason> {
    let number = task::kernel(regs, NUMBER)?;
    match Way::of(number) {
        Some(way) => try_exit(regs, way, result, Found::ByDescriptor),
        None if number == CONNECT => connected(regs, result),
        None => Ok(()),
    }
}
