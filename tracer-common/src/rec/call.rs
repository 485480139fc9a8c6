//! [`CallRec`]: a Go call that ended, measured in the kernel.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::header::RecHeader;

/// The call returned an error (its error result was not nil).
pub const CALL_FAILED: u32 = 1 << 0;
/// The call returned without an error.
pub const CALL_OK: u32 = 1 << 1;
/// The handler handed its reply over to the transport ([`CallRec::mark_ns`] says when).
pub const CALL_REPLIED: u32 = 1 << 2;
/// The end was never seen; a later start on the same goroutine proves that the call is over (panic, lost end).
pub const CALL_UNWOUND: u32 = 1 << 3;
/// The stack grew in the prologue, so the start fired twice; it is one call.
pub const CALL_RESTARTED: u32 = 1 << 4;
/// The call goes well exactly when it hands over a reply (unary handlers; streams do not).
pub const CALL_BY_REPLY: u32 = 1 << 5;
/// Every park of its goroutine was measured, from the start of the call to [`CallRec::mark_ns`], else to its end.
pub const CALL_PARKS: u32 = 1 << 6;

/// One finished call. Neither [`CALL_FAILED`] nor [`CALL_OK`] means that the result is not known.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CallRec {
    /// `ts_ns` is the end of the call; `tid` the thread it ended on.
    pub header: RecHeader,
    /// Start, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// When the reply was handed to the transport; 0 if that was not seen.
    pub mark_ns: u64,
    /// Goroutine id.
    pub goid: u64,
    /// Address of the `runtime.g`.
    pub g_addr: u64,
    /// Index into the hook table of the plan.
    pub hook: u32,
    /// `CALL_*` bits.
    pub flags: u32,
    /// Bytes of goroutine stack in use at the start: a call inside another one has a larger number.
    pub depth: u32,
    /// Thread it started on.
    pub start_tid: u32,
    /// How long its goroutine was parked, calls inside it included; with [`CALL_PARKS`].
    pub parked_ns: u64,
    /// The part of `parked_ns` in parks too short for a [`ParkRec`](super::ParkRec).
    pub short_ns: u64,
    /// Number of parks.
    pub parks: u32,
    /// Stream of HTTP/2 as which it was sent or came; 0 when not known.
    pub stream: u32,
}

const _: () = assert!(size_of::<CallRec>() == 96);
