//! [`Method`] and its facts: cri-api `runtime/v1/api.proto` (v1 and v1alpha2, with the streaming lists of KEP-5825),
//! the kubelet's CRI client (`remote_runtime.go`, `remote_image.go`), containerd 1.4 to 2.1 and CRI-O.

use super::{
    Deadline::{Double, Granted, None as Endless},
    Lasts::{AsAsked, Forever, Network, Work},
    Listed, MethodFacts,
    Program::{
        self, CniAdd, CniDel, RuncCreate, RuncDelete, RuncExec, RuncKill, RuncStart, RuncUpdate, ShimDelete,
        ShimStart,
    },
    Service, Subject, Takes,
};
use crate::cri::{Deadline, Lasts};

/// Declares [`Method`] and [`FACTS`] together, one row each.
macro_rules! methods {
    ($($name:ident = $facts:expr;)*) => {
        /// A method of the CRI.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "named as in the API, which documents them")]
        pub enum Method {
            $($name,)*
        }

        impl Method {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in the API.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The method of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($name) => Some(Self::$name),)*
                    _ => None,
                }
            }
        }

        /// By the number of the method.
        pub(super) static FACTS: [MethodFacts; Method::ALL.len()] = [$($facts,)*];
    };
}

/// A short call of the runtime service that is about nothing in particular.
const NODE: MethodFacts = MethodFacts {
    service: Service::Runtime,
    deadline: Deadline::Default,
    lasts: Lasts::Briefly,
    takes: Takes::Memory,
    lists: None,
    streams: false,
    needed_by_relist: false,
    essential: false,
    needs_processes: false,
    subject: Subject::Node,
    starts: &[],
    cleans_up_with: &[],
    starts_later_ns: 0,
};
const POD: MethodFacts = MethodFacts { subject: Subject::Pod, ..NODE };
const CONTAINER: MethodFacts = MethodFacts { subject: Subject::Container, ..NODE };
const IMAGE: MethodFacts = MethodFacts { service: Service::Image, subject: Subject::Image, ..NODE };

/// What follows the end of a container, whoever asked for it.
const AFTER_THE_END: &[Program] = &[RuncDelete, ShimDelete];
/// What cleans up a start that failed half-way.
const AFTER_A_FAILURE: &[Program] = &[RuncKill, RuncDelete, ShimDelete];
/// A stream can be begun this long after it was asked for (`cacheTTL` in cri/streaming/request_cache.go).
const STREAM_BEGINS_NS: u64 = 60 * 1_000_000_000;

const fn list(listed: Listed) -> MethodFacts {
    MethodFacts { lists: Some(listed), ..NODE }
}

const fn stream(list: MethodFacts) -> MethodFacts {
    MethodFacts { streams: true, ..list }
}

const fn of_relist(facts: MethodFacts) -> MethodFacts {
    MethodFacts { needed_by_relist: true, essential: true, ..facts }
}

const LIST_CONTAINERS: MethodFacts = of_relist(list(Listed::Containers));
const LIST_SANDBOXES: MethodFacts = of_relist(list(Listed::Sandboxes));
const LIST_IMAGES: MethodFacts = MethodFacts { lists: Some(Listed::Images), takes: Takes::Disk, ..IMAGE };
/// "Do not set timeout, because writable layer stats collection takes time."
const LIST_CONTAINER_STATS: MethodFacts =
    MethodFacts { deadline: Endless, lasts: Work, takes: Takes::Forks, ..list(Listed::ContainerStats) };
const LIST_SANDBOX_STATS: MethodFacts =
    MethodFacts { lasts: Work, takes: Takes::Forks, ..list(Listed::SandboxStats) };
const LIST_SANDBOX_METRICS: MethodFacts =
    MethodFacts { lasts: Work, takes: Takes::Forks, ..list(Listed::SandboxMetrics) };
/// It ends what runs in a pod, and what is left of it.
const END_OF_POD: MethodFacts =
    MethodFacts { takes: Takes::Disk, starts: &[CniDel, RuncKill], cleans_up_with: AFTER_THE_END, ..POD };
/// The same for one container.
const END_OF_CONTAINER: MethodFacts = MethodFacts {
    takes: Takes::Disk,
    starts: &[RuncKill],
    cleans_up_with: AFTER_THE_END,
    essential: true,
    ..CONTAINER
};

