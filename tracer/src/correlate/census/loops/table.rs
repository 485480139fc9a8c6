//! The loops of a kubelet, as data: by which functions each is recognised, and what stops with it.
//!
//! Read in the sources of Kubernetes 1.20 to 1.36. The functions of a loop have kept their names with the exceptions that are in the
//! table; one that gets another name is not recognised, and then nothing is claimed of it.

/// A loop of a kubelet, or a piece of work that it does on a goroutine of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LoopKind {
    /// Takes every change to a pod, one after the other.
    SyncLoop,
    /// Asks every five seconds whether the runtime is up, and starts what depends on it.
    RuntimeCheck,
    /// Reports the state of the node.
    NodeStatus,
    /// Renews the lease of the node.
    NodeLease,
    /// Reports the states of pods.
    PodStatus,
    /// Decides what is to be mounted.
    VolumePopulator,
    /// Has it mounted and unmounted.
    VolumeReconciler,
    /// Registers plugins.
    PluginRegistration,
    /// Evicts pods when the node runs out of something.
    Eviction,
    /// Removes dead containers.
    ContainerCollection,
    /// Removes images, and lists those that are there.
    ImageCollection,
    /// Works for one pod.
    PodWorker,
    /// Mounts or unmounts one volume.
    VolumeOperation,
    /// Probes one container.
    Probe,
}

/// What is known of a loop.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) kind: LoopKind,
    name: &'static str,
    /// What stops when it does.
    stops: &'static str,
    /// How far that reaches: 2 every pod, or the node; 1 one pod, or what can wait.
    reach: u8,
    /// Its own functions: each is part of a full Go name. When the innermost function of a goroutine is one of these, it waits for its
    /// next piece of work.
    pub(super) functions: &'static [&'static str],
}

/// All of them.
pub(super) const ROWS: [Row; 14] = [
    Row {
        kind: LoopKind::SyncLoop,
        name: "the sync loop",
        stops: "no pod of this node is started, changed or removed",
        reach: 2,
        functions: &["pkg/kubelet.(*Kubelet).syncLoop"],
    },
    Row {
        kind: LoopKind::RuntimeCheck,
        name: "the check of the runtime",
        stops: "the node becomes or stays NotReady: the kubelet does not learn whether its runtime is up",
        reach: 2,
        functions: &["pkg/kubelet.(*Kubelet).updateRuntimeUp"],
    },
    Row {
        kind: LoopKind::NodeStatus,
        name: "the report of the node's status",
        stops: "the API server does not hear of the node's state",
        reach: 2,
        // The first report of a kubelet has a loop of its own (1.14 to 1.26 `fastStatusUpdateOnce`, since then `fastNodeStatusUpdate`).
        functions: &[
            "pkg/kubelet.(*Kubelet).syncNodeStatus",
            "pkg/kubelet.(*Kubelet).fastStatusUpdateOnce",
            "pkg/kubelet.(*Kubelet).fastNodeStatusUpdate",
        ],
    },
    Row {
        kind: LoopKind::NodeLease,
        name: "the renewal of the node's lease",
        // node-monitor-grace-period of the controller manager: kubernetes PR 126287.
        stops: "the node becomes NotReady (Unknown) 40 s after its last renewal (50 s from Kubernetes 1.32)",
        reach: 2,
        functions: &["apimachinery/lease.(*controller).Run", "apimachinery/lease.(*controller).sync"],
    },
    Row {
        kind: LoopKind::PodStatus,
        name: "the report of pod statuses",
        stops: "the API server does not hear of any change to a pod: none becomes Ready, deleted ones stay Terminating",
        reach: 2,
        functions: &["pkg/kubelet/status.(*manager).Start"],
    },
    Row {
        kind: LoopKind::VolumePopulator,
        name: "the volume populator",
        stops: "no pod with volumes is started",
        reach: 2,
        functions: &["volumemanager/populator.(*desiredStateOfWorldPopulator).Run", ").populatorLoop"],
    },
    Row {
        kind: LoopKind::VolumeReconciler,
        name: "the volume reconciler",
        stops: "no volume is mounted or unmounted",
        reach: 2,
        functions: &["volumemanager/reconciler.(*reconciler)."],
    },
    Row {
        kind: LoopKind::PluginRegistration,
        name: "the registration of plugins",
        stops: "no device plugin or driver that is started now is registered",
        reach: 1,
        functions: &["pluginmanager/reconciler.(*reconciler)."],
    },
    Row {
        kind: LoopKind::Eviction,
        name: "the eviction manager",
        stops: "no pod is evicted when memory or disk run short",
        reach: 1,
        functions: &["pkg/kubelet/eviction.(*managerImpl).Start"],
    },
    Row {
        kind: LoopKind::ContainerCollection,
        name: "the removal of dead containers",
        stops: "dead containers are not removed",
        reach: 1,
        functions: &["pkg/kubelet.(*Kubelet).StartGarbageCollection.func1"],
    },
    Row {
        kind: LoopKind::ImageCollection,
        name: "the removal of images",
        stops: "images are not removed when the disk is full",
        reach: 1,
        functions: &[
            "pkg/kubelet.(*Kubelet).StartGarbageCollection.func2",
            "pkg/kubelet/images.(*realImageGCManager).Start",
        ],
    },
    Row {
        kind: LoopKind::PodWorker,
        name: "the worker of one pod",
        stops: "that pod is not started, changed or removed",
        reach: 1,
        // `podWorkerLoop` since Kubernetes 1.27.
        functions: &["pkg/kubelet.(*podWorkers).managePodLoop", "pkg/kubelet.(*podWorkers).podWorkerLoop"],
    },
    Row {
        kind: LoopKind::VolumeOperation,
        name: "the mount or unmount of one volume",
        stops: "the pod of that volume is not started or removed",
        reach: 1,
        functions: &["pkg/volume/util/operationexecutor.(*operationGenerator).Generate"],
    },
    Row {
        kind: LoopKind::Probe,
        name: "the probe of one container",
        stops: "that container is not probed",
        reach: 1,
        functions: &["pkg/kubelet/prober.(*worker).run"],
    },
];

