//! Messages about pod sandboxes.

use std::collections::HashMap;

use super::NamespaceOption;

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
