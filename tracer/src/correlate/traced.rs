//! [`TracedProcess`]: a process of the node that is traced.

use crate::{decode::MonoNs, input::TargetFact};

/// A process found on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedProcess {
    /// What is known of it.
    pub fact: TargetFact,
    /// When it was found.
    pub seen: MonoNs,
    /// Is it still there?
    pub state: TracedState,
}

/// Is a target still there?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TracedState {
    /// Yes.
    Live,
    /// No.
    Gone {
        /// When that was noticed.
        at: MonoNs,
        /// How it ended, in words.
        how: String,
    },
}
