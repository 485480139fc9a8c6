//! Where the running kernel lets other tasks in while one of our programs works.
//!
//! Programs on functions run with preemption on (kernel/bpf/trampoline.c, `__bpf_prog_enter_recur`); since Linux 7.0 those on
//! tracepoints do, too. What they would lose then is counted (`missed`). A kernel says in its version whether it can preempt at
//! all; one built with PREEMPT_DYNAMIC says in debugfs whether it does (kernel/sched/debug.c, `sched_dynamic_show`), or was told
//! so when it booted.

use std::fs;

use crate::preflight::KernelVersion;

/// The first kernel that may preempt programs on tracepoints. Neither its type information nor a trial tells that: it is so on
/// 7.2 and not on 6.18.
const TRACEPOINTS: KernelVersion = KernelVersion::new(7, 0);
/// Modes of preemption without any inside of the kernel.
const WITHOUT: [&str; 2] = ["none", "voluntary"];

/// Where programs can be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preempts {
    /// Nowhere.
    Never,
    /// On functions of the kernel.
    InFunctions,
    /// On tracepoints, too.
    OnTracepoints,
}

impl Preempts {
    /// What the running kernel does; where it does not say so, the worst.
    pub(super) fn running() -> Self {
        let uname = rustix::system::uname();
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (release, build) = (uname.release().to_string_lossy(), uname.version().to_string_lossy());
        Self::of(&release, &build, &read("/sys/kernel/debug/sched/preempt"), &read("/proc/cmdline"))
    }

    fn of(release: &str, build: &str, mode: &str, boot: &str) -> Self {
        let without = |mode: &str| WITHOUT.contains(&mode);
        let runs = mode.split_whitespace().find_map(|word| word.strip_prefix('(')?.strip_suffix(')'));
        let told = boot.split_whitespace().filter_map(|word| word.strip_prefix("preempt=")).next_back();
        let dynamic = build.contains("PREEMPT_DYNAMIC");
        if KernelVersion::parse(release).is_some_and(|version| version >= TRACEPOINTS)
            && build.contains("PREEMPT")
        {
            Self::OnTracepoints
        } else if !build.contains("PREEMPT") || dynamic && runs.or(told).is_some_and(without) {
            Self::Never
        } else {
            Self::InFunctions
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By version and build, and of a kernel that can do either by what it says, or was told at boot.
    #[test]
    fn by_what_the_kernel_says() {
        use Preempts::{InFunctions, Never, OnTracepoints};
        let of = |release, build| Preempts::of(release, build, "", "");
        assert_eq!(of("7.2.13+deb14-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 7.2.13-1"), OnTracepoints);
        assert_eq!(of("7.0-rc3", "#1 SMP PREEMPT_RT"), OnTracepoints);
        assert_eq!(of("7.2.13", "#1 SMP"), Never);
        assert_eq!(of("5.10.0-36-cloud-amd64", "#1 SMP Debian 5.10.244-1"), Never);
        assert_eq!(of("6.1.0", "#1 SMP PREEMPT_RT"), InFunctions);
        assert_eq!(of("unknown", "#1 SMP PREEMPT"), InFunctions);
        let dynamic =
            |mode, boot| Preempts::of("6.12.57", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.57-1", mode, boot);
        assert_eq!(dynamic("none (voluntary) full \n", ""), Never);
        assert_eq!(dynamic("none voluntary full (lazy) \n", "preempt=none"), InFunctions);
        assert_eq!(dynamic("", "root=/dev/vda preempt=full preempt=none"), Never);
        assert_eq!([dynamic("", "root=/dev/vda"), dynamic("", "preempt=full")], [InFunctions; 2]);
        let rt = Preempts::of("6.12.57", "#1 SMP PREEMPT_RT", "none (voluntary) full", "preempt=none");
        assert_eq!(rt, InFunctions, "what it says of itself is about another kind of kernel");
    }
}
