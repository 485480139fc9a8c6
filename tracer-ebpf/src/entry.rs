//! Entries of maps that must not stay as they are: what has ended would still count as in flight.

use plegtrace_common::reason::Reason;

use crate::count;

/// `-ENOENT` (include/uapi/asm-generic/errno-base.h).
const ENOENT: i64 = -2;
/// The kernel refuses to touch an entry when it cannot have the lock of that part of the map (`htab_lock_bucket`,
/// kernel/bpf/hashtab.c). From Linux 6.15 on it gives up after 250 ms, as on a virtual machine whose other CPU holds the lock and
/// does not run (`RES_DEF_TIMEOUT`, include/asm-generic/rqspinlock.h): a second attempt may find it free.
const ATTEMPTS: u32 = 2;

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The entry was there, and is changed or removed.
    Made,
    /// The entry was not there.
    Absent,
    /// The kernel refused, and this is counted. It takes the lock before it looks: the entry may be there or not.
    Refused,
}

/// Changes or removes an entry. When the kernel refuses twice, this is counted as `refused`.
#[inline(always)]
pub(crate) fn change<E: Copy + Into<i64>>(refused: Reason, change: impl Fn() -> Result<(), E>) -> Change {
    for _ in 0..ATTEMPTS {
        match change() {
            Ok(()) => return Change::Made,
            Err(error) if error.into() == ENOENT => return Change::Absent,
            Err(_) => {}
        }
    }
    count::reason(refused);
    Change::Refused
}
