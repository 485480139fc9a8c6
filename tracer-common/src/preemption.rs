//! Calls in the programs that stand for functions of the kernel: the loader puts those in their place, or nothing.
//!
//! A program has no way to call a kernel function by name here, so it calls helpers of numbers that no kernel has.

/// Stands for `bpf_preempt_disable` (Linux 6.10).
pub const PREEMPTION_OFF: u32 = 0x7050_0001;
/// Stands for `bpf_preempt_enable`.
pub const PREEMPTION_ON: u32 = 0x7050_0002;
