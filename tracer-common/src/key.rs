//! Keys and values of the maps that hold state.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    hist::BUCKETS,
    rec::{PARK_FRAMES, PROCESS_ASKS_DOCKER},
    role::Role,
};

/// Most calls that may be open at once; more are refused and counted, never evicted.
pub const MAX_OPEN_CALLS: u32 = 32_768;
/// Most goroutines inside watched calls whose parks are followed at once; more are refused and counted.
pub const MAX_PARKERS: u32 = 4096;
/// Most goroutines on which a stream has come in whose call has not begun; the one that waits for longest is forgotten.
pub const MAX_STREAMS: u32 = 4096;
/// Most processes watched at once.
pub const MAX_WATCHED: u32 = 16_384;

/// The number of an HTTP/2 stream as records and maps have it: 0 when none is known, as requests never have that number.
#[must_use]
pub const fn stream(number: u32) -> Option<u32> {
    if number == 0 { None } else { Some(number) }
}

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
    /// With `CALL_PARKS`: [`Parker::parked_ns`] when the call began; once it has replied, how long it was parked.
    pub parked_ns: u64,
    /// The same of [`Parker::short_ns`].
    pub short_ns: u64,
    /// The same of [`Parker::parks`].
    pub parks: u32,
    /// As [`CallRec::stream`](crate::rec::CallRec::stream).
    pub stream: u32,
}

/// Key of a goroutine whose parks are followed.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ParkerKey {
    /// Goroutine id.
    pub goid: u64,
    /// Process.
    pub tgid: u32,
    /// Always 0.
    pub reserved: u32,
}

/// A goroutine inside a watched call: how long it has been parked, and where it is if it is parked now.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Parker {
    /// Start of its outermost call, with whose end it is forgotten.
    pub root_start_ns: u64,
    /// Sum of its parks that are over.
    pub parked_ns: u64,
    /// The part of `parked_ns` in parks too short for a record of their own.
    pub short_ns: u64,
    /// Since when it is parked, nanoseconds of CLOCK_MONOTONIC; 0 while it is not.
    pub since_ns: u64,
    /// `mm->start_code` of the process; 0 when it could not be read.
    pub start_code: u64,
    /// As [`ParkRec::caller`](crate::rec::ParkRec::caller); of the last park when it is not parked now.
    pub caller: u64,
    /// As [`ParkRec::frames`](crate::rec::ParkRec::frames).
    pub frames: [u64; PARK_FRAMES],
    /// As [`ParkRec::reason`](crate::rec::ParkRec::reason).
    pub reason: u32,
    /// As [`ParkRec::hook`](crate::rec::ParkRec::hook).
    pub hook: u32,
    /// Number of its parks that are over.
    pub parks: u32,
    /// Class of its outermost call.
    pub root_class: u32,
    /// Bytes of stack in use at the start of its outermost call.
    pub root_depth: u32,
    /// Always 0.
    pub reserved: u32,
}

impl Parker {
    /// An entry about which nothing is known yet.
    pub const EMPTY: Self = Self {
        root_start_ns: 0,
        parked_ns: 0,
        short_ns: 0,
        since_ns: 0,
        start_code: 0,
        caller: 0,
        frames: [0; PARK_FRAMES],
        reason: 0,
        hook: 0,
        parks: 0,
        root_class: 0,
        root_depth: 0,
        reserved: 0,
    };
}

/// What the kernel keeps per hook and CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct HookStats {
    /// Times a site of this hook fired in a watched process; of hooks on parks, in any process of the executable.
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

    /// The same for a process whose dockerd is watched too, if it asks one at all.
    #[must_use]
    pub const fn beside_dockerd(mut self) -> Self {
        if self.role == Role::Kubelet as u32 || self.role == Role::CriDockerd as u32 {
            self.flags |= PROCESS_ASKS_DOCKER;
        }
        self
    }

    /// Does it ask a dockerd that is watched?
    #[must_use]
    pub const fn asks_docker(&self) -> bool {
        self.flags & PROCESS_ASKS_DOCKER != 0
    }
}

const _: () = assert!(size_of::<CallKey>() == 24);
const _: () = assert!(size_of::<OpenCall>() == 64);
const _: () = assert!(size_of::<ParkerKey>() == 16);
const _: () = assert!(size_of::<Parker>() == 72 + 8 * PARK_FRAMES);
const _: () = assert!(size_of::<Watched>() == 24);
const _: () = assert!(size_of::<HookStats>() == 48 + 8 * BUCKETS);
