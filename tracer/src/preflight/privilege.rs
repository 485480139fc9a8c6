//! What this process may do: capabilities, namespaces, lockdown, and how /proc is mounted.

use super::{
    facts::{Facts, HidePid, Lockdown},
    version::KernelVersion,
};
use crate::checks::{Check, State};

/// Numbers of capabilities (Linux include/uapi/linux/capability.h).
const DAC_READ_SEARCH: u32 = 2;
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const SYS_RESOURCE: u32 = 24;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// What else a container needs, as fields of a pod.
const POD: &str = "as a pod: hostPID: true, securityContext.privileged: true";

/// Has this process the capability? `false` when nothing is known.
fn has(facts: &Facts, capability: u32) -> bool {
    facts.capabilities.is_some_and(|bits| bits >> capability & 1 == 1)
}

/// May uprobes be attached through perf events? (CAP_SYS_ADMIN since the fix of CVE-2025-38466, Linux 6.16 and its
/// stable releases.)
pub(super) fn may_use_perf(facts: &Facts) -> bool {
    has(facts, SYS_ADMIN)
}

/// Does /proc show this process everything?
pub(super) fn may_look_into_processes(facts: &Facts) -> bool {
    has(facts, SYS_PTRACE)
}

/// Capabilities. Loading and attaching need CAP_SYS_ADMIN, or CAP_BPF with CAP_PERFMON through uprobe_multi; the
/// files of `/proc/PID` need CAP_SYS_PTRACE.
pub(super) fn privileges(facts: &Facts) -> Check {
    let check = |state, detail: String| Check::new("privileges", "privileges", state, detail);
    if facts.capabilities.is_none() {
        let detail = "/proc/self/status cannot be read: /proc is not mounted here".to_owned();
        return check(State::Fail, detail).hint("run: mount -t proc proc /proc");
    }
    let loads = has(facts, SYS_ADMIN) || (has(facts, BPF) && has(facts, PERFMON));
    let looks = has(facts, SYS_PTRACE);
    if loads && looks {
        return allowed(facts);
    }
    let mut missing = Vec::new();
    if !loads {
        missing.push("CAP_SYS_ADMIN (or CAP_BPF and CAP_PERFMON) to load and attach probes");
    }
    if !looks {
        missing.push("CAP_SYS_PTRACE to inspect the kubelet and the runtime");
    }
    let missing = missing.join(", and ");
    if facts.initial_pid_ns == Some(false) {
        let detail = format!("not enough privileges in this container: it lacks {missing}");
        return check(State::Fail, detail).hint(POD);
    }
    match facts.euid {
        Some(0) => check(State::Fail, format!("not enough privileges: root, but without {missing}"))
            .hint("run plegtrace as root with all capabilities"),
        _ => {
            check(State::Fail, format!("not enough privileges: needs {missing}")).hint("run: sudo plegtrace")
        }
    }
}

/// Enough to run; perhaps not enough for everything.
fn allowed(facts: &Facts) -> Check {
    let check = |state, detail: &str| Check::new("privileges", "privileges", state, detail);
    let old = facts.version.is_some_and(|v| v < KernelVersion::new(5, 11));
    if old && !has(facts, SYS_RESOURCE) {
        // Before 5.11 the memory of maps counts against RLIMIT_MEMLOCK.
        return check(State::Warn, "without CAP_SYS_RESOURCE the limit of locked memory cannot be raised")
            .hint("first run: ulimit -l unlimited");
    }
    if facts.euid != Some(0) && !has(facts, DAC_READ_SEARCH) {
        return check(State::Warn, "without CAP_DAC_READ_SEARCH some files of root cannot be read");
    }
    let detail = if has(facts, SYS_ADMIN) {
        "CAP_SYS_ADMIN and CAP_SYS_PTRACE"
    } else {
        "CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"
    };
    check(State::Ok, detail)
}

/// bpf(2) asks for capabilities in the first user namespace.
pub(super) fn user_namespace(facts: &Facts) -> Check {
    let check = |state, detail: &str| Check::new("user_namespace", "user namespace", state, detail);
    match facts.initial_user_ns {
        Some(true) => check(State::Ok, "the node's own"),
        Some(false) => {
            check(State::Fail, "root only inside a user namespace, where the kernel does not allow tracing")
                .hint("run plegtrace on the node itself, or as a pod with hostUsers: true")
        }
        None => check(State::Unknown, "/proc/self/ns/user cannot be read"),
    }
}

/// The kernel side names processes by the numbers of the first pid namespace.
pub(super) fn pid_namespace(facts: &Facts) -> Check {
    let check = |state, detail: &str| Check::new("pid_namespace", "pid namespace", state, detail);
    match facts.initial_pid_ns {
        Some(true) => check(State::Ok, "the node's own"),
        Some(false) => check(
            State::Fail,
            "running in a pid namespace of its own, from which the node's processes cannot be seen",
        )
        .hint(
            "as a pod: hostPID: true; with docker: --pid=host; in a node that is a container: run it outside",
        ),
        None => check(State::Unknown, "/proc/self/ns/pid cannot be read"),
    }
}

