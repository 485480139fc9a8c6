//! Faults that are injected for real into a running node, each with a guard that heals it when dropped (also by a
//! panic). An injection returns when the effect is seen in /proc, on the CRI, or both.
//!
//! | [`Kind`] | root cause | what hangs | what heals |
//! | --- | --- | --- | --- |
//! | `shim-stopped` | S10 | ExecSync into one pod | SIGCONT to the shim |
//! | `shim-frozen` | S10 | ExecSync into one pod | thaw of the shim's cgroup |
//! | `lock-hostage` | R1 | UpdateContainerResources, and with it every ListContainers | SIGCONT to the shim |
//! | `containerd-stopped` | R14 | every call | SIGCONT |
//! | `containerd-killed` | R15 | nothing: the socket refuses | a new start |
//! | `kubelet-stopped` | K7 | nothing: nobody asks | SIGCONT |
//! | `kubelet-killed` | K7 | nothing: nobody asks | a new start |
//! | `rc93` | U1 | StartContainer, in `runc create`, in `runc init` on its own pipe | SIGKILL of that init |
//! | `rc93-standalone` | U1 | `runc create` of a bundle, as above | SIGKILL of that init |
//! | `orphaned-init` | U2 | `runc init` in openat(2) of exec.fifo, without a parent | SIGKILL of that init |
//! | `hook` | U10 | StartContainer, in `runc create`, in a hook | SIGKILL of the hook |
//! | `poststop` | U10 | StopContainer, in `runc delete`, in a hook | SIGKILL of the hook |
//! | `exec-pipe` | R8 | ExecSync after the end of its command | SIGKILL of the child that holds the pipe |
//! | `container-frozen` | U4 | StopContainer: its SIGTERM is not delivered | thaw of the container's cgroup |
//! | `freezing` | U3 | `runc init` in execve, and `runc kill` behind a freezer that does not come to its end | thaw |
//! | `traced-exit` | S11 | StopContainer: the shim does not hear of the end of the container's process | SIGKILL of its tracer |
//! | `lost-exit` | S4 | StopContainer: the shim does not report the end of the container's process | SIGKILL of the shim |
//! | `cni` | N1 | RunPodSandbox, in a CNI plugin | SIGKILL of the plugin |
//! | `cni-agent` | N3 | RunPodSandbox, in a CNI plugin that waits for an agent in a container | the end of the container |
//! | `cni-agent-stopped` | N3 | RunPodSandbox, in a CNI plugin that waits for a service of the host | SIGKILL of the agent |
//! | `cni-slow` | none | RunPodSandbox for three seconds: a decoy | it ends by itself |
//! | `cni-flock` | N2 | two RunPodSandbox: one plugin waits in flock(2) for another | SIGKILL of both plugins |
//! | `cni-reload` | R6 | RunPodSandbox, in a CNI plugin; Status, behind a reload that waits for it (containerd 2.1) | SIGKILL of the plugin |
//! | `cni-deadlock` | R5 | RunPodSandbox and Status, in go-cni, which waits for itself | a new containerd |
//! | `containerd-restarted` | R15 | nothing any more: the calls in flight have failed | it is healed already |
//! | `late-runtime` | K8 | nothing: calls fail at once, until the kubelet connects to the new containerd | a new start of the kubelet |
//! | `old-shim` | R9 | the start of containerd, in the load of a stopped shim; its socket refuses | SIGCONT to the shim |
//! | `jammed-socket` | S2 | every request to one shim of containerd 1.4: each waits for the other to read | a new containerd |
//! | `self-locked-shim` | S7 | StartContainer: the shim waits for a lock of its own | SIGKILL of the shim |
//! | `deadlocked-shim` | S1 | ExecSync, and all else of one shim: its lock and its reaper wait for each other | SIGKILL of the shim |
//! | `silent-old-shim` | R9 | the start of containerd, in the load of a shim as of `self-locked-shim` | SIGKILL of the shim |
//! | `slow-umount` | R3 | StopContainer: the shim unmounts an overlay on a slow disk | no limit of that disk |
//! | `umount-hostage` | R3 | UpdateContainerResources, behind that disk or unmount, and with it every ListContainers | no limit of that disk |
//! | `nri-locks` | R16 | every start, stop and update of a container, in NRI | a new containerd |
//! | `status-hangs` | L2 | Status, behind a reload of the CNI configuration that reads a FIFO | the FIFO's other end |
//! | `silent-agent` | X11 | StartContainer, in `runc create`, in a hook, in open(2) | the end of the agent |
//! | `agent-before-kubelet` | X11 | a thread of the kubelet, in open(2) of a manifest | the end of the agent |
//! | `dead-mount` | R12 | CreateContainer, in stat(2) of a host path on FUSE | the end of the mount |
//! | `dead-fuse` | X6 | StartContainer, in `runc create`, in a hook, in open(2) of a file on FUSE | the end of the mount |
//! | `unkillable` | X6 | StopContainer: SIGKILL does not end a process that reads from FUSE | the end of the mount |
//! | `dead-volume` | K5 | the kubelet's sync loop, in stat(2) of a volume on FUSE whose pod is gone | the end of the mount |
//! | `hanging-volume` | H1 | the mount of a volume, in a driver of the kubelet | SIGKILL of the program that the driver runs |
//! | `device-plugin` | K9 | the kubelet's sync loop, in a call to a device plugin that has stopped itself | SIGCONT to the plugin |
//! | `silent-registry` | R17 | PullImage, for a layer that has begun to come | the end of the registry |
//! | `silent-api-server` | L1 | nothing of the runtime: the kubelet's requests to a stopped API server | SIGCONT |
//! | `locked-kubelet` | K10 | the kubelet's sync loop, at a lock that it has itself | a new start of the kubelet |
//! | `exec-storm` | O2 | nothing: all is a little late | the end of the threads that exec |
//! | `quota` | O1 | nothing: containerd is throttled by its cgroup, and all is late | containerd's own cgroup |
//! | `hog` | O1 | nothing: containerd waits for a CPU, and all is late | the end of the thread that has it |
//! | `fork-storm` | O1 | the same, for a shell that starts many short programs | the end of that shell |
//! | `full-channel` | K1 | the relist, in the send of an event | as `status-hangs`, and a new start of the kubelet |
//! | `large-list` | K2 | nothing: every ListContainers is refused | removal of the containers |
//! | `many-changed-pods` | K3 | nothing: one relist of a new kubelet is long | it is over by itself |
//!
//! Two need a node with Docker ([`crate::Knobs::docker`]) and have no [`Kind`]: [`container_lock`] (R11: the state of one
//! container, and with it the relist that asks for it; SIGCONT to the shim) and [`sleeping_cni_of_dockershim`] (N1:
//! PodSandboxStatus of one pod, and with it the relist; SIGKILL of the plugin).
//!
//! Root causes are named as in the rules of diagnosis. The faults of `rc93`, those of hooks and CNI plugins, those of rebuilt
//! programs, that of the full channel, that of the changed pods and that of the slow disk need a node that is prepared for them: [`Kind::knobs`].

