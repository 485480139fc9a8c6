//! Families `wire`, `request`, `docker` and `bus`: requests on the sockets between kubelet, runtime, Docker and shims, and calls to
//! systemd.
//!
//! The programs are on all system calls of the node ([`calls`]) or, where the kernel lets them, on its functions that move the
//! bytes of AF_UNIX sockets ([`functions`]), which nobody else passes. Both tell the same: what is moved is read from the arguments
//! of the system call. Whose it is, is asked first. Between kubelet, runtime and shims bytes are read on the side that
//! writes; reads only teach who holds an end. Of a bus only the client is followed: what it writes and what it reads, and the
//! connections that it is refused.

mod calls;
mod connects;
mod functions;

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use plegtrace_common::{reason::Reason, wire::state::Ends};

use crate::{
    bus,
    docker::{self, DockerSide},
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

/// How the socket of a system call is found.
#[derive(Clone, Copy)]
enum Found {
    /// By the descriptor that the call was given.
    ByDescriptor,
    /// It is this `struct socket`.
    Socket(u64),
}

impl Found {
    /// Both ends of the connection; `None` when it is not one of AF_UNIX stream sockets.
    #[inline(always)]
    fn ends(self, fd: u32) -> Result<Option<Ends>, Reason> {
        match self {
            Self::ByDescriptor => socket::of_fd(fd),
            Self::Socket(socket) => socket::of(socket),
        }
    }
}

#[inline(always)]
fn try_enter(regs: u64, way: Way, found: Found) -> Result<(), Reason> {
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
    let of_docker = DockerSide::of(&watched);
    if side.is_none() && !asks && of_runtime.is_none() && of_docker.is_none() {
        return Ok(());
    }
    let writer = Writer { tgid, tid: pid_tgid as u32, is_shim: side == Some(TtrpcSide::Shim) };
    let fd = task::kernel::<u64>(regs, FIRST)? as u32;
    let Some(mut ends) = found.ends(fd)? else { return Ok(()) };
    let is_ttrpc = match side {
        Some(side) => socket::is_ttrpc(&ends, side)?,
        None => false,
    };
    let runtime = match of_runtime {
        Some(of_runtime) if !is_ttrpc => of_runtime.runtime_of(&ends)?,
        _ => 0,
    };
    let is_docker = match of_docker {
        Some(of_docker) if !is_ttrpc && runtime == 0 => of_docker.has(&ends)?,
        _ => false,
    };
    let is_followed = is_ttrpc || runtime != 0 || is_docker || asks && socket::is_bus(&ends)?;
    if !is_followed {
        return Ok(());
    }
    ends.peer_socket = socket::number(ends.peer)?;
    if is_ttrpc || runtime != 0 || is_docker {
        messages::learn(&ends, writer.tgid);
    }
    let Some(place) = writes else { return Ok(()) };
    let (buffer, len, parts) = bytes(regs, place)?;
    if is_ttrpc && parts != 1 {
        return Err(Reason::MessageInParts);
    }
    let Some(mut held) = messages::scratch() else { return Ok(()) };
    let sending = &mut held.lend().sending;
    sending.ends = ends;
    sending.buffer = buffer;
    sending.len = if len > LONGEST { LONGEST as u32 } else { len as u32 };
    sending.fd = fd;
    sending.tgid = writer.tgid;
    // SAFETY: no arguments.
    sending.start_ns = unsafe { bpf_ktime_get_ns() };
    if is_ttrpc {
        messages::begin(&mut held, writer);
        Ok(())
    } else if let Some(of_runtime) = of_runtime
        && runtime != 0
    {
        requests::begin(sending, writer, of_runtime, runtime);
        Ok(())
    } else if let Some(of_docker) = of_docker
        && is_docker
    {
        docker::begin(sending, writer, of_docker);
        Ok(())
    } else {
        bus::begin(sending, writer)
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
fn try_exit(regs: u64, way: Way, result: i64, found: Found) -> Result<(), Reason> {
    let pid_tgid = bpf_get_current_pid_tgid();
    let (tgid, tid) = ((pid_tgid >> 32) as u32, pid_tgid as u32);
    let writer = Writer { tgid, tid, is_shim: false };
    let of_bus = match way {
        Way::Read(_) if result <= 0 => false,
        Way::Read(place) => has_read(regs, place, result as u64, writer, found)?,
        Way::Write(_) => {
            let fd = task::kernel::<u64>(regs, FIRST)? as u32;
            let Some(mut held) = messages::scratch() else { return Ok(()) };
            messages::end(&mut held, writer, fd, result)?
        }
    };
    if of_bus { bus::walk() } else { Ok(()) }
}

/// A read has brought so many bytes. Is it one from a bus that is followed? What a client that is not traced asks of a runtime is
/// walked through here: nobody sees it written.
#[inline(always)]
fn has_read(regs: u64, place: Place, taken: u64, reader: Writer, found: Found) -> Result<bool, Reason> {
    let Some(watched) = watch::get(reader.tgid) else { return Ok(false) };
    let asks = bus::asks(watched.role);
    let serves = requests::CriSide::of(watched.role) == Some(requests::CriSide::Server);
    if !asks && !serves {
        return Ok(false);
    }
    let fd = task::kernel::<u64>(regs, FIRST)? as u32;
    let Some(ends) = found.ends(fd)? else { return Ok(false) };
    let of_bus = asks && socket::is_bus(&ends)?;
    if !of_bus && !serves {
        return Ok(false);
    }
    let (buffer, len, _) = bytes(regs, place)?;
    let len = if len > LONGEST { LONGEST as u32 } else { len as u32 };
    if of_bus {
        return Ok(bus::read(&ends, buffer, len, taken, reader));
    }
    requests::read(&ends, buffer, len, taken);
    Ok(false)
}
