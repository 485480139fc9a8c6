//! Calls over D-Bus without an answer: the only place that begins and ends them.
//!
//! What a client writes is walked through when the write begins, which opens its calls, and when it ends, which says how
//! much was taken. What it reads is walked through when the read has ended, which closes them: neither the bus nor
//! systemd has to be watched.

mod calls;
mod jobs;
mod walk;

use plegtrace_common::{
    reason::Reason,
    role::Role,
    wire::{
        bus::{JOB_BODY, OpenBusCall},
        dbus::{Position, Walk},
        state::{Begun, Ends, MAX_FRAMES, PositionKey, SENDING_BUS, SENDING_LOST, Sending},
    },
};

use crate::{
    count,
    maps::{BUS_POSITIONS, BUS_WALKS},
    messages::{self, AGAIN, Writer},
    scratch::Held,
};
use calls::bus_settle;
use walk::walk_through;

/// Where bytes are walked through; an entry of a map.
#[repr(C)]
pub(crate) struct Scratch {
    walk: Walk,
    job: Job,
    /// Calls that began in this write.
    begun: [Begun; MAX_FRAMES],
    /// How many. Kept here, not in a register: there each number would be a path for the verifier.
    calls: u32,
    /// The same for what a helper is asked for: where to, and how many bytes.
    fetch: [u32; 2],
    /// Where the body of a message begins that may be about a job of systemd; it may be behind these bytes.
    body_at: u32,
    /// That body.
    body: [u8; JOB_BODY],
    call: OpenBusCall,
}

/// Why bytes are walked through.
mod why {
    /// A write begins: its calls are opened.
    pub(super) const BEGINS: u32 = 0;
    /// A write has ended: only how far it went is of interest.
    pub(super) const WRITTEN: u32 = 1;
    /// A read has ended: what it brought closes calls.
    pub(super) const READ: u32 = 2;
}

/// Bytes that a system call has moved.
#[repr(C)]
#[derive(Clone, Copy)]
struct Job {
    ends: Ends,
    buffer: u64,
    /// All that were moved.
    taken: u64,
    /// How many of them may be at `buffer`.
    len: u32,
    /// One of [`why`].
    why: u32,
    /// Not 0: what was not taken will not be written again.
    given_up: u32,
    /// Not 0: what was written is not D-Bus.
    lost: u32,
    /// When it began.
    start_ns: u64,
    tgid: u32,
    tid: u32,
}

/// Is it one whose calls are followed?
#[inline(always)]
pub(crate) fn asks(role: u32) -> bool {
    const ASKING: u32 = 1 << Role::Kubelet as u32
        | 1 << Role::Containerd as u32
        | 1 << Role::Crio as u32
        | 1 << Role::Dockerd as u32
        | 1 << Role::CriDockerd as u32
        | 1 << Role::Conmon as u32
        | 1 << Role::Runc as u32;
    role < 32 && ASKING >> role & 1 != 0
}

/// Where this CPU walks; always there.
#[inline(always)]
fn scratch() -> Option<Held<Scratch>> {
    // SAFETY: programs on system calls do not interrupt each other; global functions are called by who holds the entry.
    unsafe { Held::of(&BUS_WALKS) }
}

/// Addresses are even, so what is read has a key of its own.
#[inline(always)]
fn position_key(ends: &Ends, is_read: bool) -> PositionKey {
    PositionKey { sock: ends.sock | u64::from(is_read), socket: ends.socket }
}

#[inline(always)]
fn position(key: &PositionKey) -> Position {
    // SAFETY: the value is copied at once; one thread at a time reads or writes messages.
    unsafe { BUS_POSITIONS.get(key) }.copied().unwrap_or(Position::BOUNDARY)
}

#[inline(always)]
fn save(key: &PositionKey, now: &Position) {
    if !now.is_boundary() {
        if BUS_POSITIONS.insert(key, now, 0).is_err() {
            count::reason(Reason::SendingFull);
        }
    } else {
        let _ = BUS_POSITIONS.remove(key);
    }
}

