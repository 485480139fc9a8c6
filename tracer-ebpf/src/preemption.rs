//! Keeps other tasks off the CPU while a program works.
//!
//! Since Linux 7.0 tracepoints and uprobes can be preempted while their programs run, on kernels that preempt at all. What
//! comes then on the same CPU finds the program busy and is left out (a *recursion miss*), or writes into the same per-CPU
//! buffer. Seen on 7.2: 200 runs of the programs on system calls missed in 20 s. So each program switches preemption off with its
//! first instructions, where the kernel lets it (`bpf_preempt_disable`, 6.10); kernels before 6.10 do so themselves.

use core::mem::transmute;

use plegtrace_common::preemption::{PREEMPTION_OFF, PREEMPTION_ON};

/// Does the work with preemption off.
#[inline(always)]
pub(crate) fn without<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a call of a helper by its number; the loader makes it one that the kernel has, or takes it out.
    let off: extern "C" fn() = unsafe { transmute(PREEMPTION_OFF as usize) };
    // SAFETY: as above.
    let on: extern "C" fn() = unsafe { transmute(PREEMPTION_ON as usize) };
    off();
    let done = work();
    on();
    done
}
