//! Keeps other tasks off the CPU while a program works.
//!
//! Since Linux 7.0 tracepoints can be preempted while their programs run, and uprobes always could, on kernels that preempt at
//! all. What comes then on the same CPU writes into the same per-CPU memory. So each program switches preemption off with its first
//! instructions, where the kernel lets it (`bpf_preempt_disable`, 6.10). It is switched on inside the program again, so a task that
//! should have been preempted is so there, and the kernel leaves out runs of a tracepoint's program for other tasks meanwhile
//! (*recursion misses*): they are counted as lost. Programs on system calls sit on events for that reason (`probes::wire`).

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