impl LoopKind {
    fn row(self) -> &'static Row {
        // Each kind has a row: a test sees to it.
        ROWS.iter().find(|row| row.kind == self).unwrap_or(&ROWS[0])
    }

    /// What it is called: "the sync loop".
    #[must_use]
    pub fn words(self) -> &'static str {
        self.row().name
    }

    /// What stops when it does, as a sentence without a subject of this node.
    #[must_use]
    pub fn stops(self) -> &'static str {
        self.row().stops
    }

    /// How far that reaches, as `Stuck::reach`: 2 every pod, or the node; 1 one pod, or what can wait.
    #[must_use]
    pub fn reach(self) -> u8 {
        self.row().reach
    }

    /// Stable name for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SyncLoop => "sync_loop",
            Self::RuntimeCheck => "runtime_check",
            Self::NodeStatus => "node_status",
            Self::NodeLease => "node_lease",
            Self::PodStatus => "pod_status",
            Self::VolumePopulator => "volume_populator",
            Self::VolumeReconciler => "volume_reconciler",
            Self::PluginRegistration => "plugin_registration",
            Self::Eviction => "eviction",
            Self::ContainerCollection => "container_collection",
            Self::ImageCollection => "image_collection",
            Self::PodWorker => "pod_worker",
            Self::VolumeOperation => "volume_operation",
            Self::Probe => "probe",
        }
    }

    /// The loop of a goroutine, and where in its stack, innermost first, the loop's own functions begin. The outermost function that is
    /// one of a loop decides: the goroutine was started for it.
    pub(super) fn of(frames: &[String]) -> Option<(Self, usize)> {
        let row = |frame: &String| ROWS.iter().find(|row| row.has(frame));
        let row = frames.iter().rev().find_map(row)?;
        let place = frames.iter().position(|frame| row.has(frame))?;
        Some((row.kind, place))
    }
}

impl Row {
    fn has(&self, frame: &str) -> bool {
        self.functions.iter().any(|function| frame.contains(function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBELET: &str = "k8s.io/kubernetes/pkg/kubelet";

    fn of(frames: &[&str]) -> Option<(LoopKind, usize)> {
        LoopKind::of(&frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>())
    }

    /// Each kind is itself, and has words of its own.
    #[test]
    fn rows() {
        for (place, row) in ROWS.iter().enumerate() {
            assert!(std::ptr::eq(row.kind.row(), row) || row.kind.row().name == row.name, "{:?}", row.kind);
            let others = || ROWS[..place].iter().map(|other| other.kind);
            assert!(others().all(|other| other != row.kind && other.name() != row.kind.name()));
            assert!((1..=2).contains(&row.kind.reach()) && !row.kind.stops().is_empty());
        }
    }

    /// Pod workers of kubelets before and since 1.27, the loops of the volume manager before and since 1.25, with and without `vendor`.
    #[test]
    fn old_and_new_kubelets() {
        let wait = "k8s.io/kubernetes/vendor/k8s.io/apimachinery/pkg/util/wait.BackoffUntil";
        let [manage, work] =
            ["managePodLoop", "podWorkerLoop"].map(|name| format!("{KUBELET}.(*podWorkers).{name}"));
        let start = format!("{KUBELET}.(*podWorkers).UpdatePod.func1");
        assert_eq!(of(&["runtime.chanrecv", &manage, &start]), Some((LoopKind::PodWorker, 1)));
        assert_eq!(of(&["runtime.chanrecv", &work, &start]), Some((LoopKind::PodWorker, 1)));
        for name in ["reconciliationLoopFunc.func1", "reconcile", "runOld", "runNew", "Run", "reconcileNew"] {
            let frame = format!("{KUBELET}/volumemanager/reconciler.(*reconciler).{name}");
            assert_eq!(of(&["os.Stat", &frame, wait]), Some((LoopKind::VolumeReconciler, 1)), "{name}");
        }
        for package in ["k8s.io/kubernetes/vendor/k8s.io/component-helpers", "k8s.io/component-helpers"] {
            let frame = format!("{package}/apimachinery/lease.(*controller).sync");
            assert_eq!(of(&["x", &frame, wait]), Some((LoopKind::NodeLease, 1)));
        }
        let plugins = format!("{KUBELET}/pluginmanager/reconciler.(*reconciler).Run.func1");
        assert_eq!(of(&[&plugins]), Some((LoopKind::PluginRegistration, 0)));
    }

    /// What a loop calls of another's does not make it that one; who only calls a manager is no loop of it.
    #[test]
    fn the_outermost_decides() {
        let (sync, iteration) =
            (format!("{KUBELET}.(*Kubelet).syncLoop"), format!("{KUBELET}.(*Kubelet).syncLoopIteration"));
        let volumes = format!("{KUBELET}/volumemanager/reconciler.(*reconciler).x");
        assert_eq!(of(&["x", &volumes, &iteration, &sync]), Some((LoopKind::SyncLoop, 2)));
        let set = format!("{KUBELET}/status.(*manager).SetPodStatus");
        assert_eq!(of(&["sync.(*Mutex).Lock", &set, "main.x"]), None);
        assert_eq!(of(&[]), None);
    }
}
