//! All faults by name, for tables of tests and for the command line.

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;

use super::changed_pods::PODS;
use super::frozen::Freezer;
use super::guard::{Facts, Fault};
use super::stopped::stopped_fault;
use super::{
    agent_before_kubelet, cni_deadlock, cni_flock, cni_reload, dead_fuse, dead_mount, dead_volume,
    deadlocked_shim, exec_pipe_held, exec_storm, fork_storm, freezing_init, frozen_container, frozen_shim,
    full_channel, hanging_volume, hog, jammed_socket, kill_containerd, kill_kubelet, large_list,
    late_runtime, lock_hostage, locked_kubelet, lost_exit, many_changed_pods, nri_locks, old_shim,
    orphaned_init, quota, rc93_hang, rc93_standalone, restart_containerd, self_locked_shim, silent_agent,
    silent_api_server, silent_cni_agent, silent_old_shim, silent_registry, sleeping_cni, sleeping_hook,
    sleeping_poststop, slow_cni, slow_unmount, status_hangs, stop_containerd, stop_kubelet, stop_shim,
    stopped_cni_agent, stopped_device_plugin, traced_exit, unkillable, unmount_hostage,
};
use crate::disk;
use crate::knobs::{Generation, Knobs, ShimBuild};
use crate::node::Node;

/// What the slow network plugin takes.
const SLOW_SECONDS: u32 = 3;

