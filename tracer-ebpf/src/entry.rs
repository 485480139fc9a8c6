//! Entries of maps that must not stay as they are: what has ended would still count as in flight.

use plegtrace_common::reason::Reason;

use crate::count;

/// `-ENOENT` (include/uapi/asm-generic/errno-base.h).
const ENOENT: i64 = -2;
/// The kernel refuses to touch an entry when it cannot have the lock of that part of the map (`htab_lock_bucket`,
/// kernel/bpf/hashtab.c). From Linux 6.15 on it gives up after 250 ms, as on a virtual machine whose other CPU holds the lock and
/// does not run (`RES_DEF_TIMEOUT`, include/asm-generic/rqspinlock.h): a second attempt may find it free.
const ATTEMPTS: u32 = 2;

/// Changes or removes an entry, and says whether it was there. When the kernel refuses, it stays as it is, and is counted as
/// `refused`.
#[inline(always)]
pub(crate) fn change<E: Copy + Into<i64>>(refused: Reason, change: impl Fn() -> Result<(), E>) -> bool {
    for _ in 0..ATTEMPTS {
        match change() {
            Ok(()) => return true,
            Err(error) if error.into() == ENOENT => return false,
            Err(_) => {}
        }
    }
    count::reason(refused);
    true
}
