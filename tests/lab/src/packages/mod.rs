//! Turns names of Debian packages of any suite into unpacked trees in the cache, without installing anything:
//! `sources` finds the mirror, `apt` asks it through a private apt state, `tree` unpacks.

mod apt;
mod sources;
mod suite;
mod tree;

pub use apt::{Error, download_source};
pub use suite::Suite;
pub use tree::{Tree, busybox, cni_plugins, containerd, docker, go, runc, unpack, unpack_as};
