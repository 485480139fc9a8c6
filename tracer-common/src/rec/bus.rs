//! [`BusRec`]: a call over D-Bus was answered, or the job done that was its answer; or a connection was refused.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    header::RecHeader,
    wire::bus::{TEXT, TEXTS},
};

/// One answered call, one job that is done, or one connection that was refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct BusRec {
    /// `ts_ns` is when the caller had read the header of the answer, or of the signal; process and thread are those that read it.
    pub header: RecHeader,
    /// When the first byte of the call was written, of a job when its caller had read of it, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Inode number of the socket of who called; 0 when no connection was made.
    pub socket: u64,
    /// Serial of the call; 0: the connection itself, from its first byte to the first line of the bus. Of a
    /// job its number.
    pub serial: u32,
    /// Type of the answer: [`kind::RETURN`](crate::wire::dbus::kind::RETURN) or
    /// [`kind::ERROR`](crate::wire::dbus::kind::ERROR); [`kind::SIGNAL`](crate::wire::dbus::kind::SIGNAL): a job is done.
    pub kind: u32,
    /// Bytes of the call.
    pub bytes: u32,
    /// Bytes of the answer.
    pub answer_bytes: u32,
    /// Serial of the answer, as its sender counts what it sends: a bus passes it on. 0: not known.
    pub answer_serial: u32,
    /// With which connect(2) failed: no connection was made, and nothing else is there but process, thread and, as destination, who
    /// listens. Else 0.
    pub errno: u32,
    /// See [`BusTexts`](crate::wire::bus::BusTexts).
    pub texts: [u8; TEXT * TEXTS],
}

const _: () = assert!(size_of::<BusRec>() == 64 + TEXT * TEXTS);
