//! [`RecHeader`]: how every record of the input stream begins, whether it comes from the kernel or from user space.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The envelope of one record. The payload follows at once; `len` counts both.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RecHeader {
    /// When the record was made, nanoseconds of CLOCK_MONOTONIC (`bpf_ktime_get_ns`).
    pub ts_ns: u64,
    /// Length of the record in bytes, header included.
    pub len: u32,
    /// A [`RecKind`](crate::kind::RecKind).
    pub kind: u16,
    /// [`ABI_VERSION`](crate::ABI_VERSION) of the writer.
    pub abi: u16,
    /// Process (thread group) that was running; 0 for facts of user space.
    pub tgid: u32,
    /// Thread that was running; 0 for facts of user space.
    pub tid: u32,
}

/// Size of [`RecHeader`] in bytes.
pub const HEADER_LEN: usize = size_of::<RecHeader>();

const _: () = assert!(HEADER_LEN == 24);
