//! Our own client of the Container Runtime Interface, in both versions, and a stand-in for the kubelet's relist loop.

mod call;
mod client;
mod driver;
mod messages;
mod methods;
mod pods;
pub mod relist;
mod streaming;

pub use call::Call;
pub use client::{Api, Client, Error};
pub use messages::{
    AttachRequest, Container, ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus,
    ContainerStatusResponse, CreateContainerRequest, Empty, ExecRequest, ExecSyncRequest, ExecSyncResponse,
    Id, Image, ImageSpec, LinuxContainerConfig, LinuxContainerResources, LinuxContainerSecurityContext,
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, ListContainersResponse, ListImagesResponse,
    ListPodSandboxResponse, Mount, NamespaceMode, NamespaceOption, PodSandbox, PodSandboxConfig,
    PodSandboxMetadata, PodSandboxStatusResponse, PortForwardRequest, RunPodSandboxRequest, RuntimeCondition,
    RuntimeStatus, StatusRequest, StatusResponse, StopContainerRequest, UpdateContainerResourcesRequest,
    VersionRequest, VersionResponse,
};
pub use pods::{Extra, Pod, PodSpec};
pub use streaming::Session;
