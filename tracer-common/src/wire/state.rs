//! Keys and values of the maps of family `wire`: requests without an answer, writes under way, and who holds which end.
//!
//! Addresses of sockets in the kernel are keys here and nowhere else: no record and no fact has them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::ttrpc::{HEAD, Position};

/// Most requests without an answer; more are refused and counted, never evicted.
pub const MAX_MESSAGES: u32 = 8192;
/// Most threads that are inside a write at once.
pub const MAX_SENDING: u32 = 1024;
/// Most directions of connections that are in the middle of a frame.
pub const MAX_POSITIONS: u32 = 4096;
/// Most ends of connections of which the process is known; the oldest are forgotten.
pub const MAX_ENDS: u32 = 8192;
/// Most frames that are looked at in one write.
pub const MAX_FRAMES: usize = 8;

/// The request has not been taken by the socket yet: its buffer is full.
pub const MESSAGE_UNSENT: u32 = 1;

/// What is written is not of its protocol, or cannot be read.
pub const SENDING_LOST: u32 = 1;
/// It is written to a bus: `begun` has serials, and `position` is not used.
pub const SENDING_BUS: u32 = 2;
/// It is written by a client of a runtime: `begun` and `position` are not used.
pub const SENDING_CLIENT: u32 = 4;
/// The same of a runtime to its client.
pub const SENDING_SERVER: u32 = 8;
/// It begins a request to Docker: `begun` and `position` are not used.
pub const SENDING_TO_DOCKER: u32 = 16;
/// It is written by dockerd: as above.
pub const SENDING_FROM_DOCKER: u32 = 32;

/// Key of a request without an answer. Both ends of a connection know it: addresses are used again, numbers of sockets
/// are not.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct MessageKey {
    /// `struct sock` of who asks.
    pub asker: u64,
    /// `struct sock` of who answers.
    pub answerer: u64,
    /// Inode number of the socket of who asks.
    pub socket: u64,
    /// Stream.
    pub stream: u32,
    /// Always 0.
    pub reserved: u32,
}

/// A request without an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OpenMessage {
    /// When its first byte was written, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Inode number of the socket of who answers; 0 while nobody has accepted the connection.
    pub peer_socket: u64,
    /// Process that asks.
    pub tgid: u32,
    /// Thread that wrote it.
    pub tid: u32,
    /// Process that is to answer; 0 when not known.
    pub peer: u32,
    /// Bytes of the message.
    pub bytes: u32,
    /// `MESSAGE_*` bits.
    pub flags: u32,
    /// As [`Names::service`](super::ttrpc::Names::service); 0 when the names could not be read.
    pub service: u32,
    /// As [`Names::method`](super::ttrpc::Names::method).
    pub method: u32,
    /// Always 0.
    pub reserved: u32,
    /// The beginning of the message up to the end of its names, zeros behind it: never any payload.
    pub head: [u8; HEAD],
}

/// Key of one direction of a connection.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct PositionKey {
    /// `struct sock` of who writes.
    pub sock: u64,
    /// Its inode number.
    pub socket: u64,
}

/// Both ends of a connection, as one of them sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Ends {
    /// `struct sock` of this end.
    pub sock: u64,
    /// `struct sock` of the other end.
    pub peer: u64,
    /// Inode number of this end.
    pub socket: u64,
    /// Inode number of the other end; 0 when it has none (yet, or any more).
    pub peer_socket: u64,
}

/// A request that begins in a write.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Begun {
    /// Its stream; 0: none. On a bus, its serial.
    pub stream: u32,
    /// Where its header ends in the write; on a bus 0: none.
    pub end: u32,
}

/// A write under way.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Sending {
    /// When it began.
    pub start_ns: u64,
    /// Address of its bytes.
    pub buffer: u64,
    /// The connection.
    pub ends: Ends,
    /// How many bytes.
    pub len: u32,
    /// File descriptor, to be sure that it is this write that ends.
    pub fd: u32,
    /// The requests that begin in it.
    pub begun: [Begun; MAX_FRAMES],
    /// How far the direction had been read before.
    pub position: Position,
    /// `SENDING_*` bits.
    pub flags: u32,
    /// Process that writes: the number of a thread that was killed inside a write is used again.
    pub tgid: u32,
}

/// Who holds an end of a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Holder {
    /// Inode number of the other end: the holder of an address that is used again is not believed.
    pub peer_socket: u64,
    /// Process.
    pub tgid: u32,
    /// Always 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<MessageKey>() == 32);
const _: () = assert!(size_of::<OpenMessage>() == 48 + HEAD);
const _: () = assert!(size_of::<Sending>() == 8 * 6 + 8 + 8 * MAX_FRAMES + 24 + 8);
