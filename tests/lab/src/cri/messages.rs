//! The messages of the CRI that the lab sends and reads, with only the fields it needs. `v1` and `v1alpha2` have the
//! same field numbers (`k8s.io/cri-api/pkg/apis/runtime/{v1,v1alpha2}/api.proto`), so one set serves both.

use std::collections::HashMap;

/// `VersionRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VersionRequest {
    /// Version of the kubelet's API.
    #[prost(string, tag = "1")]
    pub version: String,
}

/// `VersionResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VersionResponse {
    /// `containerd`, `cri-o` …
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// The runtime's own version.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    /// `v1` or `v1alpha2`.
    #[prost(string, tag = "4")]
    pub runtime_api_version: String,
}

/// `StatusRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusRequest {}

/// `StatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusResponse {
    /// The runtime's conditions.
    #[prost(message, optional, tag = "1")]
    pub status: Option<RuntimeStatus>,
}

/// `RuntimeStatus`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RuntimeStatus {
    /// `RuntimeReady` and `NetworkReady`.
    #[prost(message, repeated, tag = "1")]
    pub conditions: Vec<RuntimeCondition>,
}

/// `RuntimeCondition`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RuntimeCondition {
    /// The condition's name.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Whether it holds.
    #[prost(bool, tag = "2")]
    pub status: bool,
    /// Why not, for people.
    #[prost(string, tag = "4")]
    pub message: String,
}

/// `PodSandboxMetadata`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxMetadata {
    /// Name of the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its UID.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its namespace.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// How often it was made anew.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

/// `NamespaceMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum NamespaceMode {
    /// The pod's own.
    Pod = 0,
    /// The container's own.
    Container = 1,
    /// The node's.
    Node = 2,
}

/// `NamespaceOption`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NamespaceOption {
    /// Whose network.
    #[prost(enumeration = "NamespaceMode", tag = "1")]
    pub network: i32,
    /// Whose process numbers.
    #[prost(enumeration = "NamespaceMode", tag = "2")]
    pub pid: i32,
    /// Whose IPC.
    #[prost(enumeration = "NamespaceMode", tag = "3")]
    pub ipc: i32,
}

/// `LinuxSandboxSecurityContext`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxSandboxSecurityContext {
    /// The sandbox's namespaces.
    #[prost(message, optional, tag = "1")]
    pub namespace_options: Option<NamespaceOption>,
}

/// `LinuxPodSandboxConfig`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxPodSandboxConfig {
    /// Parent of the pod's cgroups.
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
    /// Its security settings.
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxSandboxSecurityContext>,
}

/// `PodSandboxConfig`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxConfig {
    /// Who it is.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Directory of its containers' logs.
    #[prost(string, tag = "3")]
    pub log_directory: String,
    /// Labels; the kubelet's are `io.kubernetes.pod.name` and friends.
    #[prost(map = "string, string", tag = "6")]
    pub labels: HashMap<String, String>,
    /// Linux settings.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandboxConfig>,
}

/// `RunPodSandboxRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RunPodSandboxRequest {
    /// What to run.
    #[prost(message, optional, tag = "1")]
    pub config: Option<PodSandboxConfig>,
}

/// Any request or response whose only field of interest is an id in field 1: a sandbox's or a container's.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Id {
    /// 64 hexadecimal digits.
    #[prost(string, tag = "1")]
    pub id: String,
}

/// A response without fields of interest, or a list request without a filter.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

/// `PodSandbox`, and the part of `PodSandboxStatus` with the same numbers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandbox {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Who it is.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// 0 is ready, 1 is not.
    #[prost(int32, tag = "3")]
    pub state: i32,
    /// When it was made, nanoseconds of the wall clock.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
}

impl PodSandbox {
    /// Whether it is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == 0
    }

    /// The pod's name, empty when the runtime gave none.
    #[must_use]
    pub fn pod_name(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| metadata.name.as_str())
    }
}

/// `ListPodSandboxResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPodSandboxResponse {
    /// All sandboxes.
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<PodSandbox>,
}

/// `PodSandboxStatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxStatusResponse {
    /// The sandbox.
    #[prost(message, optional, tag = "1")]
    pub status: Option<PodSandbox>,
}

/// `ImageSpec`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ImageSpec {
    /// Name of the image.
    #[prost(string, tag = "1")]
    pub image: String,
}

/// `ContainerMetadata`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerMetadata {
    /// Name of the container in its pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How often it was made anew.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
}

