//! Protocols on the sockets between kubelet, runtime, shims, Docker and systemd, as bounded parsers: each keeps one small
//! plain-data struct per direction of a connection, is fed the bytes of one system call after the other, and says what it
//! found in them.
//!
//! The same code is meant for the kernel side and for user space: no allocation, no panic, a constant amount of work per
//! step. `http2`, `ttrpc`, `dbus` and `docker` run in the kernel; `http2` and `grpc` read their bytes through [`Bytes`], because the
//! kernel side cannot have a slice of a process's memory.

pub mod bus;
pub mod bytes;
pub mod dbus;
pub mod docker;
pub mod grpc;
pub mod http2;
pub mod request;
pub mod state;
pub mod ttrpc;

pub use bytes::Bytes;