/// A fault's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// The shim of a pod is stopped by a signal: ExecSync into it hangs.
    ShimStopped,
    /// The shim of a pod is in a frozen cgroup: ExecSync into it hangs.
    ShimFrozen,
    /// An update of a container waits for a stopped shim under a lock that every ListContainers needs.
    LockHostage,
    /// containerd is stopped by a signal: every call hangs.
    ContainerdStopped,
    /// containerd was killed and nobody started it again.
    ContainerdKilled,
    /// The kubelet is stopped by a signal: nobody lists.
    KubeletStopped,
    /// The kubelet was killed and nobody started it again.
    KubeletKilled,
    /// The genuine runc 1.0.0-rc93 hangs on a large seccomp profile: StartContainer hangs.
    Rc93,
    /// The same without containerd: `runc create` of a bundle hangs.
    Rc93Standalone,
    /// A `runc init` waits at exec.fifo, and nobody is left to start it.
    OrphanedInit,
    /// A createRuntime hook sleeps: StartContainer hangs in runc create.
    Hook,
    /// A poststop hook sleeps: StopContainer hangs in runc delete.
    Poststop,
    /// ExecSync whose command has ended but left a child that holds its output open.
    ExecPipe,
    /// A container is in a frozen cgroup: StopContainer hangs.
    ContainerFrozen,
    /// A `runc init` waits in execve for a thread of its own that is frozen, and `runc kill` for the freezer.
    Freezing,
    /// A process that traces that of a container never asks how it ended: StopContainer hangs.
    TracedExit,
    /// A shim with a bug never reports the end of a container: StopContainer hangs.
    LostExit,
    /// A CNI plugin never ends: RunPodSandbox hangs.
    Cni,
    /// A CNI plugin waits for an agent in a container, which does not answer: RunPodSandbox hangs.
    CniAgent,
    /// A CNI plugin waits for a service of the host that is stopped by a signal: RunPodSandbox hangs.
    CniAgentStopped,
    /// No fault, a decoy: a CNI plugin takes three seconds.
    CniSlow,
    /// Two CNI plugins need one lock: two RunPodSandbox hang.
    CniFlock,
    /// A CNI plugin never ends, and a reload of the configuration waits for it: `Status` hangs behind both.
    CniReload,
    /// go-cni waits for itself since a configuration changed while a plugin ran: `Status` and RunPodSandbox hang.
    CniDeadlock,
    /// containerd has locked itself out of NRI since a plugin asked for an update during one: UpdateContainerResources hangs.
    NriLocks,
    /// containerd was killed and runs again.
    ContainerdRestarted,
    /// containerd was down for long, and the kubelet waits before it connects to the new one.
    LateRuntime,
    /// containerd was killed, and its new start waits for a shim that is stopped: it serves nothing.
    OldShim,
    /// A shim waits for a lock of its own since the first process of a container died at once: StartContainer hangs.
    SelfLockedShim,
    /// The lock of a shim and its reaper wait for each other since commands ended while it started one: ExecSync hangs.
    DeadlockedShim,
    /// containerd was killed, and its new start waits for a shim that waits for itself: it serves nothing.
    SilentOldShim,
    /// containerd and a shim each wait for the other to read: every request to that shim hangs.
    JammedSocket,
    /// A container that has written much ends on a slow disk: StopContainer hangs behind its unmount.
    SlowUmount,
    /// The same, and an update of the container waits for that disk or shim, under the lock that every ListContainers needs.
    UmountHostage,
    /// `Status` hangs behind a reload of the CNI configuration, lists are answered.
    StatusHangs,
    /// A hook opens a file, and the program that must permit it does not answer: StartContainer hangs in runc create.
    SilentAgent,
    /// The kubelet opens a manifest, and the program that must permit it does not answer.
    AgentBeforeKubelet,
    /// A host path of a container is on a FUSE file system that does not answer: CreateContainer hangs.
    DeadMount,
    /// A hook opens a file on a FUSE file system that does not answer: StartContainer hangs in runc create.
    DeadFuse,
    /// The process of a container reads a file on a FUSE file system that does not answer: SIGKILL does not end it, and StopContainer hangs.
    Unkillable,
    /// The volume of a pod that is gone is on a FUSE file system that does not answer: the kubelet's sync loop hangs.
    DeadVolume,
    /// The driver of a volume does not come back from `mount`: its pod does not start.
    HangingVolume,
    /// A device plugin stops when it is asked for a device: the kubelet's sync loop hangs.
    DevicePlugin,
    /// A registry sends the beginning of a layer and then nothing: PullImage hangs.
    SilentRegistry,
    /// The API server is stopped by a signal: what the kubelet asks it hangs.
    SilentApiServer,
    /// The kubelet's sync loop waits for a lock that it has itself.
    LockedKubelet,
    /// Commands are executed in all pods all the time.
    ExecStorm,
    /// containerd is throttled by the quota of its cgroup: every call is late.
    Quota,
    /// Another thread has the only processor that containerd may use: every call is late.
    Hog,
    /// A shell that starts many short programs has the only processor that containerd may use: every call is late.
    ForkStorm,
    /// The relist of a kubelet of old waits for room in its event channel.
    FullChannel,
    /// The list of containers is larger than a message may be: every ListContainers is refused.
    LargeList,
    /// The kubelet was started again on a node with many containers.
    ManyChangedPods,
}

