//! The messages of the CRI that the lab sends and reads, with only the fields it needs. `v1` and `v1alpha2` have the
//! same field numbers (`k8s.io/cri-api/pkg/apis/runtime/{v1,v1alpha2}/api.proto`), so one set serves both.

mod container;
mod runtime;
mod sandbox;

pub use container::{
    AttachRequest, Container, ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus,
    ContainerStatusResponse, CreateContainerRequest, ExecRequest, ExecSyncRequest, ExecSyncResponse,
    LinuxContainerConfig, LinuxContainerResources, LinuxContainerSecurityContext, ListContainersResponse,
    Mount, PortForwardRequest, StopContainerRequest, UpdateContainerResourcesRequest,
};
pub use runtime::{
    Empty, Id, Image, ImageSpec, ListImagesResponse, NamespaceMode, NamespaceOption, RuntimeCondition,
    RuntimeStatus, StatusRequest, StatusResponse, VersionRequest, VersionResponse,
};
pub use sandbox::{
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, ListPodSandboxResponse, PodSandbox, PodSandboxConfig,
    PodSandboxMetadata, PodSandboxStatusResponse, RunPodSandboxRequest,
};
