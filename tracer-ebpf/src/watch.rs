//! The watched-process map: the first question of every probe.

use plegtrace_common::{key::Watched, reason::Reason};

use crate::{
    count,
    entry::{self, Change},
    maps::WATCHED,
};

/// The entry of a process, when it is ours.
#[inline(always)]
pub(crate) fn get(tgid: u32) -> Option<Watched> {
    // SAFETY: the value is copied at once; a concurrent update of a few integers at worst mixes two valid entries.
    unsafe { WATCHED.get(tgid) }.copied()
}

/// Watches a process from now on.
#[inline(always)]
pub(crate) fn set(tgid: u32, watched: &Watched) {
    if WATCHED.insert(tgid, watched, 0).is_err() {
        count::reason(Reason::WatchedFull);
    }
}

/// Forgets a process, and says whether it was there: of those that try at once only one finds it. Where the kernel refuses, it was:
/// an exit that is reported twice does less harm than one that is not.
#[inline(always)]
pub(crate) fn take(tgid: u32) -> bool {
    entry::change(Reason::EndedStillWatched, || WATCHED.remove(tgid)) != Change::Absent
}
