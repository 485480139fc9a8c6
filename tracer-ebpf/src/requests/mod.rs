//! gRPC requests of a kubelet without an answer: the only place that begins and ends them.
//!
//! What a client writes is walked through when the write begins, which opens its requests and hands their header blocks
//! over, and when it ends, when it is known how much was taken. What the server writes is walked through when the write
//! ends: its trailers and resets close requests. Payloads are passed over unread.
//!
//! Clients that are not traced are followed at the server: what it has read of them is walked through once, which does both.

mod events;
mod other;
mod walk;

use plegtrace_common::{
    reason::Reason,
    role::Role,
    wire::{
        request::{OpenRequest, Stance},
        state::{Ends, SENDING_CLIENT, SENDING_SERVER, Sending},
    },
};

use crate::{
    count,
    maps::REQUEST_WALKS,
    messages::{self, AGAIN, Writer},
    scratch::Held,
    socket,
};
pub(crate) use other::read;
use walk::request_walk;

/// Where a write is walked through; an entry of a map.
#[repr(C)]
pub(crate) struct Scratch {
    stance: Stance,
    job: Job,
    request: OpenRequest,
    /// What the last step found.
    event: Found,
    /// Where in the write.
    at: u32,
    reserved: u32,
}

/// An [`Event`], laid out.
#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    stream: u32,
    at: u32,
    len: u32,
    value: u32,
    kind: u8,
    flags: u8,
    marks: u8,
    reserved: [u8; 5],
}

/// Bytes that are written.
#[repr(C)]
#[derive(Clone, Copy)]
struct Job {
    ends: Ends,
    buffer: u64,
    /// When the write began.
    start_ns: u64,
    /// How many bytes are at `buffer`.
    len: u32,
    /// How many there are, with those elsewhere.
    all: u32,
    /// One of [`why`].
    why: u32,
    tgid: u32,
    tid: u32,
    /// Role of who listens at the socket.
    role: u32,
}

/// Why bytes are walked through.
mod why {
    /// The write of a client begins: its requests are opened.
    pub(super) const BEGINS: u32 = 0;
    /// It has ended.
    pub(super) const WRITTEN: u32 = 1;
    /// It has failed for good: its requests were never sent.
    pub(super) const FAILED: u32 = 3;
    /// The write of a server has ended: it closes requests.
    pub(super) const ANSWERED: u32 = 2;
    /// A server has read what a client that is not traced has written.
    pub(super) const READ: u32 = 4;
}

const GO_ON: u64 = 0;
const END: u64 = 1;
/// A frame was found: it stands in the scratch.
const FOUND: u64 = 2;
/// `BPF_NOEXIST` (include/uapi/linux/bpf.h).
const NEW: u64 = 1;

/// What a process does on connections to a runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CriSide {
    Client,
    Server,
}

impl CriSide {
    #[inline(always)]
    pub(crate) fn of(role: u32) -> Option<Self> {
        const SERVERS: u32 =
            1 << Role::Containerd as u32 | 1 << Role::Crio as u32 | 1 << Role::CriDockerd as u32;
        if role == Role::Kubelet as u32 {
            Some(Self::Client)
        } else if role < 32 && SERVERS >> role & 1 != 0 {
            Some(Self::Server)
        } else {
            None
        }
    }

    /// Role of who listens at the socket of this connection; 0 when it is none to a runtime.
    #[inline(always)]
    pub(crate) fn runtime_of(self, ends: &Ends) -> Result<u32, Reason> {
        socket::runtime_at(if self == Self::Client { ends.peer } else { ends.sock })
    }
}

/// Where this CPU walks; always there.
#[inline(always)]
fn scratch() -> Option<Held<Scratch>> {
    // SAFETY: programs on system calls do not interrupt each other; global functions are called by who holds the entry.
    unsafe { Held::of(&REQUEST_WALKS) }
}

/// A write begins; what it is stands in `sending`.
#[inline(always)]
pub(crate) fn begin(sending: &mut Sending, writer: Writer, side: CriSide, role: u32) {
    sending.flags = if side == CriSide::Client { SENDING_CLIENT } else { SENDING_SERVER };
    messages::remember(sending, writer);
    if side == CriSide::Client
        && let Some(mut held) = scratch()
    {
        let scratch = held.lend();
        scratch.job = job(sending, writer, why::BEGINS);
        scratch.job.role = role;
        held.call(request_walk);
    }
}

/// A write has ended with this result.
#[inline(always)]
pub(crate) fn end(sending: &Sending, writer: Writer, result: i64) {
    let taken = if result > 0 { result as u32 } else { 0 };
    if taken < sending.len {
        count::reason(Reason::SendCut);
    }
    let is_client = sending.flags & SENDING_CLIENT != 0;
    let failed = taken == 0 && is_client && !AGAIN.contains(&result);
    if (taken > 0 || failed)
        && let Some(mut held) = scratch()
    {
        let scratch = held.lend();
        let why = if is_client { why::WRITTEN } else { why::ANSWERED };
        scratch.job = job(sending, writer, if failed { why::FAILED } else { why });
        if !failed {
            scratch.job.all = taken;
            if taken < scratch.job.len {
                scratch.job.len = taken;
            }
        }
        held.call(request_walk);
    }
}

#[inline(always)]
fn job(sending: &Sending, writer: Writer, why: u32) -> Job {
    Job {
        ends: sending.ends,
        buffer: sending.buffer,
        start_ns: sending.start_ns,
        len: sending.len,
        all: sending.len,
        why,
        tgid: writer.tgid,
        tid: writer.tid,
        role: 0,
    }
}
