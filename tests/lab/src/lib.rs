//! A real node on one machine from Debian packages: containerd (four generations), its shims, runc, a real kubelet
//! and pods, with faults that are injected for real.

pub mod cache;
pub mod containerd;
pub mod cri;
pub mod fault;
pub mod host;
pub mod http;
pub mod image;
pub mod knobs;
pub mod kubelet;
pub mod node;
pub mod packages;
pub mod process;
pub mod promtext;
pub mod scratch;

pub use containerd::Containerd;
pub use knobs::{CgroupDriver, Generation, Knobs, Network};
pub use node::Node;
