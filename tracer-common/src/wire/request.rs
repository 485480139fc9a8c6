//! Keys and values of the maps of family `request`: gRPC requests of the kubelet that its runtime has not answered.
//!
//! Addresses of sockets in the kernel are keys here and nowhere else: no record and no fact has them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::http2::Walker;

/// Most requests without an answer; more are refused and counted, never evicted.
pub const MAX_REQUESTS: u32 = 8192;
/// The same of all clients together that are not traced: they cannot take the room of those that are.
pub const MAX_OTHER_REQUESTS: u32 = 2048;
/// Most processes of such clients whose names are kept; the one unused for longest is forgotten.
pub const MAX_CLIENTS: u32 = 1024;
/// Room for the name of a process, zeros behind it: include/linux/sched.h, `TASK_COMM_LEN`.
pub const COMM: usize = 16;
/// Most directions of connections that are followed; the one unused for longest is forgotten.
pub const MAX_DIRECTIONS: u32 = 2048;
/// Most legs of the walk over one write.
pub const MAX_LEGS: u32 = 96;
/// Most steps of a leg: each frame takes two or three.
pub const MAX_STEPS: u32 = 64;
/// So many frames of one write are followed at least.
pub const FRAMES: u32 = MAX_LEGS * MAX_STEPS / 3;
/// Room for a fragment of a header block, one byte more than is kept.
pub const BLOCK: usize = 512;
/// Room for `package.Service/Method`, zeros behind it.
pub const NAME: usize = 128;

/// Everything that was ever sent in this direction has been seen.
pub const FROM_START: u32 = 1;

/// A request without an answer. Its key is a [`MessageKey`](super::state::MessageKey).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OpenRequest {
    /// When the write began that has the beginning of its header block, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Bytes of DATA that the client has sent.
    pub bytes: u64,
    /// Bytes of DATA that the server has sent.
    pub answer_bytes: u64,
    /// Process that asks.
    pub tgid: u32,
    /// Thread that wrote it.
    pub tid: u32,
    /// Process that is to answer; 0 when not known.
    pub peer: u32,
    /// Role that whoever listens at the socket has, by its path.
    pub role: u32,
}

/// How far one direction of a connection has been read. Zeroed is one that is joined late.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Stance {
    /// Where in its frames.
    pub walker: Walker,
    /// When the write began from which on it has been in step.
    pub joined_ns: u64,
    /// Bytes of header blocks since then.
    pub blocks: u64,
    /// [`FROM_START`] or 0.
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
}

const _: () = assert!(FRAMES >= 2048);
const _: () = assert!(size_of::<OpenRequest>() == 40);
const _: () = assert!(size_of::<Stance>() == size_of::<Walker>() + 24);
