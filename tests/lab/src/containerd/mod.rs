//! A private containerd of any generation: `config` writes its files, `daemon` runs it, `shims` finds its shims,
//! `events` hears what they say.

mod config;
mod daemon;
mod events;
mod shims;

pub use daemon::Containerd;
pub use events::{Event, Events};
pub use shims::Shim;

pub(crate) use daemon::log_tail;