/// A write begins; what it is stands in `sending`.
#[inline(always)]
pub(crate) fn begin(sending: &mut Sending, writer: Writer) -> Result<(), Reason> {
    let Some(mut held) = scratch() else { return Ok(()) };
    let scratch = held.lend();
    sending.flags = SENDING_BUS;
    scratch.begun = [Begun { stream: 0, end: 0 }; MAX_FRAMES];
    scratch.job = Job {
        ends: sending.ends,
        buffer: sending.buffer,
        taken: 0,
        len: sending.len,
        why: why::BEGINS,
        given_up: 0,
        lost: 0,
        start_ns: sending.start_ns,
        tgid: writer.tgid,
        tid: writer.tid,
    };
    let outcome = walk_through::<false>(&mut held, &position_key(&sending.ends, false), sending.len);
    sending.begun = held.lend().begun;
    if outcome.is_err() {
        sending.flags |= SENDING_LOST;
    }
    messages::remember(sending, writer);
    outcome
}

/// A write has ended with this result. Is there something to walk through?
#[inline(always)]
pub(crate) fn end(sending: &Sending, result: i64) -> bool {
    let Some(mut held) = scratch() else { return false };
    let scratch = held.lend();
    let taken = if result > 0 { result as u64 } else { 0 };
    scratch.job = Job {
        ends: sending.ends,
        buffer: sending.buffer,
        taken,
        len: sending.len,
        why: why::WRITTEN,
        given_up: u32::from(result <= 0 && !AGAIN.contains(&result)),
        lost: sending.flags & SENDING_LOST,
        start_ns: 0,
        tgid: 0,
        tid: 0,
    };
    if taken < u64::from(sending.len) {
        count::reason(Reason::SendCut);
    }
    for begun in &sending.begun {
        if begun.end != 0 {
            held.lend().begun[0] = *begun;
            held.call(bus_settle);
        }
    }
    let scratch = held.lend();
    scratch.job.lost != 0 || scratch.job.taken != 0
}

/// A read has ended that brought `taken` bytes, of which `len` fit where `buffer` is.
#[inline(always)]
pub(crate) fn read(ends: &Ends, buffer: u64, len: u32, taken: u64, reader: Writer) -> bool {
    let Some(mut held) = scratch() else { return false };
    let (tgid, tid) = (reader.tgid, reader.tid);
    held.lend().job =
        Job { ends: *ends, buffer, taken, len, why: why::READ, given_up: 0, lost: 0, start_ns: 0, tgid, tid };
    true
}

/// Walks through bytes that have been moved, as [`end`] or [`read`] said: of what was read, answers close their calls.
#[inline(always)]
pub(crate) fn walk() -> Result<(), Reason> {
    let Some(mut held) = scratch() else { return Ok(()) };
    let scratch = held.lend();
    // SAFETY: part of an entry of a map; read anew, so that reads and writes are one path for the verifier.
    let Job { ends, taken, len, why, lost, .. } = unsafe { (&raw const scratch.job).read_volatile() };
    let direction = &position_key(&ends, why == why::READ);
    if lost != 0 {
        save(direction, &Position::BOUNDARY);
        return Ok(());
    }
    let len = if taken < u64::from(len) { taken as u32 } else { len };
    scratch.job.len = len;
    let outcome = walk_through::<true>(&mut held, direction, len);
    let scratch = held.lend();
    if outcome.is_err() {
        scratch.walk.position = Position::BOUNDARY;
    }
    // What was gathered from, or scattered to, more places: bodies.
    let rest = taken.wrapping_sub(u64::from(len));
    if rest > 0 {
        let left = u64::from(scratch.walk.position.left);
        if left >= rest {
            scratch.walk.position.left = (left - rest) as u32;
        } else {
            scratch.walk.position = Position::BOUNDARY;
        }
    }
    save(direction, &scratch.walk.position);
    outcome
}
