//! The clocks of this machine: one for everything, and how the others relate to it.

use rustix::time::{ClockId, clock_gettime};

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

fn offset(clock: ClockId) -> i64 {
    read(clock) - read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
