//! Can plegtrace run here? Facts about this kernel and these privileges → [`Report`], one [`Check`] per question.
//!
//! Nothing is loaded or attached: files below a root directory are read (`/` normally, a made-up tree in tests), and
//! what the kernel supports is handed in by the caller. Decisions follow what was probed, never the version number:
//! distributions backport. The version only gives the words.

mod facts;
mod features;
mod host;
mod mode;
mod privilege;
mod proof;
mod run;
#[cfg(test)]
mod sample;
mod version;

pub use facts::{Facts, HidePid, Lockdown};
pub use features::Features;
pub use mode::{AttachMode, ModeError, attach_mode};
pub use proof::unproved;
pub use run::{Given, judge, run};
pub use version::KernelVersion;

pub use crate::checks::{Blocked, Check, Report, State};
