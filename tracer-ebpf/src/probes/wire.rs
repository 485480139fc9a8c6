//! Families `wire`, `request` and `bus`: requests on the sockets between kubelet, runtime and shims, and calls to systemd.
//!
//! Two raw tracepoints that every system call of the machine passes: which call it is, and whose, is asked first. Between
//! kubelet, runtime and shims bytes are read on the side that writes; reads only teach who holds an end. Of a bus only the client is
//! followed: what it writes and what it reads.

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use plegtrace_common::reason::Reason;

use crate::{
    bus, count,
    messages::{self, Writer},
    requests,
    socket::{self, TtrpcSide},
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

/// How a system call says where bytes are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// read, recvfrom, write, sendto
    Buffer,
    /// readv, writev
    Parts,
    /// recvmsg, sendmsg
    Message,
}

/// What a system call does with a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Read(Place),
    Write(Place),
}

impl Way {
    /// By the number of the call (arch/x86/entry/syscalls/syscall_64.tbl).
    #[inline(always)]
    fn of(number: u64) -> Option<Self> {
        match number {
            0 | 45 => Some(Self::Read(Place::Buffer)),
            19 => Some(Self::Read(Place::Parts)),
            47 => Some(Self::Read(Place::Message)),
            1 | 44 => Some(Self::Write(Place::Buffer)),
            20 => Some(Self::Write(Place::Parts)),
            46 => Some(Self::Write(Place::Message)),
            _ => None,
        }
    }
}

