//! The methods of the CRI (cri-api `runtime/v1/api.proto`, v1 and v1alpha2).

/// Methods that begin a server stream which stays open by design: never stuck by age alone.
const LONG_LIVED: [&str; 1] = ["GetContainerEvents"];

/// Methods of `RuntimeService` and `ImageService`, v1alpha2 to v1 with the streaming lists of KEP-5825.
const METHODS: [&str; 43] = [
    "Attach",
    "CheckpointContainer",
    "ContainerStats",
    "ContainerStatus",
    "CreateContainer",
    "Exec",
    "ExecSync",
    "GetContainerEvents",
    "ImageFsInfo",
    "ImageStatus",
    "ListContainerStats",
    "ListContainers",
    "ListImages",
    "ListMetricDescriptors",
    "ListPodSandbox",
    "ListPodSandboxMetrics",
    "ListPodSandboxStats",
    "PodSandboxStats",
    "PodSandboxStatus",
    "PortForward",
    "PullImage",
    "RemoveContainer",
    "RemoveImage",
    "RemovePodSandbox",
    "ReopenContainerLog",
    "RunPodSandbox",
    "RuntimeConfig",
    "StartContainer",
    "Status",
    "StopContainer",
    "StopPodSandbox",
    "StreamContainerStats",
    "StreamContainers",
    "StreamImages",
    "StreamPodSandboxMetrics",
    "StreamPodSandboxStats",
    "StreamPodSandboxes",
    "UpdateContainerResources",
    "UpdatePodSandboxResources",
    "UpdateRuntimeConfig",
    "Version",
    // dockershim and old clients
    "GetContainerStatus",
    "GetPodSandboxStatus",
];

/// Methods in which a stall of the node shows: those of a relist, and those that hold locks or wait for a shim.
const ESSENTIAL: [&str; 12] = [
    "ContainerStatus",
    "CreateContainer",
    "ExecSync",
    "ListContainers",
    "ListPodSandbox",
    "PodSandboxStatus",
    "RemoveContainer",
    "RunPodSandbox",
    "StartContainer",
    "Status",
    "StopContainer",
    "UpdateContainerResources",
];

/// Does a stall of the node show in this method?
pub(super) fn is_essential(method: &str) -> bool {
    ESSENTIAL.contains(&method)
}

/// Is it a method of the CRI?
pub(super) fn is_method(name: &str) -> bool {
    METHODS.contains(&name)
}

/// Is it a server stream rather than one request and one reply?
pub(super) fn is_stream(method: &str) -> bool {
    method.starts_with("Stream") || is_long_lived(method)
}

/// Does a call of this method stay open by design?
#[must_use]
pub fn is_long_lived(method: &str) -> bool {
    LONG_LIVED.contains(&method)
}
