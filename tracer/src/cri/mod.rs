//! The Container Runtime Interface: what each of its methods means to a relist, to the kubelet and to the runtime.
//!
//! [`Method`] is the only place where plegtrace knows the CRI by name. Everything else asks it. Methods that it does not
//! know are still traced where they show up; they only have no special meaning. [`DockerCall`] is the same for Docker's API behind
//! dockershim and cri-dockerd.

mod docker;
mod request;
mod shim;
mod table;

pub use docker::{DockerCall, docker_call_lasts};
pub use request::request_lasts;
pub use shim::shim_call_lasts;
pub use table::Method;

/// The kubelet gives up a CRI call after this time (`--runtime-request-timeout`, default 2 min).
pub const DEADLINE_NS: u64 = 120 * 1_000_000_000;

/// A gRPC service of the CRI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// `runtime.v1.RuntimeService`
    Runtime,
    /// `runtime.v1.ImageService`
    Image,
}

/// How long the kubelet waits for an answer (`remote_runtime.go` and `remote_image.go` of its CRI client).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// [`DEADLINE_NS`].
    Default,
    /// Twice [`DEADLINE_NS`].
    Double,
    /// [`DEADLINE_NS`] and the time that the request itself grants: a grace period, or the timeout of a command. A
    /// command without a timeout has no deadline.
    Granted,
    /// It waits forever.
    None,
}

/// How long a healthy runtime takes to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// Well under a second.
    Briefly,
    /// As long as the network plugin takes.
    Network,
    /// As long as work through a disk takes that is large: whoever waits has minutes, and nobody else waits.
    Work,
    /// As long as what was asked for takes: an image, a command, a grace period.
    AsAsked,
    /// Until one side closes it: it is open by design.
    Forever,
}

/// What an answer takes on a sound node, by what the runtime does for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// It answers from memory: a millisecond or two.
    Memory,
    /// It writes, or walks directories: tens of milliseconds.
    Disk,
    /// One program, or one shim: some 50 ms.
    Fork,
    /// Several of them: some 200 ms.
    Forks,
    /// A network plugin too: as long as its agent takes.
    Network,
    /// As long as what was asked for takes.
    Asked,
}

impl Takes {
    /// Half of such calls take longer on no sound node, busy or not; `None`: nothing can be said. Each figure is far above
    /// what is usual, because a verdict rests on it.
    #[must_use]
    pub fn normal_ns(self) -> Option<u64> {
        let milliseconds = match self {
            Self::Memory => 50,
            Self::Fork => 1_000,
            Self::Disk | Self::Forks => 3_000,
            Self::Network => 10_000,
            Self::Asked => return None,
        };
        Some(milliseconds * 1_000_000)
    }
}

/// What a method lists, whether in one reply or as a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Pod sandboxes: one half of a relist.
    Sandboxes,
    /// Containers: the other half of a relist.
    Containers,
    /// Images.
    Images,
    /// Statistics of containers.
    ContainerStats,
    /// Statistics of pod sandboxes.
    SandboxStats,
    /// Metrics of pod sandboxes.
    SandboxMetrics,
    /// Descriptions of those metrics.
    MetricDescriptors,
}

/// A program that a runtime or its shim starts for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A network plugin that sets up or checks.
    CniAdd,
    /// A network plugin that tears down.
    CniDel,
    /// `runc create`
    RuncCreate,
    /// `runc start`
    RuncStart,
    /// `runc exec`
    RuncExec,
    /// `runc update`
    RuncUpdate,
    /// `runc kill`
    RuncKill,
    /// `runc delete`
    RuncDelete,
    /// A shim that starts another one.
    ShimStart,
    /// A shim that deletes what another one left.
    ShimDelete,
}

/// What a request must have in common with a program to be taken for the one that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Nothing: only requests start such programs, so being the only candidate is enough.
    OnlyCandidate,
    /// The container: the runtime also starts such programs on its own, when a container ends.
    SameContainer,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The runtime or the node.
    Node,
    /// A pod sandbox, with the containers that are left in it.
    Pod,
    /// A pod sandbox that the request makes.
    NewPod,
    /// A container.
    Container,
    /// A container that the request makes or starts: no two such requests are about the same one.
    NewContainer,
    /// An image.
    Image,
}