/// hook: include/trace/events/syscalls.h: sys_enter(struct pt_regs *regs, long id)
#[raw_tracepoint(tracepoint = "sys_enter")]
pub(crate) fn wire_enter(ctx: RawTracePointContext) -> i32 {
    count::system_call();
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

/// The same as [`wire_enter`], on kernels that preempt the programs of raw tracepoints: events switch preemption off.
///
/// hook: kernel/trace/trace_syscalls.c: syscalls:sys_enter_write and the others of [`Way`]
#[tracepoint]
pub(crate) fn wire_enter_tp(ctx: TracePointContext) -> u32 {
    count::system_call();
    if let Some(way) = Way::of(number(&ctx))
        && let Err(reason) = try_enter(task::registers(), way)
    {
        count::reason(reason);
    }
    0
}

/// The same of [`wire_exit`].
#[tracepoint]
pub(crate) fn wire_exit_tp(ctx: TracePointContext) -> u32 {
    if let Err(reason) = try_exit(task::registers(), result(&ctx)) {
        count::reason(reason);
    }
    0
}

/// Number of the system call: `nr` in `struct syscall_trace_enter` and `struct syscall_trace_exit` (kernel/trace/trace.h).
#[inline(always)]
fn number(ctx: &TracePointContext) -> u64 {
    // SAFETY: the events of system calls have it behind the common fields.
    unsafe { u64::from(*ctx.as_ptr().cast::<u32>().add(2)) }
}

/// What it returns: `ret` in `struct syscall_trace_exit`.
#[inline(always)]
fn result(ctx: &TracePointContext) -> i64 {
    // SAFETY: as above, behind the number.
    unsafe { *ctx.as_ptr().cast::<i64>().add(2) }
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
    let Some(watched) = watch::get(tgid) else { return Ok(()) };
    let side = TtrpcSide::of(watched.role);
    let writes = match way {
        Way::Write(place) => Some(place),
        Way::Read(_) => None,
    };
    let asks = writes.is_some() && bus::asks(watched.role);
    let of_runtime = requests::CriSide::of(watched.role);
    if side.is_none() && !asks && of_runtime.is_none() {
        return Ok(());
    }
    let writer = Writer { tgid, tid: pid_tgid as u32, is_shim: side == Some(TtrpcSide::Shim) };
    let fd = task::kernel::<u64>(regs, FIRST)? as u32;
    let Some(mut ends) = socket::of_fd(fd)? else { return Ok(()) };
    let is_ttrpc = match side {
        Some(side) => socket::is_ttrpc(&ends, side)?,
        None => false,
    };
    let runtime = match of_runtime {
        Some(of_runtime) if !is_ttrpc => of_runtime.runtime_of(&ends)?,
        _ => 0,
    };
    let is_followed = is_ttrpc || runtime != 0 || asks && socket::is_bus(&ends)?;
    if !is_followed {
        return Ok(());
    }
    ends.peer_socket = socket::number(ends.peer)?;
    if is_ttrpc || runtime != 0 {
        messages::learn(&ends, writer.tgid);
    }
    let Some(place) = writes else { return Ok(()) };
    let (buffer, len, parts) = bytes(regs, place)?;
    if is_ttrpc && parts != 1 {
        return Err(Reason::MessageInParts);
    }
    let Some(scratch) = messages::scratch() else { return Ok(()) };
    scratch.sending.ends = ends;
    scratch.sending.buffer = buffer;
    scratch.sending.len = if len > LONGEST { LONGEST as u32 } else { len as u32 };
    scratch.sending.fd = fd;
    scratch.sending.tgid = writer.tgid;
    // SAFETY: no arguments.
    scratch.sending.start_ns = unsafe { bpf_ktime_get_ns() };
    if is_ttrpc {
        messages::begin(scratch, writer);
        Ok(())
    } else if let Some(of_runtime) = of_runtime
        && runtime != 0
    {
        requests::begin(&mut scratch.sending, writer, of_runtime, runtime);
        Ok(())
    } else {
        bus::begin(&mut scratch.sending, writer)
    }
}

/// Where the bytes of a call are, or the first part of them, how many there are there, and in how many parts they are.
#[inline(always)]
fn bytes(regs: u64, place: Place) -> Result<(u64, u64, u64), Reason> {
    let second: u64 = task::kernel(regs, SECOND)?;
    let (parts, count) = match place {
        Place::Parts => (second, task::kernel(regs, THIRD)?),
        Place::Message => (user(second + MSG_PARTS)?, user(second + MSG_COUNT)?),
        Place::Buffer => return Ok((second, task::kernel(regs, THIRD)?, 1)),
    };
    if count == 0 {
        return Ok((0, 0, 0));
    }
    Ok((user(parts)?, user(parts + PART_LEN)?, count))
}

#[inline(always)]
fn user(address: u64) -> Result<u64, Reason> {
    task::user_word(address).ok_or(Reason::MessageUnreadable)
}

#[inline(always)]
fn try_exit(regs: u64, result: i64) -> Result<(), Reason> {
    let Some(way) = Way::of(task::kernel(regs, NUMBER)?) else { return Ok(()) };
    let pid_tgid = bpf_get_current_pid_tgid();
    let (tgid, tid) = ((pid_tgid >> 32) as u32, pid_tgid as u32);
    let writer = Writer { tgid, tid, is_shim: false };
    let of_bus = match way {
        Way::Read(_) if result <= 0 => false,
        Way::Read(place) => has_read(regs, place, result as u64, writer)?,
        Way::Write(_) => {
            let fd = task::kernel::<u64>(regs, FIRST)? as u32;
            let Some(scratch) = messages::scratch() else { return Ok(()) };
            messages::end(scratch, writer, fd, result)?
        }
    };
    if of_bus { bus::walk() } else { Ok(()) }
}

/// A read has brought so many bytes. Is it one from a bus that is followed?
#[inline(always)]
fn has_read(regs: u64, place: Place, taken: u64, reader: Writer) -> Result<bool, Reason> {
    if !watch::get(reader.tgid).is_some_and(|watched| bus::asks(watched.role)) {
        return Ok(false);
    }
    let Some(ends) = socket::of_fd(task::kernel::<u64>(regs, FIRST)? as u32)? else { return Ok(false) };
    if !socket::is_bus(&ends)? {
        return Ok(false);
    }
    let (buffer, len, _) = bytes(regs, place)?;
    Ok(bus::read(&ends, buffer, if len > LONGEST { LONGEST as u32 } else { len as u32 }, taken, reader))
}
