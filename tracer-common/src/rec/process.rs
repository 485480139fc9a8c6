//! [`ProcessRec`]: birth, change of program, and end of a watched process.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::header::RecHeader;

/// One step in the life of a process; the kind is in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ProcessRec {
    /// `tgid` is the process the record is about (the child for a fork).
    pub header: RecHeader,
    /// Parent process; 0 when not known.
    pub parent: u32,
    /// [`Role`](crate::role::Role) from now on.
    pub role: u32,
    /// Role until now.
    pub old_role: u32,
    /// Wait status as for `wait(2)`: exit code × 256 + signal; only for an exit.
    pub exit_code: u32,
    /// Name of the task as the kernel keeps it, cut at 15 bytes and zero-terminated. Hostile text.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<ProcessRec>() == 56);
