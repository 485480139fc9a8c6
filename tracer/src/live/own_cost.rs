//! What plegtrace itself has used so far, with the children that do its reading.

use rustix::time::{ClockId, clock_gettime};

use crate::census;

/// CPU time of this process and of its children, nanoseconds: of those that have ended and of those of the census that
/// live.
pub(super) fn cpu_ns() -> u64 {
    let children = children();
    let own = clock_gettime(ClockId::ProcessCPUTime);
    let own = own.tv_sec * 1_000_000_000 + own.tv_nsec;
    let nanoseconds = |time: libc::timeval| time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000;
    let children = nanoseconds(children.ru_utime) + nanoseconds(children.ru_stime);
    let ended = u64::try_from(own + children).unwrap_or(0);
    ended.saturating_add(census::usage().cpu_ns)
}

/// Resident memory of the largest child at its highest, bytes.
pub(super) fn largest_child_bytes() -> u64 {
    let ended = u64::try_from(children().ru_maxrss).unwrap_or(0) * 1024;
    ended.max(census::usage().peak_bytes)
}

fn children() -> libc::rusage {
    // SAFETY: plain numbers; all zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    usage
}