impl Kind {
    /// All of them.
    #[must_use]
    pub fn all() -> &'static [Kind] {
        Kind::value_variants()
    }

    /// Its name on the command line.
    ///
    /// # Panics
    ///
    /// Never: no fault is hidden.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().expect("no fault is hidden").get_name().to_owned()
    }

    /// The id of the root cause, as in the rules of diagnosis; `None` for what is no fault.
    #[must_use]
    pub fn root_cause(self) -> Option<&'static str> {
        match self {
            Kind::ShimStopped | Kind::ShimFrozen => Some("S10"),
            Kind::LockHostage => Some("R1"),
            Kind::ContainerdStopped => Some("R14"),
            Kind::ContainerdKilled | Kind::ContainerdRestarted => Some("R15"),
            Kind::KubeletStopped | Kind::KubeletKilled => Some("K7"),
            Kind::Rc93 | Kind::Rc93Standalone => Some("U1"),
            Kind::OrphanedInit => Some("U2"),
            Kind::Hook | Kind::Poststop => Some("U10"),
            Kind::ExecPipe => Some("R8"),
            Kind::ContainerFrozen => Some("U4"),
            Kind::Freezing => Some("U3"),
            Kind::TracedExit => Some("S11"),
            Kind::LostExit => Some("S4"),
            Kind::Cni => Some("N1"),
            Kind::CniAgent | Kind::CniAgentStopped => Some("N3"),
            Kind::CniSlow => None,
            Kind::CniFlock => Some("N2"),
            Kind::CniReload => Some("R6"),
            Kind::CniDeadlock => Some("R5"),
            Kind::NriLocks => Some("R16"),
            Kind::LateRuntime => Some("K8"),
            Kind::OldShim | Kind::SilentOldShim => Some("R9"),
            Kind::SelfLockedShim => Some("S7"),
            Kind::DeadlockedShim => Some("S1"),
            Kind::JammedSocket => Some("S2"),
            Kind::SlowUmount | Kind::UmountHostage => Some("R3"),
            Kind::StatusHangs => Some("L2"),
            Kind::SilentAgent | Kind::AgentBeforeKubelet => Some("X11"),
            Kind::DeadMount => Some("R12"),
            Kind::DeadFuse | Kind::Unkillable => Some("X6"),
            Kind::DeadVolume => Some("K5"),
            Kind::HangingVolume => Some("H1"),
            Kind::DevicePlugin => Some("K9"),
            Kind::SilentRegistry => Some("R17"),
            Kind::SilentApiServer => Some("L1"),
            Kind::LockedKubelet => Some("K10"),
            Kind::ExecStorm => Some("O2"),
            Kind::Quota | Kind::Hog | Kind::ForkStorm => Some("O1"),
            Kind::FullChannel => Some("K1"),
            Kind::LargeList => Some("K2"),
            Kind::ManyChangedPods => Some("K3"),
        }
    }

    /// Whether this machine can have it.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn check(self) -> Result<()> {
        match self {
            Kind::Freezing => Freezer::version_1().map(drop),
            Kind::SlowUmount | Kind::UmountHostage => {
                ensure!(disk::can_be_throttled(), "blkio of cgroups version 1 is not there");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What the node needs for it.
    #[must_use]
    pub fn knobs(self) -> Knobs {
        let gates = matches!(
            self,
            Kind::Hook
                | Kind::Poststop
                | Kind::Cni
                | Kind::CniAgent
                | Kind::CniAgentStopped
                | Kind::CniSlow
                | Kind::CniFlock
                | Kind::CniReload
                | Kind::CniDeadlock
                | Kind::SilentAgent
                | Kind::DeadFuse
                | Kind::SelfLockedShim
                | Kind::SilentOldShim
        );
        let blocking_pleg = self == Kind::FullChannel;
        let pods = if self == Kind::ManyChangedPods { PODS } else { 1 };
        // The lock is held for as long as a plugin runs since go-cni 1.1.12.
        let generation = match self {
            Kind::CniReload => Generation::V2_1,
            // Mended in ttrpc 1.1, which came with containerd 1.5.8.
            Kind::JammedSocket => Generation::V1_4,
            Kind::LostExit
            | Kind::CniDeadlock
            | Kind::NriLocks
            | Kind::SelfLockedShim
            | Kind::DeadlockedShim
            | Kind::SilentOldShim => Generation::V1_7,
            _ => Generation::default(),
        };
        let shim = match self {
            Kind::LostExit => ShimBuild::Lossy,
            Kind::SelfLockedShim | Kind::SilentOldShim => ShimBuild::SelfLocking,
            Kind::DeadlockedShim => ShimBuild::Deadlocking,
            _ => ShimBuild::Packaged,
        };
        let rc93 = self == Kind::Rc93;
        let disk = matches!(self, Kind::SlowUmount | Kind::UmountHostage);
        let deadlocking = self == Kind::CniDeadlock;
        let device_plugins = self == Kind::DevicePlugin;
        let control_plane = self == Kind::SilentApiServer;
        let locking_kubelet = self == Kind::LockedKubelet;
        Knobs {
            generation,
            rc93,
            shim,
            deadlocking,
            blocking_pleg,
            gates,
            pods,
            disk,
            nri: self == Kind::NriLocks,
            device_plugins,
            control_plane,
            locking_kubelet,
            ..Knobs::default()
        }
    }

    /// Injects it into a node of [`Kind::knobs`]; where a pod is needed, into the pod `pod`.
    ///
    /// # Errors
    ///
    /// When the pod does not run, or the effect is not seen.
    pub fn inject(self, node: &Node, pod: &str) -> Result<Fault> {
        let pod = || node.pod(pod);
        match self {
            Kind::ShimStopped => stop_shim(node, &pod()?),
            Kind::ShimFrozen => frozen_shim(node, &pod()?),
            Kind::LockHostage => {
                let hostage = lock_hostage(node.containerd(), &pod()?)?;
                let ids = vec![hostage.pod().sandbox.clone(), hostage.pod().container.clone()];
                let facts = Facts { pod: hostage.pod().name.clone(), ids, ..Facts::default() };
                let (stopped, update) = hostage.into_parts().context("the hostage has ended")?;
                Ok(stopped_fault(stopped, facts).holding(update))
            }
            Kind::ContainerdStopped => stop_containerd(node),
            Kind::ContainerdKilled => kill_containerd(node),
            Kind::KubeletStopped => stop_kubelet(node),
            Kind::KubeletKilled => kill_kubelet(node),
            Kind::Rc93 => rc93_hang(node, &pod()?),
            Kind::Rc93Standalone => rc93_standalone(node),
            Kind::OrphanedInit => orphaned_init(node),
            Kind::Hook => sleeping_hook(node, &pod()?),
            Kind::Poststop => sleeping_poststop(node, &pod()?),
            Kind::ExecPipe => exec_pipe_held(node, &pod()?),
            Kind::ContainerFrozen => frozen_container(node, &pod()?),
            Kind::Freezing => freezing_init(node),
            Kind::TracedExit => traced_exit(node, &pod()?),
            Kind::LostExit => lost_exit(node, &pod()?),
            Kind::Cni => sleeping_cni(node),
            Kind::CniAgent => silent_cni_agent(node, &pod()?),
            Kind::CniAgentStopped => stopped_cni_agent(node),
            Kind::CniSlow => slow_cni(node, SLOW_SECONDS),
            Kind::CniFlock => cni_flock(node),
            Kind::CniReload => cni_reload(node),
            Kind::CniDeadlock => cni_deadlock(node),
            Kind::NriLocks => nri_locks(node, &pod()?),
            Kind::ContainerdRestarted => restart_containerd(node),
            Kind::LateRuntime => late_runtime(node),
            Kind::OldShim => old_shim(node, &pod()?),
            Kind::SelfLockedShim => self_locked_shim(node, &pod()?),
            Kind::DeadlockedShim => deadlocked_shim(node, &pod()?),
            Kind::SilentOldShim => silent_old_shim(node, &pod()?),
            Kind::JammedSocket => jammed_socket(node, &pod()?),
            Kind::SlowUmount => slow_unmount(node, &pod()?),
            Kind::UmountHostage => unmount_hostage(node, &pod()?),
            Kind::StatusHangs => status_hangs(node),
            Kind::SilentAgent => silent_agent(node, &pod()?),
            Kind::AgentBeforeKubelet => agent_before_kubelet(node),
            Kind::DeadMount => dead_mount(node, &pod()?),
            Kind::DeadFuse => dead_fuse(node, &pod()?),
            Kind::Unkillable => unkillable(node, &pod()?),
            Kind::DeadVolume => dead_volume(node),
            Kind::HangingVolume => hanging_volume(node),
            Kind::DevicePlugin => stopped_device_plugin(node),
            Kind::SilentRegistry => silent_registry(node),
            Kind::SilentApiServer => silent_api_server(node),
            Kind::LockedKubelet => locked_kubelet(node),
            Kind::ExecStorm => exec_storm(node),
            Kind::Quota => quota(node),
            Kind::Hog => hog(node),
            Kind::ForkStorm => fork_storm(node),
            Kind::FullChannel => full_channel(node, &pod()?),
            Kind::LargeList => large_list(node, &pod()?),
            Kind::ManyChangedPods => many_changed_pods(node),
        }
    }
}
