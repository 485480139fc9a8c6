//! The clocks of this machine: one for everything, and how the others relate to it.

use rustix::time::{ClockId, clock_gettime};

use crate::census;

/// Now, nanoseconds of CLOCK_MONOTONIC, the clock of every record.
#[must_use]
pub fn monotonic_ns() -> u64 {
    u64::try_from(read(ClockId::Monotonic)).unwrap_or(0)
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC, nanoseconds.
#[must_use]
pub fn realtime_offset_ns() -> i64 {
    offset(ClockId::Realtime)
}

/// CLOCK_BOOTTIME minus CLOCK_MONOTONIC, nanoseconds.
#[must_use]
pub fn boottime_offset_ns() -> i64 {
    offset(ClockId::Boottime)
}

/// CPU time of this process and of its children, nanoseconds: of those that have ended and of those of the census that
/// live.
#[must_use]
pub fn cpu_ns() -> u64 {
    let children = children();
    let nanoseconds = |time: libc::timeval| time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000;
    let children = nanoseconds(children.ru_utime) + nanoseconds(children.ru_stime);
    let ended = u64::try_from(read(ClockId::ProcessCPUTime) + children).unwrap_or(0);
    ended.saturating_add(census::usage().cpu_ns)
}

/// Resident memory of the largest child at its highest, bytes.
#[must_use]
pub fn largest_child_bytes() -> u64 {
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

fn offset(clock: ClockId) -> i64 {
    read(clock) - read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Host name and kernel release, as `uname` says.
#[must_use]
pub fn node_and_kernel() -> (String, String) {
    let names = rustix::system::uname();
    (names.nodename().to_string_lossy().into_owned(), names.release().to_string_lossy().into_owned())
}
