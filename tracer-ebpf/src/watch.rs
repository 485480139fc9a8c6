//! The watched-process map: the first question of every probe.

use plegtrace_common::{key::Watched, reason::Reason};

use crate::{count, maps::WATCHED};

/// `-ENOENT` (include/uapi/asm-generic/errno-base.h).
const ENOENT: i64 = -2;

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

/// Forgets a process, and says whether it was there: of those that try at once only one finds it. The kernel may also refuse, when
/// the lock of that part of the map cannot be had (`htab_lock_bucket`, kernel/bpf/hashtab.c): then it stays.
#[inline(always)]
pub(crate) fn take(tgid: u32) -> bool {
    match WATCHED.remove(tgid) {
        Ok(()) => true,
        Err(error) if i64::from(error) == ENOENT => false,
        Err(_) => {
            count::reason(Reason::EndedStillWatched);
            true
        }
    }
}
