//! Registers at a probe site, per architecture of the kernel.
//!
//! The context pointer must never be moved before it is dereferenced (the verifier refuses a modified context), so
//! each register is one volatile load at a constant offset; a register chosen at run time is read by helper.

use aya_ebpf::{EbpfContext, helpers::bpf_probe_read_kernel, programs::ProbeContext};
use plegtrace_common::site::{SiteConf, err_source};

use crate::task;

macro_rules! reg {
    ($ctx:expr, $field:ident) => {{
        // SAFETY: the context of a uprobe is the user's `pt_regs`.
        unsafe { core::ptr::read_volatile(&raw const (*$ctx.regs).$field) as u64 }
    }};
}

/// Instruction pointer: the address of the site.
#[inline(always)]
pub(crate) fn ip(ctx: &ProbeContext) -> u64 {
    reg!(ctx, rip)
}

/// Stack pointer.
#[inline(always)]
pub(crate) fn sp(ctx: &ProbeContext) -> u64 {
    reg!(ctx, rsp)
}

/// R14: the current `g` in Go's register ABI (Go ≥ 1.17, abi-internal.md).
#[inline(always)]
pub(crate) fn g(ctx: &ProbeContext) -> u64 {
    reg!(ctx, r14)
}

/// RCX: the current `g` right after the stack check of Go ≤ 1.16 loaded it.
#[inline(always)]
pub(crate) fn rcx(ctx: &ProbeContext) -> u64 {
    reg!(ctx, rcx)
}

/// RAX: the first argument in Go's register ABI.
#[inline(always)]
pub(crate) fn first_arg(ctx: &ProbeContext) -> u64 {
    reg!(ctx, rax)
}

/// Argument or result register `n` of Go's register ABI (RAX RBX RCX RDI RSI R8 R9 R10 R11).
#[inline(always)]
pub(crate) fn arg(ctx: &ProbeContext, n: u8) -> Option<u64> {
    // Offsets in `struct pt_regs`, arch/x86/include/asm/ptrace.h.
    let offset = match n {
        0 => 80,
        1 => 40,
        2 => 88,
        3 => 112,
        4 => 104,
        5 => 72,
        6 => 64,
        7 => 56,
        8 => 48,
        _ => return None,
    };
    let at = (ctx.as_ptr() as u64).wrapping_add(offset) as *const u64;
    // SAFETY: inside `pt_regs`; the helper checks the address all the same.
    unsafe { bpf_probe_read_kernel(at) }.ok()
}

/// The word that the site says where to find: an error result or an argument.
#[inline(always)]
pub(crate) fn value(ctx: &ProbeContext, site: &SiteConf) -> Option<u64> {
    match site.err_source {
        err_source::NONE | err_source::REPLY => None,
        err_source::REG0 => Some(first_arg(ctx)),
        err_source::STACK => task::user_word(sp(ctx).wrapping_add(u64::from(site.err_stack_off))),
        n => arg(ctx, n.wrapping_sub(err_source::REG0)),
    }
}
