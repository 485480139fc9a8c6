//! Keys and values of the maps that hold state.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{hist::BUCKETS, role::Role};

/// Most calls that may be open at once; more are refused and counted, never evicted.
pub const MAX_OPEN_CALLS: u32 = 32_768;
/// Most processes watched at once.
pub const MAX_WATCHED: u32 = 16_384;

/// Key of an open call.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct CallKey {
    /// Goroutine id.
    pub goid: u64,
    /// Process.
    pub tgid: u32,
    /// Pairing group of the site.
    pub class: u32,
    /// Stack depth for calls that end in the same function, 0 for the others.
    pub depth: u32,
    /// Always 0.
    pub reserved: u32,
}

/// An open call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OpenCall {
    /// Start, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// When the reply was handed to the transport; 0 until then.
    pub mark_ns: u64,
    /// Address of the `runtime.g`, to ask later whether the goroutine still lives.
    pub g_addr: u64,
    /// Index into the hook table.
    pub hook: u32,
    /// `CALL_*` bits so far.
    pub flags: u32,
    /// Bytes of goroutine stack in use at the start.
    pub depth: u32,
    /// Thread it started on.
    pub tid: u32,
}

/// What the kernel keeps per hook and CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct HookStats {
    /// Times a site of this hook fired in a watched process.
    pub hits: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Of these, with an error.
    pub failed: u64,
    /// Ends without an open call (a service nobody asked about, or a call older than the probe).
    pub unmatched: u64,
    /// Sum of the durations, nanoseconds.
    pub sum_ns: u64,
    /// Longest duration, nanoseconds.
    pub max_ns: u64,
    /// Durations in power-of-two buckets, see [`bucket`](crate::hist::bucket).
    pub buckets: [u64; BUCKETS],
}

/// A watched process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Watched {
    /// [`Role`].
    pub role: u32,
    /// Role of the process that started it; 0 when that was not watched.
    pub parent_role: u32,
    /// When the program it runs began, see [`ProcessRec`](crate::rec::ProcessRec); 0 when it was there before us.
    pub since_ns: u64,
    /// Its parent when that program began; 0 when not known.
    pub parent: u32,
    /// `PROCESS_*` bits.
    pub flags: u32,
}

impl Watched {
    /// An entry for a process that was there before the probes.
    #[must_use]
    pub const fn found(role: Role) -> Self {
        Self { role: role as u32, parent_role: 0, since_ns: 0, parent: 0, flags: 0 }
    }
}

const _: () = assert!(size_of::<CallKey>() == 24);
const _: () = assert!(size_of::<OpenCall>() == 40);
const _: () = assert!(size_of::<Watched>() == 24);
const _: () = assert!(size_of::<HookStats>() == 48 + 8 * BUCKETS);