methods! {
    // The three answer with an address; the stream itself is no call of the CRI.
    Attach = CONTAINER;
    Exec = MethodFacts { starts: &[RuncExec], starts_later_ns: STREAM_BEGINS_NS, ..CONTAINER };
    PortForward = POD;
    // It writes the memory of its processes; who asks says how long that may take.
    CheckpointContainer =
        MethodFacts { deadline: Granted, lasts: AsAsked, takes: Takes::Asked, ..CONTAINER };
    ContainerStats = MethodFacts { takes: Takes::Fork, ..CONTAINER };
    ContainerStatus = of_relist(CONTAINER);
    // containerd creates a container in the runtime when it is started, CRI-O here.
    CreateContainer = MethodFacts {
        takes: Takes::Disk,
        subject: Subject::NewContainer,
        starts: &[RuncCreate],
        essential: true,
        ..NODE
    };
    ExecSync = MethodFacts {
        deadline: Granted,
        lasts: AsAsked,
        takes: Takes::Asked,
        starts: &[RuncExec],
        needs_processes: true,
        essential: true,
        ..CONTAINER
    };
    GetContainerEvents = MethodFacts { deadline: Endless, lasts: Forever, takes: Takes::Asked, streams: true, ..NODE };
    ImageFsInfo = MethodFacts { deadline: Endless, lasts: Work, takes: Takes::Disk, ..IMAGE };
    ImageStatus = IMAGE;
    ListContainerStats = LIST_CONTAINER_STATS;
    ListContainers = LIST_CONTAINERS;
    ListImages = LIST_IMAGES;
    ListMetricDescriptors = list(Listed::MetricDescriptors);
    ListPodSandbox = LIST_SANDBOXES;
    ListPodSandboxMetrics = LIST_SANDBOX_METRICS;
    ListPodSandboxStats = LIST_SANDBOX_STATS;
    PodSandboxStats = MethodFacts { takes: Takes::Fork, ..POD };
    PodSandboxStatus = of_relist(POD);
    PullImage = MethodFacts { deadline: Endless, lasts: AsAsked, takes: Takes::Asked, ..IMAGE };
    RemoveContainer = END_OF_CONTAINER;
    RemoveImage = MethodFacts { lasts: Work, takes: Takes::Disk, ..IMAGE };
    RemovePodSandbox = END_OF_POD;
    ReopenContainerLog = MethodFacts { takes: Takes::Disk, ..CONTAINER };
    RunPodSandbox = MethodFacts {
        deadline: Double,
        lasts: Network,
        takes: Takes::Network,
        subject: Subject::NewPod,
        starts: &[CniAdd, CniDel, RuncCreate, RuncStart, ShimStart],
        cleans_up_with: AFTER_A_FAILURE,
        essential: true,
        ..NODE
    };
    RuntimeConfig = NODE;
    StartContainer = MethodFacts {
        takes: Takes::Forks,
        subject: Subject::NewContainer,
        starts: &[RuncCreate, RuncStart, ShimStart],
        cleans_up_with: AFTER_A_FAILURE,
        essential: true,
        ..NODE
    };
    Status = MethodFacts { essential: true, ..NODE };
    StopContainer = MethodFacts {
        deadline: Granted,
        lasts: AsAsked,
        takes: Takes::Asked,
        needs_processes: true,
        ..END_OF_CONTAINER
    };
    // No grace period is part of it: the kubelet has stopped the containers before, what is left is killed.
    StopPodSandbox = MethodFacts { lasts: Network, takes: Takes::Network, needs_processes: true, ..END_OF_POD };
    StreamContainerStats = stream(LIST_CONTAINER_STATS);
    StreamContainers = stream(LIST_CONTAINERS);
    StreamImages = stream(LIST_IMAGES);
    StreamPodSandboxMetrics = stream(LIST_SANDBOX_METRICS);
    StreamPodSandboxStats = stream(LIST_SANDBOX_STATS);
    StreamPodSandboxes = stream(LIST_SANDBOXES);
    UpdateContainerResources = MethodFacts { takes: Takes::Fork, starts: &[RuncUpdate], essential: true, ..CONTAINER };
    UpdatePodSandboxResources = MethodFacts { takes: Takes::Fork, ..POD };
    UpdateRuntimeConfig = NODE;
    Version = NODE;
    // Of dockershim and old clients.
    GetContainerStatus = CONTAINER;
    GetPodSandboxStatus = POD;
}
