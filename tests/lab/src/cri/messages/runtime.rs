//! Messages about the runtime itself and its images, and the parts that sandboxes and containers share.

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

/// `ImageSpec`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ImageSpec {
    /// Name of the image.
    #[prost(string, tag = "1")]
    pub image: String,
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
