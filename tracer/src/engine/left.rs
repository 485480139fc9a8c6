//! Probes that could not be taken off when the observation ended: the report comes first, then we wait for them.

use std::sync::{Mutex, PoisonError};

use crate::live::Live;

/// What whoever waits with us should know.
const WAITS: &str = "waiting to detach: a process that runs a traced program is stuck, and detaching now would block every \
                     fork on this node until it moves (Ctrl-C detaches at once)";

static LEFT: Mutex<Vec<Live>> = Mutex::new(Vec::new());

/// Keeps the kernel side until [`detach_rest`].
pub(super) fn keep(live: Live) {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(live);
}

/// Waits until the probes that are still on can be taken off without harm, and takes them off; `say` is called before,
/// when there are any.
pub fn detach_rest(say: impl FnOnce(&str)) {
    let left = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    if !left.is_empty() {
        say(WAITS);
        drop(left);
    }
}