/// `LinuxContainerResources`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxContainerResources {
    /// Relative weight, 1024 is one CPU's share.
    #[prost(int64, tag = "3")]
    pub cpu_shares: i64,
}

/// `LinuxContainerSecurityContext`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxContainerSecurityContext {
    /// The container's namespaces.
    #[prost(message, optional, tag = "3")]
    pub namespace_options: Option<NamespaceOption>,
}

/// `LinuxContainerConfig`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxContainerConfig {
    /// Its limits.
    #[prost(message, optional, tag = "1")]
    pub resources: Option<LinuxContainerResources>,
    /// Its security settings.
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxContainerSecurityContext>,
}

/// `ContainerConfig`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerConfig {
    /// Who it is.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ContainerMetadata>,
    /// What it runs.
    #[prost(message, optional, tag = "2")]
    pub image: Option<ImageSpec>,
    /// Replaces the image's entry point.
    #[prost(string, repeated, tag = "3")]
    pub command: Vec<String>,
    /// Labels; the kubelet's are `io.kubernetes.container.name` and friends.
    #[prost(map = "string, string", tag = "9")]
    pub labels: HashMap<String, String>,
    /// Its log, below the sandbox's directory.
    #[prost(string, tag = "11")]
    pub log_path: String,
    /// Linux settings.
    #[prost(message, optional, tag = "15")]
    pub linux: Option<LinuxContainerConfig>,
}

/// `CreateContainerRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateContainerRequest {
    /// In which sandbox.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    /// What to make.
    #[prost(message, optional, tag = "2")]
    pub config: Option<ContainerConfig>,
    /// The sandbox's configuration once more.
    #[prost(message, optional, tag = "3")]
    pub sandbox_config: Option<PodSandboxConfig>,
}

/// `StopContainerRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StopContainerRequest {
    /// Which one.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Seconds between SIGTERM and SIGKILL.
    #[prost(int64, tag = "2")]
    pub timeout: i64,
}

/// `ContainerState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ContainerState {
    /// Made, not started.
    Created = 0,
    /// Running.
    Running = 1,
    /// Ended.
    Exited = 2,
    /// The runtime lost it.
    Unknown = 3,
}

/// `Container` of the list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Container {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its sandbox.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Who it is.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<ContainerMetadata>,
    /// What it is doing.
    #[prost(enumeration = "ContainerState", tag = "6")]
    pub state: i32,
    /// Labels, as given at creation.
    #[prost(map = "string, string", tag = "8")]
    pub labels: HashMap<String, String>,
}

/// `ListContainersResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListContainersResponse {
    /// All containers.
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<Container>,
}

/// `ContainerStatus`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerStatus {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Who it is.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<ContainerMetadata>,
    /// What it is doing.
    #[prost(enumeration = "ContainerState", tag = "3")]
    pub state: i32,
    /// How it ended.
    #[prost(int32, tag = "7")]
    pub exit_code: i32,
}

/// `ContainerStatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerStatusResponse {
    /// The container.
    #[prost(message, optional, tag = "1")]
    pub status: Option<ContainerStatus>,
}

/// `UpdateContainerResourcesRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateContainerResourcesRequest {
    /// Which one.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// The new limits.
    #[prost(message, optional, tag = "2")]
    pub linux: Option<LinuxContainerResources>,
}

/// `ExecSyncRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecSyncRequest {
    /// In which container.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Program and arguments.
    #[prost(string, repeated, tag = "2")]
    pub cmd: Vec<String>,
    /// Seconds until the runtime kills it; 0 is never.
    #[prost(int64, tag = "3")]
    pub timeout: i64,
}

/// `ExecSyncResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecSyncResponse {
    /// What it printed.
    #[prost(bytes = "vec", tag = "1")]
    pub stdout: Vec<u8>,
    /// What it complained.
    #[prost(bytes = "vec", tag = "2")]
    pub stderr: Vec<u8>,
    /// How it ended.
    #[prost(int32, tag = "3")]
    pub exit_code: i32,
}

/// `Image`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Image {
    /// Digest of its configuration.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its names.
    #[prost(string, repeated, tag = "2")]
    pub repo_tags: Vec<String>,
}

/// `ListImagesResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListImagesResponse {
    /// All images.
    #[prost(message, repeated, tag = "1")]
    pub images: Vec<Image>,
}
