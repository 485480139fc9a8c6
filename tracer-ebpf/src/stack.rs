//! Keeps uprobe programs on the stack of the task they run in.
//!
//! From Linux 6.13 on the JIT gives a tracing program with 64 or more bytes of stack a *private* one: one per CPU and
//! program, as nothing may enter the program a second time on that CPU (kernel/bpf/verifier.c, `bpf_enable_priv_stack`).
//! That is not so for uprobes: their programs can be preempted (`bpf_prog_run_array_uprobe` only disables migration, and no
//! counter guards them), and the next task that runs into a probe of the same program writes over the locals of the first:
//! a pointer read from the kernel becomes a small number, a key that of another goroutine. Seen on 7.2 with lazy preemption.
//!
//! A program in which there is a tail call anywhere, also in a branch that the verifier removes, has no private stack
//! (`check_max_stack_depth`).

use aya_ebpf::{macros::map, maps::ProgramArray, programs::ProbeContext};

use crate::settings::setting;

/// Always empty: what a tail call that never happens would jump into.
#[map]
static NOWHERE: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Has to be in every uprobe program. Costs nothing: the verifier knows that the branch is not taken.
#[inline(always)]
pub(crate) fn of_the_task(ctx: &ProbeContext) {
    if setting!(use_cookies) > 1 {
        // SAFETY: never executed, as `use_cookies` is 0 or 1; and of an empty table a tail call returns.
        unsafe { NOWHERE.tail_call(ctx, 0) };
    }
}
