//! [`DockerRec`]: a request to Docker's API that was answered.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{header::RecHeader, wire::docker::HEAD};

/// A request to Docker's API that was answered: its status line was written.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DockerRec {
    /// `ts_ns` is when the write of the answer began; process and thread are those that wrote it.
    pub header: RecHeader,
    /// When the write of the request began, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Inode number of the socket of the client.
    pub socket: u64,
    /// Process that asked.
    pub asker: u32,
    /// HTTP status.
    pub status: u32,
    /// Method and path, zeros behind them. The kernel side hands over the beginning of the request as it was written; in the
    /// stream nothing of the query is left.
    pub head: [u8; HEAD],
}

const _: () = assert!(size_of::<DockerRec>() == 48 + HEAD);
