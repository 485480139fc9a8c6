//! What plegtrace can be asked to do, one file for each command. A command turns settings into output and an exit code.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod doctor;
mod error;
pub(crate) mod explain;
pub(crate) mod goroutines;
pub(crate) mod history;
pub(crate) mod man;
pub(crate) mod observe;
mod output;
pub(crate) mod record;
pub(crate) mod replay;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod watch;

pub use error::CommandError;
pub use replay::{Replayed, replay, replay_and_fold};
