//! [`MessageRec`]: a request between runtime and shim was answered.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{header::RecHeader, wire::ttrpc::HEAD};

/// One answered request.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct MessageRec {
    /// `ts_ns` is when the first byte of the answer was written; process and thread are those that wrote it.
    pub header: RecHeader,
    /// When the first byte of the request was written, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Inode number of the socket of who asked: with `stream`, what both ends know of a request.
    pub socket: u64,
    /// Stream.
    pub stream: u32,
    /// Process that asked.
    pub asker: u32,
    /// Bytes of the request.
    pub bytes: u32,
    /// Bytes of the answer.
    pub answer_bytes: u32,
    /// As [`Names::service`](crate::wire::ttrpc::Names::service); 0 when the names could not be read.
    pub service: u32,
    /// As [`Names::method`](crate::wire::ttrpc::Names::method).
    pub method: u32,
    /// The beginning of the request up to the end of its names, zeros behind it.
    pub head: [u8; HEAD],
}

const _: () = assert!(size_of::<MessageRec>() == 64 + HEAD);