/// All that is known about one method.
#[derive(Clone, Copy, Debug)]
pub struct MethodFacts {
    /// Its service.
    pub service: Service,
    /// How long the kubelet waits.
    pub deadline: Deadline,
    /// How long it takes on a healthy node.
    pub lasts: Lasts,
    /// What it takes there.
    pub takes: Takes,
    /// What it lists.
    pub lists: Option<Listed>,
    /// It answers with a stream of messages.
    pub streams: bool,
    /// A relist does not end without its answer.
    pub needed_by_relist: bool,
    /// A stalled node shows in it: traced even where only few probes can be afforded.
    pub essential: bool,
    /// It does not end unless processes of the container run.
    pub needs_processes: bool,
    /// What it is about.
    pub subject: Subject,
    /// Programs that only such requests start.
    pub starts: &'static [Program],
    /// Programs that it starts, and the runtime on its own as well.
    pub cleans_up_with: &'static [Program],
    /// For so long after its end programs may still be started for it, in ns.
    pub starts_later_ns: u64,
}

impl Method {
    /// Everything about it.
    #[must_use]
    pub fn facts(self) -> &'static MethodFacts {
        &table::FACTS[self as usize]
    }

    /// How long the kubelet waits, in ns; `None` when that cannot be known from outside.
    #[must_use]
    pub fn deadline_ns(self) -> Option<u64> {
        match self.facts().deadline {
            Deadline::Default => Some(DEADLINE_NS),
            Deadline::Double => Some(2 * DEADLINE_NS),
            Deadline::Granted | Deadline::None => None,
        }
    }

    /// Does it list sandboxes or containers, as every relist does?
    #[must_use]
    pub fn is_relist_list(self) -> bool {
        matches!(self.facts().lists, Some(Listed::Sandboxes | Listed::Containers))
    }

    /// Is it open by design, and never stuck by its age alone?
    #[must_use]
    pub fn is_long_lived(self) -> bool {
        self.facts().lasts == Lasts::Forever
    }

    /// Is it about a whole pod that exists?
    #[must_use]
    pub fn is_of_pod(self) -> bool {
        self.facts().subject == Subject::Pod
    }

    /// Does it make a sandbox or a container, or start one for the first time?
    #[must_use]
    pub fn makes(self) -> bool {
        matches!(self.facts().subject, Subject::NewPod | Subject::NewContainer)
    }

    /// Does it make the runtime start programs?
    #[must_use]
    pub fn starts_programs(self) -> bool {
        !self.facts().starts.is_empty()
    }

    /// What proves that a request of this method started a program; `None`: it never does.
    #[must_use]
    pub fn may_start(self, program: Program) -> Option<Proof> {
        let facts = self.facts();
        if facts.starts.contains(&program) {
            return Some(Proof::OnlyCandidate);
        }
        facts.cleans_up_with.contains(&program).then_some(Proof::SameContainer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `RuntimeService` of cri-api `runtime/v1/api.proto`, 1.36.
    const RUNTIME: [&str; 35] = [
        "Version",
        "RunPodSandbox",
        "StopPodSandbox",
        "RemovePodSandbox",
        "PodSandboxStatus",
        "ListPodSandbox",
        "StreamPodSandboxes",
        "CreateContainer",
        "StartContainer",
        "StopContainer",
        "RemoveContainer",
        "ListContainers",
        "StreamContainers",
        "ContainerStatus",
        "UpdateContainerResources",
        "ReopenContainerLog",
        "ExecSync",
        "Exec",
        "Attach",
        "PortForward",
        "ContainerStats",
        "ListContainerStats",
        "StreamContainerStats",
        "PodSandboxStats",
        "ListPodSandboxStats",
        "StreamPodSandboxStats",
        "UpdateRuntimeConfig",
        "Status",
        "CheckpointContainer",
        "GetContainerEvents",
        "ListMetricDescriptors",
        "ListPodSandboxMetrics",
        "StreamPodSandboxMetrics",
        "RuntimeConfig",
        "UpdatePodSandboxResources",
    ];
    /// `ImageService` of the same.
    const IMAGE: [&str; 6] =
        ["ListImages", "StreamImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo"];

    /// Each method of the API has a row, with its service.
    #[test]
    fn the_whole_api() {
        for (service, names) in [(Service::Runtime, &RUNTIME[..]), (Service::Image, &IMAGE)] {
            for name in names {
                let method = Method::from_name(name).unwrap_or_else(|| panic!("{name} is missing"));
                assert_eq!((method.name(), method.facts().service), (*name, service));
            }
        }
        assert_eq!(Method::ALL.len(), RUNTIME.len() + IMAGE.len() + 2, "and two of old clients");
        assert_eq!(Method::from_name("ListContainer"), None);
    }

    /// A list and its streaming variant are the same to everybody but the transport, and each `Stream…` is one.
    #[test]
    fn lists_and_their_streams() {
        let lists = Method::ALL.iter().filter(|method| method.facts().lists.is_some());
        for stream in Method::ALL.iter().filter(|method| method.name().starts_with("Stream")) {
            let same = |other: &&Method| {
                other.facts().lists == stream.facts().lists && !other.facts().streams && *other != stream
            };
            let unary = lists.clone().find(same).unwrap_or_else(|| panic!("{stream:?} lists nothing"));
            let (list, facts) = (unary.facts(), stream.facts());
            assert!(facts.streams && list.service == facts.service, "{stream:?}");
            assert_eq!(list.needed_by_relist, facts.needed_by_relist, "{stream:?}");
            assert_eq!(list.essential, facts.essential, "{stream:?}");
            assert_eq!(list.lasts, facts.lasts, "{stream:?}");
            assert_eq!(list.deadline, facts.deadline, "{stream:?}");
        }
        let of_relist: Vec<_> = lists.filter(|method| method.is_relist_list()).map(|m| m.name()).collect();
        assert_eq!(of_relist, ["ListContainers", "ListPodSandbox", "StreamContainers", "StreamPodSandboxes"]);
    }

    /// What a relist needs is worth its probes, and answers at once.
    #[test]
    fn rows_agree_with_themselves() {
        for method in Method::ALL {
            let facts = method.facts();
            assert!(
                !facts.needed_by_relist || facts.essential && facts.lasts == Lasts::Briefly,
                "{method:?}"
            );
            assert!(!facts.needs_processes || !facts.starts.is_empty(), "{method:?}");
            assert!(facts.lasts != Lasts::Forever || facts.deadline == Deadline::None, "{method:?}");
            assert!(
                !facts.starts.iter().any(|program| facts.cleans_up_with.contains(program)),
                "{method:?}: a program has one proof"
            );
        }
    }

    /// What a method takes agrees with what is known of it otherwise.
    #[test]
    fn what_is_normal() {
        for method in Method::ALL {
            let facts = method.facts();
            let asked = matches!(facts.lasts, Lasts::AsAsked | Lasts::Forever);
            assert!(!asked || facts.takes == Takes::Asked, "{method:?}");
            assert_eq!(facts.lasts == Lasts::Network, facts.takes == Takes::Network, "{method:?}");
            assert!(!facts.needed_by_relist || facts.takes == Takes::Memory, "{method:?}");
            // The stream of Exec begins after the answer.
            let starts = !facts.starts.is_empty() && facts.starts_later_ns == 0;
            assert!(!starts || facts.takes != Takes::Memory, "{method:?}");
        }
    }

    /// Only what the kubelet itself grants no time of its own has a deadline that is known.
    #[test]
    fn deadlines() {
        let of = |name: &str| Method::from_name(name).unwrap().deadline_ns();
        assert_eq!(of("ListContainers"), Some(DEADLINE_NS));
        assert_eq!(of("RunPodSandbox"), Some(2 * DEADLINE_NS));
        for name in ["StopContainer", "ExecSync", "PullImage", "GetContainerEvents"] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
