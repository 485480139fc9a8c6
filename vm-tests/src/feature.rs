//! Kernel features that a test can require, each with the version that brought it.

use crate::kernel::KernelVersion;

/// A feature of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Type information of the kernel in `/sys/kernel/btf/vmlinux`.
    Btf,
    /// `BPF_MAP_TYPE_RINGBUF`.
    RingBuf,
    /// Batched lookup of hash maps (`BPF_MAP_LOOKUP_BATCH`).
    MapBatch,
    /// fentry and fexit programs.
    Fentry,
    /// `bpf_get_attach_cookie` for perf-event uprobes.
    UprobeCookie,
    /// `bpf_task_pt_regs`: what programs on functions ask for the arguments of the system call.
    TaskRegisters,
    /// `BPF_TRACE_UPROBE_MULTI` links.
    UprobeMulti,
    /// `bpf_preempt_disable`.
    PreemptDisable,
    /// A systemd before 249, which reads the mount table as often as it changes. Each guest has the systemd of its kernel's release.
    EagerSystemd,
    /// A kernel that does not interpret a seccomp filter which it cannot compile, though it could. Debian has such a one in bookworm.
    CompiledFilters,
    /// Whoever uses a map can be preempted, and meanwhile the kernel leaves out programs of events on that CPU.
    PreemptedMaps,
}

impl Feature {
    /// The first kernel that has it.
    #[must_use]
    pub fn since(self) -> KernelVersion {
        match self {
            // Linux v4.18 (BTF), exported in sysfs since v5.4: Documentation/ABI/testing/sysfs-kernel-btf
            Self::Btf => KernelVersion(5, 4),
            // Linux v5.8: include/uapi/linux/bpf.h, BPF_MAP_TYPE_RINGBUF
            Self::RingBuf => KernelVersion(5, 8),
            // Linux v5.6: include/uapi/linux/bpf.h, BPF_MAP_LOOKUP_BATCH
            Self::MapBatch => KernelVersion(5, 6),
            // Linux v5.5: include/uapi/linux/bpf.h, BPF_TRACE_FENTRY
            Self::Fentry => KernelVersion(5, 5),
            // Linux v5.15: include/uapi/linux/bpf.h, bpf_get_attach_cookie
            Self::UprobeCookie => KernelVersion(5, 15),
            // Linux v5.15: include/uapi/linux/bpf.h, bpf_task_pt_regs
            Self::TaskRegisters => KernelVersion(5, 15),
            // Linux v6.6: include/uapi/linux/bpf.h, BPF_TRACE_UPROBE_MULTI
            Self::UprobeMulti => KernelVersion(6, 6),
            // Seen on 7.2 under emulation: `bpf_disable_instrumentation` in kernel/bpf/hashtab.c, with lazy preemption
            Self::PreemptedMaps => KernelVersion(7, 0),
            // All of them, up to `until`
            Self::EagerSystemd => KernelVersion(0, 0),
            // `jit_needed = fp->jit_requested` in kernel/bpf/core.c, for a while
            Self::CompiledFilters => KernelVersion(6, 1),
            // Linux v6.10: kernel/bpf/helpers.c, common_btf_ids
            Self::PreemptDisable => KernelVersion(6, 10),
        }
    }
}

impl Feature {
    /// The first kernel that has it no more, if there is one.
    #[must_use]
    pub fn until(self) -> Option<KernelVersion> {
        match self {
            // bullseye has 5.10 with systemd 247, bookworm 6.1 with 252
            Self::EagerSystemd => Some(KernelVersion(6, 0)),
            // trixie has 6.12
            Self::CompiledFilters => Some(KernelVersion(6, 2)),
            _ => None,
        }
    }
}

/// Why a test that requires `features` cannot run on `kernel`; `None` when it must run.
#[must_use]
pub fn reason_to_skip(features: &[Feature], kernel: KernelVersion) -> Option<String> {
    features.iter().find_map(|feature| match feature.until() {
        _ if kernel < feature.since() => {
            Some(format!("{feature:?} needs Linux {}, this is {kernel}", feature.since()))
        }
        Some(until) if kernel >= until => {
            Some(format!("{feature:?} went with Linux {until}, this is {kernel}"))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Below the version that brought a feature the test is skipped with the reason, from there on it must run.
    #[test]
    fn old_kernels_skip() {
        let features = [Feature::Btf, Feature::UprobeMulti];
        let reason = reason_to_skip(&features, KernelVersion(6, 1)).unwrap();
        assert_eq!(reason, "UprobeMulti needs Linux 6.6, this is 6.1");
        assert_eq!(reason_to_skip(&features, KernelVersion(6, 6)), None);
        let eager = [Feature::EagerSystemd];
        assert_eq!(reason_to_skip(&eager, KernelVersion(5, 10)), None);
        let reason = reason_to_skip(&eager, KernelVersion(6, 1)).unwrap();
        assert_eq!(reason, "EagerSystemd went with Linux 6.0, this is 6.1");
    }
}
