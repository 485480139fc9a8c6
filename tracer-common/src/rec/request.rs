//! [`BlockRec`] and [`RequestRec`]: what is seen of the gRPC requests of a kubelet.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    header::RecHeader,
    wire::request::{BLOCK, NAME},
};

/// The fragment begins a header block.
pub const BLOCK_FIRST: u32 = 1;
/// The fragment ends it.
pub const BLOCK_LAST: u32 = 2;
/// Not all of the fragment could be kept.
pub const BLOCK_CUT: u32 = 4;
/// Every block of this direction has been seen.
pub const BLOCK_FROM_START: u32 = 8;
/// The client is not traced: the runtime has read it.
pub const BLOCK_OTHER: u32 = 16;
/// Trailers of the server that say more than that all is well: `len` are the bytes that could be kept.
pub const BLOCK_TRAILERS: u32 = 32;

/// Trailers of fewer bytes have no error's words in them: `grpc-status` and an empty `grpc-message` take 31 in plain text and half as
/// many as Huffman codes, once; later two.
pub const WORDLESS: u32 = 32;

/// A fragment of a header block: of one that a client sends, or of a server's trailers with an error. It may have secrets in it, so it
/// ends where methods get their names, before the stream; of an error only its redacted words go on.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct BlockRec {
    /// `ts_ns` is when the write began; process and thread are those that write.
    pub header: RecHeader,
    /// Inode number of the socket of the client.
    pub socket: u64,
    /// When the write began from which on the direction has been in step: another number is another header table.
    pub joined_ns: u64,
    /// Bytes of blocks before this fragment since then. What a socket did not take is written again, and seen again.
    pub offset: u64,
    /// Stream.
    pub stream: u32,
    /// Bytes of the fragment.
    pub len: u32,
    /// `BLOCK_*` bits.
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
    /// The fragment; what is behind it is not set.
    pub bytes: [u8; BLOCK],
}

/// How a request ended.
pub mod how {
    /// With the trailers of the server.
    pub const ANSWERED: u32 = 1;
    /// The server ended the stream without trailers.
    pub const CUT: u32 = 2;
    /// The server reset it.
    pub const RESET_BY_SERVER: u32 = 3;
    /// The client reset it: it was cancelled, or its time was over.
    pub const RESET_BY_CLIENT: u32 = 4;
    /// No request: answers of the server may have been missed, so its open requests are in doubt. Only from the kernel to
    /// whoever names methods.
    pub const IN_DOUBT: u32 = 5;
    /// The server has said that it will not serve streams above this one. Only from the kernel, as above.
    pub const GOING_AWAY: u32 = 6;
    /// Bit of a request whose client is not traced: it began when the runtime had read it.
    pub const OTHER: u32 = 0x100;
}

/// A request that has ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RequestRec {
    /// `ts_ns` is when the write began that ended it; process and thread are those that wrote.
    pub header: RecHeader,
    /// When the write began that has the beginning of its header block, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Inode number of the socket of the client.
    pub socket: u64,
    /// Bytes of DATA that the client sent, by writes that returned before the answer came.
    pub bytes: u64,
    /// Bytes of DATA that the server sent.
    pub answer_bytes: u64,
    /// Stream.
    pub stream: u32,
    /// Process that asked.
    pub asker: u32,
    /// Process that was to answer; 0 when not known.
    pub answerer: u32,
    /// One of [`how`], with or without [`how::OTHER`].
    pub how: u32,
    /// `package.Service/Method`; `unknown#k` for one whose header table is older than us; empty when it could not be read.
    /// The kernel side leaves it empty.
    pub name: [u8; NAME],
}

const _: () = assert!(size_of::<BlockRec>() == 64 + BLOCK);
const _: () = assert!(size_of::<RequestRec>() == 72 + NAME);
