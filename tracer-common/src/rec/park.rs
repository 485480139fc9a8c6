//! [`ParkRec`]: a goroutine inside a watched call gave its thread away for long, and where in the code it did so.
//!
//! A park begins in `runtime.gopark` and ends when the scheduler runs the goroutine again (`runtime.execute`), so the
//! time for which it was ready and had no thread belongs to it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::header::RecHeader;

/// Most callers that are kept of a park.
pub const PARK_FRAMES: usize = 24;

/// One park of at least [`park_min_ns`](crate::settings::KernelSettings::park_min_ns).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ParkRec {
    /// `ts_ns` is when the goroutine ran again; `tid` the thread that ran it.
    pub header: RecHeader,
    /// When it parked, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Goroutine id.
    pub goid: u64,
    /// `mm->start_code` of the process; addresses minus this are the same in every process of the executable.
    pub start_code: u64,
    /// Index of the hook on `runtime.gopark`: tells the executable.
    pub hook: u32,
    /// The runtime's number of the wait reason; its meaning differs between versions of Go.
    pub reason: u32,
    /// Where `gopark` returns to; 0 when it could not be read.
    pub caller: u64,
    /// As `bpf_get_stack` wrote it: the address in `gopark`, then return addresses by frame pointer; 0 at the end.
    /// Linux 6.12 and later repeat `caller` in second place when the site is a `push %rbp`.
    pub frames: [u64; PARK_FRAMES],
}

const _: () = assert!(size_of::<ParkRec>() == 64 + 8 * PARK_FRAMES);
