//! A real node on one machine from Debian packages: containerd (four generations), its shims, runc, Docker 20.10 if it is
//! asked for, a real kubelet and pods, with faults that are injected for real.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use plegtrace_lab::{Knobs, Node, fault};
//!
//! let node = Node::start(&Knobs { pods: 3, exec_probes: true, ..Knobs::default() })?;
//! let hostage = fault::lock_hostage(node.containerd(), &node.pod("p3")?)?;
//! // … every ListContainers hangs now, and with it the kubelet's relist …
//! hostage.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything private lies in one temporary directory ([`scratch`]); what cannot be private is named after it and
//! removed with it: by drop, and by a janitor process when this process is killed. Packages are unpacked into a
//! [`cache`], not installed.

pub mod cache;
pub mod containerd;
pub mod control_plane;
pub mod cri;
pub mod daemon;
pub mod device_plugin;
pub mod disk;
pub mod docker;
pub mod fault;
pub mod fetch;
pub mod gate;
pub mod go_client;
pub mod golang;
pub mod held_file;
pub mod host;
pub mod http;
pub mod image;
pub mod knobs;
pub mod kubelet;
mod logs;
pub mod node;
pub mod nri_plugin;
mod one_file;
pub mod packages;
pub mod process;
pub mod promtext;
pub mod rc93;
pub mod rebuilt;
mod registered;
pub mod registry;
pub mod scratch;
pub mod slow_file;
pub mod ssh;
pub mod unread;

pub use containerd::{Containerd, Event, Events};
pub use control_plane::ControlPlane;
pub use docker::Docker;
pub use knobs::{CgroupDriver, Generation, Knobs, Network, ShimBuild};
pub use node::Node;
