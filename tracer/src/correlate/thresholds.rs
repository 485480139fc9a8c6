//! When something takes too long, and where each figure comes from.

use super::programs::{cni_late_after_ns, hook_late_after_ns};
use crate::{
    cri::{DEADLINE_NS, Lasts, Method},
    input::{Command, Component},
};

/// One second.
pub const SECOND_NS: u64 = 1_000_000_000;
/// The kubelet starts a relist this long after the last one ended (`plegRelistPeriod`, kubelet.go).
pub const RELIST_PERIOD_NS: u64 = SECOND_NS;
/// The kubelet reports "PLEG is not healthy" when the last successful list is older (`relistThreshold`, generic.go).
pub const PLEG_THRESHOLD_NS: u64 = 180 * SECOND_NS;
/// With EventedPLEG it is this long: changes come by the stream of `GetContainerEvents` (`eventedPlegRelistPeriod`).
pub const EVENTED_PERIOD_NS: u64 = 300 * SECOND_NS;
/// The same threshold with EventedPLEG (`eventedPlegRelistThreshold`).
pub const EVENTED_THRESHOLD_NS: u64 = 600 * SECOND_NS;

/// A relist open longer is a stall: three periods; a busy, healthy node needs well under one second.
pub const RELIST_OPEN_NS: u64 = 3 * RELIST_PERIOD_NS;
/// A stall that is younger may be the first sign of a larger one: a relist that waits behind it counts as open only after
/// [`RELIST_OPEN_NS`], began up to a period later, and is looked at once a second.
pub const SETTLED_NS: u64 = RELIST_OPEN_NS + 3 * SECOND_NS;
/// What stands still for less was perhaps only held for a moment, by a debugger or a dump of its memory: an observation
/// does not end because of it. What two looks see counts from the first to the last.
pub const STILL_NS: u64 = 3 * SECOND_NS;
/// A last successful list older than this is a stall, long before the kubelet's own threshold.
pub const LAST_LIST_NS: u64 = 10 * SECOND_NS;
/// A call open longer is a stall, unless its operation is one of those below.
pub const CALL_OPEN_NS: u64 = 10 * SECOND_NS;
/// A call that may last as long as what it was asked for is a stall, too, once it is open for [`CALL_OPEN_NS`] and has waited so long
/// at one place for a lock or for a shim: that is no part of the work. Of work through a disk (`RemoveImage`, lists of statistics) only
/// a lock counts: such a list asks shim after shim.
pub const HELD_NS: u64 = 5 * SECOND_NS;
/// `RunPodSandbox` and `StopPodSandbox` wait for the network plugin: slow from here on. The deadline of the former is
/// twice the normal one.
pub const POD_SANDBOX_NS: u64 = 30 * SECOND_NS;
/// `StopContainer` waits for the grace period of the pod on top of the deadline. One of 30 s, which is the usual one, is
/// over after this time; pods that drain their clients have one of hours or days.
pub const STOP_CONTAINER_NS: u64 = DEADLINE_NS + 30 * SECOND_NS;

/// In Kubernetes every command of runc is short; one open longer is an anomaly whatever the workload does. The same
/// holds for `runc init` until it becomes the workload: in a container that was created it waits for `runc start`,
/// which follows at once.
pub const RUNC_NS: u64 = 5 * SECOND_NS;
/// Whoever answers a call over D-Bus does so in milliseconds, systemd with a job that it has queued; one without an answer
/// for longer is a stall. Every command of runc that makes one is late by then.
pub const BUS_NS: u64 = RUNC_NS;
/// A CNI plugin open longer is a stall: it waits for its agent, or for a lock.
pub const CNI_NS: u64 = 10 * SECOND_NS;
/// An OCI hook open longer is a stall: its runc waits for it, and is late itself then. Where containerd gives a deletion
/// 10 s and tries again, no hook gets older than that.
pub const HOOK_NS: u64 = RUNC_NS;
/// A call to a file system that lasts longer is a stall: a disk needs milliseconds, a server that is alive a second or two.
pub const FILE_CALL_NS: u64 = 5 * SECOND_NS;
/// containerd gives a shim this long to delete the task of a container that has ended (`handleEventTimeout`, events.go of its CRI
/// part), and tries again later.
pub const TASK_DELETE_NS: u64 = 10 * SECOND_NS;
/// A shim that starts or deletes another, open longer is a stall.
pub const SHIM_HELPER_NS: u64 = 10 * SECOND_NS;
/// An exit that nobody has asked for after this time will probably never be asked for.
pub const UNREAPED_NS: u64 = 10 * SECOND_NS;
/// A runtime learns of the end of a container within milliseconds; one that does not know of it after this time has missed it.
pub const UNREPORTED_NS: u64 = 10 * SECOND_NS;
/// A containerd whose shims answer serves within a second or two of its start, also on a full node; one that takes longer is
/// held up by one of them (5 s for each, where there is a limit).
pub const STARTUP_NS: u64 = 10 * SECOND_NS;
/// The output of a command that has ended is drained within this time (containerd waits 10 s where it waits at all).
pub const EXEC_OUTPUT_NS: u64 = 10 * SECOND_NS;

