//! Family `wire`: requests on the sockets between runtime and shims.
//!
//! Two raw tracepoints that every system call of the machine passes: which call it is, and whose, is asked first. Bytes
//! are read on the side that writes; reads only teach who holds an end.

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::raw_tracepoint,
    programs::RawTracePointContext,
};
use plegtrace_common::reason::Reason;

use crate::{
    count,
    messages::{self, Writer},
    socket::{self, Side},
    task, watch,
};

/// Offsets in `struct pt_regs` (arch/x86/include/asm/ptrace.h): the arguments of a system call, and its number.
const FIRST: u32 = 112;
const SECOND: u32 = 104;
const THIRD: u32 = 96;
const NUMBER: u32 = 120;

/// `msg_iov` and `msg_iovlen` in `struct user_msghdr` (include/linux/socket.h); `iov_len` in `struct iovec`.
const MSG_PARTS: u64 = 16;
const MSG_COUNT: u64 = 24;
const PART_LEN: u64 = 8;
/// Longer writes are cut by the kernel (`MAX_RW_COUNT`).
const LONGEST: u64 = 0x7fff_f000;

/// What a system call does with a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// read, readv, recvfrom, recvmsg
    Read,
    /// write, sendto
    Buffer,
    /// writev
    Parts,
    /// sendmsg
    Message,
}

impl Way {
    /// By the number of the call (arch/x86/entry/syscalls/syscall_64.tbl).
    #[inline(always)]
    fn of(number: u64) -> Option<Self> {
        match number {
            0 | 19 | 45 | 47 => Some(Self::Read),
            1 | 44 => Some(Self::Buffer),
            20 => Some(Self::Parts),
            46 => Some(Self::Message),
            _ => None,
        }
    }
}

/// hook: include/trace/events/syscalls.h: sys_enter(struct pt_regs *regs, long id)
#[raw_tracepoint(tracepoint = "sys_enter")]
pub(crate) fn wire_enter(ctx: RawTracePointContext) -> i32 {
    if let Some(way) = Way::of(arg(&ctx, 1))
        && let Err(reason) = try_enter(arg(&ctx, 0), way)
    {
        count::reason(reason);
    }
    0
}

/// hook: include/trace/events/syscalls.h: sys_exit(struct pt_regs *regs, long ret)
#[raw_tracepoint(tracepoint = "sys_exit")]
pub(crate) fn wire_exit(ctx: RawTracePointContext) -> i32 {
    if let Err(reason) = try_exit(arg(&ctx, 0), arg(&ctx, 1) as i64) {
        count::reason(reason);
    }
    0
}

/// Argument `n` of a raw tracepoint.
#[inline(always)]
fn arg(ctx: &RawTracePointContext, n: usize) -> u64 {
    // SAFETY: `bpf_raw_tracepoint_args` is an array of words, and these tracepoints have two.
    unsafe { *ctx.as_ptr().cast::<u64>().add(n) }
}

#[inline(always)]
fn try_enter(regs: u64, way: Way) -> Result<(), Reason> {
    let pid_tgid = bpf_get_current_pid_tgid();
    let tgid = (pid_tgid >> 32) as u32;
    let Some(side) = watch::get(tgid).and_then(|watched| Side::of(watched.role)) else { return Ok(()) };
    let writer = Writer { tgid, tid: pid_tgid as u32, is_shim: side == Side::Shim };
    let fd = task::kernel::<u64>(regs, FIRST)? as u32;
    let Some(mut ends) = socket::of_fd(fd)? else { return Ok(()) };
    if !socket::is_ttrpc(&ends, side)? {
        return Ok(());
    }
    ends.peer_socket = socket::number(ends.peer)?;
    messages::learn(&ends, writer.tgid);
    if way == Way::Read {
        return Ok(());
    }
    let (buffer, len) = bytes(regs, way)?;
    let Some(scratch) = messages::scratch() else { return Ok(()) };
    scratch.sending.ends = ends;
    scratch.sending.buffer = buffer;
    scratch.sending.len = if len > LONGEST { LONGEST as u32 } else { len as u32 };
    scratch.sending.fd = fd;
    scratch.sending.tgid = writer.tgid;
    // SAFETY: no arguments.
    scratch.sending.start_ns = unsafe { bpf_ktime_get_ns() };
    messages::begin(scratch, writer)
}

/// Where the bytes of a write are, and how many.
#[inline(always)]
fn bytes(regs: u64, way: Way) -> Result<(u64, u64), Reason> {
    let second: u64 = task::kernel(regs, SECOND)?;
    let (parts, count) = match way {
        Way::Parts => (second, task::kernel(regs, THIRD)?),
        Way::Message => (user(second + MSG_PARTS)?, user(second + MSG_COUNT)?),
        _ => return Ok((second, task::kernel(regs, THIRD)?)),
    };
    if count != 1 {
        return Err(Reason::MessageInParts);
    }
    Ok((user(parts)?, user(parts + PART_LEN)?))
}

#[inline(always)]
fn user(address: u64) -> Result<u64, Reason> {
    task::user_word(address).ok_or(Reason::MessageUnreadable)
}

#[inline(always)]
fn try_exit(regs: u64, result: i64) -> Result<(), Reason> {
    if !Way::of(task::kernel(regs, NUMBER)?).is_some_and(|way| way != Way::Read) {
        return Ok(());
    }
    let pid_tgid = bpf_get_current_pid_tgid();
    let (tgid, tid) = ((pid_tgid >> 32) as u32, pid_tgid as u32);
    let writer = Writer { tgid, tid, is_shim: false };
    let fd = task::kernel::<u64>(regs, FIRST)? as u32;
    let Some(scratch) = messages::scratch() else { return Ok(()) };
    messages::end(scratch, writer, fd, result)
}
