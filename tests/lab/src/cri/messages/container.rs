//! Messages about containers.

use std::collections::HashMap;

use super::{ImageSpec, NamespaceOption, PodSandboxConfig};

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
    /// `localhost/` and the absolute path of a seccomp profile; empty is none.
    #[prost(string, tag = "10")]
    pub seccomp_profile_path: String,
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

/// `Mount`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Mount {
    /// Where it is in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Where it is on the node.
    #[prost(string, tag = "2")]
    pub host_path: String,
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
    /// Paths of the node in it.
    #[prost(message, repeated, tag = "7")]
    pub mounts: Vec<Mount>,
    /// Labels; the kubelet's are `io.kubernetes.container.name` and friends.
    #[prost(map = "string, string", tag = "9")]
    pub labels: HashMap<String, String>,
    /// Annotations: of any size, and in every list.
    #[prost(map = "string, string", tag = "10")]
    pub annotations: HashMap<String, String>,
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

/// `ExecRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecRequest {
    /// In which container.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Program and arguments.
    #[prost(string, repeated, tag = "2")]
    pub cmd: Vec<String>,
    /// Whether its output is wanted.
    #[prost(bool, tag = "5")]
    pub stdout: bool,
    /// Whether its complaints are.
    #[prost(bool, tag = "6")]
    pub stderr: bool,
}

/// `AttachRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AttachRequest {
    /// To which container.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Whether its output is wanted.
    #[prost(bool, tag = "4")]
    pub stdout: bool,
    /// Whether its complaints are.
    #[prost(bool, tag = "5")]
    pub stderr: bool,
}

/// `PortForwardRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PortForwardRequest {
    /// To which sandbox.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    /// To which of its ports.
    #[prost(int32, repeated, tag = "2")]
    pub port: Vec<i32>,
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
