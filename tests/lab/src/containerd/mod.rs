//! A private containerd of any generation: `config` writes its files, `daemon` runs it, `shims` finds its shims.

mod config;
mod daemon;
mod shims;

pub use daemon::Containerd;
pub use shims::Shim;

pub(crate) use daemon::log_tail;
