//! [`ProcessRec`]: birth, change of program, and end of a watched process; [`ExecRec`]: its command line.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::header::RecHeader;

/// The process runs a program of its own: it has called `execve` since it was born.
pub const PROCESS_EXECED: u32 = 1;
/// The program is `runc init`, or a fork of it: its next `execve` makes it the workload.
pub const PROCESS_INIT: u32 = 1 << 1;
/// runc ran itself once more (from a sealed copy): the program goes on, and so does its time.
pub const PROCESS_AGAIN: u32 = 1 << 2;
/// The program is crun, or a fork of it, which becomes the workload without an `init` of its own.
pub const PROCESS_CRUN: u32 = 1 << 3;
/// The dockerd that the process may ask is watched too, so its answers are seen. Only user space knows that, and sets it.
pub const PROCESS_ASKS_DOCKER: u32 = 1 << 4;

/// A shim, a monitor or runc has started it, or something that has it: it works for a container, or is in one.
pub const PROCESS_FOR_CONTAINER: u32 = 1 << 5;

/// One step in the life of a process; the kind is in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ProcessRec {
    /// `tgid` is the process the record is about (the child for a fork).
    pub header: RecHeader,
    /// Parent process as the kernel has it (`real_parent`); 0 when not known.
    pub parent: u32,
    /// Who called `clone`; only for a fork. Another than `parent` under `CLONE_PARENT`, as runc does.
    pub creator: u32,
    /// [`Role`](crate::role::Role) from now on.
    pub role: u32,
    /// Role until now.
    pub old_role: u32,
    /// Role of the process that started it; 0 when it was not watched then.
    pub parent_role: u32,
    /// Wait status as for `wait(2)`: exit code × 256 + signal; only for an exit.
    pub exit_code: u32,
    /// When the program it runs (for an exit: ran) began, nanoseconds of CLOCK_MONOTONIC: its `execve`, its birth when
    /// it had none, for a fork of `runc init` that of the `runc init`. 0 when it is older than the probes.
    pub since_ns: u64,
    /// `PROCESS_*` bits.
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
    /// Name of the task as the kernel keeps it, cut at 15 bytes and zero-terminated. Hostile text.
    pub comm: [u8; 16],
}

/// Most bytes kept of the beginning of a command line. What is copied is one less: the verifier knows a mask best.
pub const ARGV_HEAD: usize = 1024;
/// Most bytes kept of the end of a command line that is longer.
pub const ARGV_TAIL: usize = 256;
/// Most bytes kept of the beginning, and of the end, of an environment.
pub const ENV_PART: usize = 2048;

/// The command line could not be read.
pub const EXEC_ARGV_UNREADABLE: u32 = 1;
/// The environment could not be read.
pub const EXEC_ENV_UNREADABLE: u32 = 1 << 1;

/// How much of a block of strings was copied. The first `head` bytes are in its head; the last `tail` bytes, which
/// follow the head at once unless `head + tail < len`, are in its tail.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Copied {
    /// Bytes the process has; saturated.
    pub len: u32,
    /// Bytes in the head.
    pub head: u32,
    /// Bytes in the tail.
    pub tail: u32,
}

/// A new program with its command line. Goes from the kernel to `session`, and never further: command lines hold
/// secrets. Bytes behind those that were copied are whatever the ring buffer held before.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ExecRec {
    /// The step itself; kind and length are those of this record.
    pub process: ProcessRec,
    /// `EXEC_*` bits.
    pub flags: u32,
    /// How much of the command line is there.
    pub argv: Copied,
    /// Its begin: zero-terminated words.
    pub argv_head: [u8; ARGV_HEAD],
    /// Its end.
    pub argv_tail: [u8; ARGV_TAIL],
}

/// An [`ExecRec`] with the environment, for CNI plugins: no other one leaves the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ExecEnvRec {
    /// The rest; kind and length are those of this record.
    pub exec: ExecRec,
    /// How much of the environment is there.
    pub env: Copied,
    /// Always 0.
    pub reserved: u32,
    /// Its begin: zero-terminated `NAME=value`.
    pub env_head: [u8; ENV_PART],
    /// Its end.
    pub env_tail: [u8; ENV_PART],
}

const _: () = assert!(size_of::<ProcessRec>() == 80);
const _: () = assert!(size_of::<ExecRec>() == 96 + ARGV_HEAD + ARGV_TAIL);
const _: () = assert!(size_of::<ExecEnvRec>() == size_of::<ExecRec>() + 16 + 2 * ENV_PART);
