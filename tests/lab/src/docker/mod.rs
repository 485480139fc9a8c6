//! Docker 20.10 between the kubelet and a containerd of ours, as on nodes with dockershim: `config` writes its files,
//! `daemon` runs it, `api` asks it, `wrapper` stands before its runc where a container must not be given what it asks for.

mod api;
mod config;
mod daemon;
mod wrapper;

pub use api::{Api, Request};
pub use daemon::Docker;
pub(crate) use daemon::LIBRARIES;
