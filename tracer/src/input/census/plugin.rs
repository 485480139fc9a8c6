//! The other ends of a kubelet's connections to its plugins.

use serde::{Deserialize, Serialize};

use super::{ContainerFact, Holder};

/// In the paths of sockets of device plugins.
pub const DEVICE_PLUGINS: &str = "/device-plugins/";
/// Of drivers.
pub const DRIVERS: &str = "/plugins/";
/// Of whoever registers.
pub const REGISTRY: &str = "/plugins_registry/";
/// Kubelets have the sockets of their plugins in these directories, below their own (`/var/lib/kubelet`).
pub const PLUGIN_DIRECTORIES: [&str; 3] = [DEVICE_PLUGINS, DRIVERS, REGISTRY];

/// A connection of a kubelet to a unix socket of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginFact {
    /// The kubelet.
    pub kubelet: u32,
    /// Path of the socket. Hostile text.
    pub path: String,
    /// Who holds the other end; at most 16. While nobody has accepted the connection: who may accept it.
    pub holders: Vec<Holder>,
    /// State of the process that holds it, when it is the only one (see proc(5)).
    #[serde(default)]
    pub state: Option<char>,
    /// Bytes that the other program has not read.
    pub unread: u32,
    /// It has not accepted the connection.
    #[serde(default)]
    pub pending: bool,
    /// Every process was asked whether it is one of the `holders`; otherwise only those of the node and of its containers.
    #[serde(default)]
    pub asked_all: bool,
    /// In which container it runs.
    #[serde(default)]
    pub container: Option<ContainerFact>,
}