/// Lockdown for confidentiality forbids bpf_probe_read_kernel, and programs that call it do not load.
pub(super) fn lockdown(facts: &Facts) -> Check {
    let check = |state, detail: &str| Check::new("lockdown", "kernel lockdown", state, detail);
    match facts.lockdown {
        Lockdown::Open(level) => check(State::Ok, level),
        Lockdown::NotBuilt => check(State::Ok, "this kernel has none"),
        // Not a reason to doubt: at confidentiality the programs do not load, and that is said then.
        Lockdown::Unknown => {
            check(State::Warn, "/sys/kernel/security/lockdown cannot be read: securityfs is not mounted")
        }
        Lockdown::Confidentiality => check(
            State::Fail,
            "kernel lockdown is set to confidentiality, which forbids BPF programs to read kernel memory",
        )
        .hint("boot with lockdown=integrity"),
    }
}

/// With `hidepid`, /proc shows the processes of others only to CAP_SYS_PTRACE.
pub(super) fn hidepid(facts: &Facts) -> Check {
    let check = |state, detail: &str| Check::new("hidepid", "/proc", state, detail);
    match facts.hidepid {
        Some(HidePid::Off) => check(State::Ok, "shows every process"),
        Some(HidePid::On) if may_look_into_processes(facts) => {
            check(State::Ok, "is mounted with hidepid, which CAP_SYS_PTRACE overrides")
        }
        Some(HidePid::On) => {
            check(State::Warn, "is mounted with hidepid: processes of other users are hidden")
                .hint("run: sudo plegtrace")
        }
        None => check(State::Unknown, "its mount options cannot be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::sample::node;

    fn caps(list: &[u32]) -> u64 {
        list.iter().map(|c| 1u64 << c).sum()
    }

    /// No capability at all: sudo is the advice, outside of containers.
    #[test]
    fn ordinary_user() {
        let facts = Facts { euid: Some(1000), capabilities: Some(0), ..node() };
        let check = privileges(&facts);
        assert_eq!((check.state, check.hint.as_deref()), (State::Fail, Some("run: sudo plegtrace")));
        let facts = Facts { initial_pid_ns: Some(false), ..facts };
        assert!(privileges(&facts).hint.unwrap().contains("hostPID: true"));
    }

    /// root without the capabilities is told which ones.
    #[test]
    fn root_without_capabilities() {
        let facts = Facts { capabilities: Some(caps(&[SYS_ADMIN])), ..node() };
        let check = privileges(&facts);
        assert_eq!(check.state, State::Fail);
        assert!(check.detail.contains("CAP_SYS_PTRACE") && !check.detail.contains("CAP_BPF"));
    }

    /// CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE are enough to load and to look.
    #[test]
    fn few_capabilities() {
        let few = caps(&[BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH]);
        let facts = Facts { euid: Some(1000), capabilities: Some(few), ..node() };
        assert_eq!(privileges(&facts).state, State::Ok);
        assert!(!may_use_perf(&facts));
        let facts = Facts { capabilities: Some(few & !caps(&[DAC_READ_SEARCH])), ..facts };
        assert_eq!(privileges(&facts).state, State::Warn);
    }

    /// Before 5.11 maps are locked memory.
    #[test]
    fn locked_memory() {
        let most = !caps(&[SYS_RESOURCE]);
        let old = Facts { capabilities: Some(most), version: Some(KernelVersion::new(5, 10)), ..node() };
        assert_eq!(privileges(&old).state, State::Warn);
        assert_eq!(privileges(&Facts { version: Some(KernelVersion::new(6, 1)), ..old }).state, State::Ok);
    }

    /// Confidentiality stops us, integrity does not, and nobody knows is not a failure.
    #[test]
    fn lockdown_levels() {
        let of = |lockdown| super::lockdown(&Facts { lockdown, ..node() }).state;
        assert_eq!(of(Lockdown::Confidentiality), State::Fail);
        assert_eq!(of(Lockdown::Open("integrity")), State::Ok);
        assert_eq!(of(Lockdown::NotBuilt), State::Ok);
        assert_eq!(of(Lockdown::Unknown), State::Warn);
    }

    /// Namespaces other than the first stop us.
    #[test]
    fn namespaces() {
        let facts = Facts { initial_user_ns: Some(false), initial_pid_ns: Some(false), ..node() };
        assert_eq!(user_namespace(&facts).state, State::Fail);
        assert!(pid_namespace(&facts).hint.unwrap().contains("hostPID: true"));
    }

    /// `hidepid` matters only without CAP_SYS_PTRACE.
    #[test]
    fn hidden_processes() {
        let facts = Facts { hidepid: Some(HidePid::On), ..node() };
        assert_eq!(hidepid(&facts).state, State::Ok);
        assert_eq!(hidepid(&Facts { capabilities: Some(0), ..facts }).state, State::Warn);
    }
}
