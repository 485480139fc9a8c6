//! A containerd that starts: the goroutine in which it asks the shims of an earlier one, before it serves anything.
//!
//! The task manager does so as it is made (`runtime/v2`: `loadExistingTasks`, since 2.0 `LoadExistingShims`), one bundle
//! after the other: `loadTasks` up to containerd 1.5, later `loadShims`. What reads the log of a shim is a closure of
//! `loadShim`, and no load.

use crate::input::{Component, GoroutineGroup};

/// [`super::Request::operation`] of such a start.
pub(super) const STARTUP: &str = "startup";

/// Functions that go through the bundles.
const ALL: [&str; 2] = [").loadTasks", ").loadShims"];
/// The function that asks about one; before containerd 2 it has no receiver.
const ONE: &str = ".loadShim";

/// Does this goroutine go through the shims of an earlier containerd?
pub(super) fn loads(component: Component, group: &GoroutineGroup) -> bool {
    component == Component::Containerd && group.frames.iter().any(|frame| goes_through(frame))
}

/// Index of the frame that has the bundle which is asked about: the innermost.
pub(super) fn asks_about(frames: &[String]) -> Option<u32> {
    let at = frames.iter().position(|frame| frame.ends_with(ONE) || goes_through(frame))?;
    u32::try_from(at).ok()
}

fn goes_through(frame: &str) -> bool {
    frame.contains("runtime/v2.") && ALL.iter().any(|name| frame.ends_with(name))
}
