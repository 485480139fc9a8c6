//! The clocks of the census: the one of all records, and how clock ticks of `/proc` relate to it.

use crate::target::{clock_ticks, ticks_to_ns};

/// Now, CLOCK_MONOTONIC.
pub(super) fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// A start time of `/proc/PID/stat`, which counts from the boot and also while the machine slept, on CLOCK_MONOTONIC.
pub(super) fn started_ns(start_ticks: u64) -> Option<u64> {
    let asleep = read(libc::CLOCK_BOOTTIME).saturating_sub(now_ns());
    ticks_to_ns(start_ticks, clock_ticks()).checked_sub(asleep)
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC, nanoseconds; less when something came in between, never more.
pub(super) fn realtime_offset_ns() -> i64 {
    let real = read(libc::CLOCK_REALTIME).cast_signed();
    real.saturating_sub(now_ns().cast_signed())
}

/// CPU time of a process that lives, nanoseconds; 0 of one that does not.
pub(super) fn cpu_ns(pid: u32) -> u64 {
    let mut clock = 0;
    // SAFETY: a valid place for the answer.
    let found = unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) };
    if found == 0 { read(clock) } else { 0 }
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the answer. It stays zero for the clock of a process that has ended.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(rest.unwrap_or(0))
}