mod answerers;
mod bundle;
mod changed_pods;
mod cni_agent;
mod cni_deadlock;
mod cni_reload;
mod container_lock;
mod crowded;
mod dead_volume;
mod deadlocked_shim;
mod device_plugin;
mod dockershim_cni;
mod exec_pipe;
mod extra;
mod few_files;
mod fork_storm;
mod freezing;
mod frozen;
mod full_channel;
mod gated;
mod guard;
mod hanging_volume;
mod held_off;
mod hostage;
mod jammed_socket;
mod kept_slow;
mod killed;
mod kind;
mod large_list;
mod late_runtime;
mod locked_kubelet;
mod lost_exit;
mod nri_locks;
mod old_shim;
mod quota;
mod relists;
mod runc_init;
mod self_locked_shim;
mod silent_api_server;
mod silent_registry;
mod slow_unmount;
mod slowed;
mod status;
mod stopped;
mod storm;
mod traced;
mod unkillable;

pub use answerers::{agent_before_kubelet, dead_fuse, dead_mount, silent_agent};
pub use changed_pods::{fill_pods, many_changed_pods};
pub use cni_agent::{silent_cni_agent, stopped_cni_agent};
pub use cni_deadlock::cni_deadlock;
pub use cni_reload::cni_reload;
pub use container_lock::{ContainerLock, container_lock};
pub use crowded::crowded;
pub use dead_volume::dead_volume;
pub use deadlocked_shim::deadlocked_shim;
pub use device_plugin::stopped_device_plugin;
pub use dockershim_cni::sleeping_cni_of_dockershim;
pub use exec_pipe::exec_pipe_held;
pub use few_files::no_more_files;
pub use fork_storm::{FORK_STORM, fork_storm};
pub use freezing::freezing_init;
pub use frozen::{frozen_container, frozen_shim, frozen_shim_unified};
pub use full_channel::full_channel;
pub use gated::{cni_flock, sleeping_cni, sleeping_hook, sleeping_poststop, slow_cni};
pub use guard::{Facts, Fault};
pub use hanging_volume::hanging_volume;
pub use held_off::{hog, throttled_until};
pub use hostage::{Hostage, lock_hostage};
pub use jammed_socket::jammed_socket;
pub use kept_slow::quota;
pub use killed::{kill_containerd, kill_kubelet, restart_containerd};
pub use kind::Kind;
pub use large_list::large_list;
pub use late_runtime::late_runtime;
pub use locked_kubelet::locked_kubelet;
pub use lost_exit::lost_exit;
pub use nri_locks::nri_locks;
pub use old_shim::{old_shim, silent_old_shim};
pub use quota::{LEAST_SHARE, throttle, throttled};
pub use runc_init::{orphaned_init, rc93_hang, rc93_standalone};
pub use self_locked_shim::self_locked_shim;
pub use silent_api_server::silent_api_server;
pub use silent_registry::silent_registry;
pub use slow_unmount::{slow_unmount, unmount_hostage};
pub use slowed::{slow_disk, slow_gate, slow_shim};
pub use status::status_hangs;
pub use stopped::{Stopped, stop_containerd, stop_kubelet, stop_process, stop_shim};
pub use storm::exec_storm;
pub use traced::traced_exit;
pub use unkillable::unkillable;
