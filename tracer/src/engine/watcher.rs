//! [`Watcher`]: who goes along with an observation that does not end by itself.

use std::time::Duration;

use super::pipeline::{Pipeline, Tap};
use crate::{correlate::Snapshot, diagnose::Diagnosis};

/// What is done with an observation of months while it lasts. All of this is called by the thread that observes: nothing may
/// wait.
pub(crate) trait Watcher {
    /// Does it end with the terminal? A service does not.
    fn is_a_screen(&self) -> bool {
        false
    }

    /// A stream begins: who sees its records.
    fn tap(&mut self) -> Tap;

    /// There is nothing to observe yet.
    fn waits(&mut self, why: &str);

    /// How long to wait before looking again.
    fn pause(&self) -> Duration;

    /// A second has passed; `last`: no more will.
    fn second(&mut self, pipeline: &mut Pipeline, now_ns: u64, last: bool);

    /// Is the whole picture wanted now?
    fn is_due(&self, now_ns: u64) -> bool;

    /// The whole picture was drawn; `last`: for the last time.
    fn judged(&mut self, snapshot: &Snapshot, diagnosis: &Diagnosis, last: bool);
}

/// Any of them, which borrows nothing.
pub(crate) type AnyWatcher = dyn Watcher;
