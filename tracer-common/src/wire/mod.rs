//! Protocols on the sockets between kubelet, runtime and shims: bounded parsers that run in the kernel and on the host.

pub mod state;
pub mod ttrpc;