/// The age from which a process with this command is late; `None`: never by its age. What runc runs is a hook; of other helpers
/// [`super::helpers`] knows.
#[must_use]
pub fn late_after_ns(command: &Command, parent: Option<Component>) -> Option<u64> {
    match command {
        Command::Runc { sub, .. } | Command::Oci { sub, .. } if waits_for_its_command(sub, parent) => None,
        Command::Runc { sub, .. } | Command::Oci { sub, .. } => runc_late_after_ns(sub),
        Command::Cni { plugin, .. } => Some(cni_late_after_ns(plugin)),
        Command::Shim { action, .. } => action.is_some().then_some(SHIM_HELPER_NS),
        Command::Other { program } => (parent == Some(Component::Runc)).then(|| hook_late_after_ns(program)),
    }
}

/// The connections of a runtime are looked at once a pull of an image is so old.
pub const PULL_NS: u64 = 10 * SECOND_NS;
/// No byte of an image for so long, while its pull waits for the registry, is a stall. containerd gives up after five minutes of
/// that (`image_pull_progress_timeout`, 1.7 and later; one minute in its first version), and CRI-O and older ones never.
pub const PULL_SILENT_NS: u64 = 60 * SECOND_NS;
/// What is slow is what was slow in this time.
pub const RECENT_NS: u64 = 60 * SECOND_NS;
/// A relist makes at least so many calls: one for sandboxes, one for containers.
pub const RELIST_CALLS: u64 = 2;
/// Half of the commands of runc take longer on no sound node: 30 to 100 ms are usual, with hooks and systemd 500 ms.
pub const RUNC_SLOW_NS: u64 = SECOND_NS;
/// The same for network plugins: 50 ms to 1 s are usual, 3 s not rare where an agent answers over the network.
pub const CNI_SLOW_NS: u64 = 5 * SECOND_NS;

/// The same for OCI hooks, for which a container's start waits: most write a file, some ask a device.
pub const HOOK_SLOW_NS: u64 = SECOND_NS;
/// Half of the commands that a shim executes take no more of its own time on a sound node, without the runc that it runs: 5 to
/// 20 ms are usual, 100 ms on a busy node.
pub const SHIM_SLOW_NS: u64 = SECOND_NS / 2;

/// For so long after a loss a verdict is in doubt: what was lost could have been about what is open now. After that, reading
/// the open calls again and again has made up for it.
pub const LOSS_COUNTS_NS: u64 = 60 * SECOND_NS;

/// A handler has this long to notice that its caller has given up.
pub const ABANDONED_AFTER_NS: u64 = SECOND_NS;

/// The age from which an open call of this operation is a stall; `None`: never by its age.
#[must_use]
pub fn stuck_after_ns(operation: &str) -> Option<u64> {
    match Method::from_name(operation).map_or(Lasts::Briefly, |method| method.facts().lasts) {
        Lasts::Briefly => Some(CALL_OPEN_NS),
        Lasts::Network => Some(POD_SANDBOX_NS),
        Lasts::Work => Some(DEADLINE_NS),
        // An image may take an hour, and so may the command of a hook, or the grace period of a pod. When the kubelet
        // gives up, the handler is abandoned.
        Lasts::AsAsked | Lasts::Forever => None,
    }
}

/// The age from which a request to Docker is a stall: what is only read is answered at once, what changes something may run programs.
#[must_use]
pub fn docker_stuck_after_ns(method: &str) -> u64 {
    if method.starts_with("GET ") || method.starts_with("HEAD ") { CALL_OPEN_NS } else { POD_SANDBOX_NS }
}

/// CRI-O runs `exec` in the foreground, for as long as the command lasts that somebody asked for; containerd's shims detach it
/// (`execContainerCommand` in CRI-O's runtime_oci.go, `--detach` in containerd's process/exec.go).
#[must_use]
pub fn waits_for_its_command(sub: &str, parent: Option<Component>) -> bool {
    sub == "exec" && parent.is_some_and(|parent| matches!(parent, Component::Crio | Component::Conmon))
}

/// The age from which a command of runc is a stall; `None`: never by its age.
#[must_use]
pub fn runc_late_after_ns(sub: &str) -> Option<u64> {
    match sub {
        // These last as long as somebody looks on, or as the container's memory is large.
        "run" | "events" | "checkpoint" | "restore" => None,
        _ => Some(RUNC_NS),
    }
}
