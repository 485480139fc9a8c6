//! Calls over D-Bus without an answer: the only place that begins and ends them.
//!
//! What a client writes is walked through when the write begins, which opens its calls, and when it ends, which says how
//! much was taken. What it reads is walked through when the read has ended, which closes them: neither the bus nor
//! systemd has to be watched.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_probe_read_user};
use plegtrace_common::{
    kind::RecKind,
    reason::Reason,
    rec::BusRec,
    role::Role,
    wire::{
        bus::{
            BUS_JOB, BUS_UNSENT, BusKey, BusTexts, JOB_BODY, MAX_UNITS, OpenBusCall, TEXT, TEXTS, begins_job,
            is_job_removed, job_in_answer, job_in_signal,
        },
        dbus::{Message, Next, Position, Walk, kind},
        state::{Begun, Ends, MAX_FRAMES, PositionKey, SENDING_BUS, SENDING_LOST, Sending},
        ttrpc::Bytes,
    },
};

use crate::{
    arguments::masked,
    count, emit,
    maps::{BUS_CALLS, BUS_POSITIONS, BUS_WALKS, JOB_BODIES, JOBS_DONE},
    messages::{self, AGAIN, Writer},
    scratch::Held,
};

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

/// What comes of a step.
mod step {
    pub(super) const GO_ON: u64 = 0;
    pub(super) const END: u64 = 1;
    pub(super) const OUT_OF_STEP: u64 = 2;
    pub(super) const UNREADABLE: u64 = 3;
    pub(super) const FULL: u64 = 4;
    /// A message that may be about a job of systemd.
    pub(super) const JOB: u64 = 5;
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

/// `BPF_NOEXIST` (include/uapi/linux/bpf.h).
const NEW: u64 = 1;
/// `BPF_EXIST` (include/uapi/linux/bpf.h).
const KNOWN: u64 = 2;

/// Bytes in the memory of the current process.
struct User {
    buffer: u64,
    fetch: *mut [u32; 2],
}

impl Bytes for User {
    #[inline(always)]
    fn fetch(&mut self, at: u32, unit: &mut [u8; 16], to: u32, count: u32) -> bool {
        // SAFETY: part of an entry of a map.
        let [to, count] = unsafe {
            self.fetch.write_volatile([to, count]);
            self.fetch.read_volatile()
        };
        let (to, count) = (masked(u64::from(to), 15), masked(u64::from(count), 31));
        let from = self.buffer.wrapping_add(u64::from(at));
        // SAFETY: the unit is part of a larger entry of a map, and both together are at most 16; the helper checks the
        // address and fails cleanly.
        unsafe {
            let to = unit.as_mut_ptr().add(to as usize);
            bpf_probe_read_user(to.cast(), count, from as *const c_void) == 0
        }
    }
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

/// Walks through the bytes of the job from where the direction stands; a write that begins (not
/// `ENDED`) brings no answers. Each step is a function that the verifier looks at
/// by itself, once: all paths through all steps would be too many for it.
#[inline(always)]
fn walk_through<const ENDED: bool>(
    held: &mut Held<Scratch>,
    at: &PositionKey,
    len: u32,
) -> Result<(), Reason> {
    let scratch = held.lend();
    scratch.walk = Walk::new(position(at), len);
    if ENDED && scratch.job.why == why::READ && scratch.walk.position.left != 0 {
        held.call(bus_body);
    }
    let scratch = held.lend();
    scratch.call.texts = [0; TEXT * TEXTS];
    scratch.calls = 0;
    for _ in 0..MAX_UNITS {
        match held.call(bus_step) {
            step::GO_ON => {}
            step::JOB if ENDED => {
                held.call(bus_job);
            }
            step::END => return Ok(()),
            step::OUT_OF_STEP => return Err(Reason::OutOfStep),
            step::UNREADABLE => return Err(Reason::MessageUnreadable),
            _ => break,
        }
    }
    Err(Reason::FramesLeft)
}

/// A step of [`walk_through`]: one unit of the bytes in this CPU's scratch. A global function of BPF (Linux 5.6): it has no
/// pointers, and nothing is known of what it gives but that it is a number.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn bus_step() -> u64 {
    let Some(mut held) = scratch() else { return step::END };
    let scratch = held.lend();
    let (why, buffer, len) = (scratch.job.why, scratch.job.buffer, scratch.job.len);
    let mut user = User { buffer, fetch: &raw mut scratch.fetch };
    match scratch.walk.next(&mut user) {
        Next::Start => scratch.call.texts = [0; TEXT * TEXTS],
        Next::Text { field, at, len: text } if why != why::WRITTEN => {
            keep(&mut scratch.call.texts, field, buffer, at, text, len);
        }
        Next::Message(message) if why == why::BEGINS && message.expects_answer() => {
            scratch.call.bytes = message.size;
            return started(scratch, Begun { stream: message.serial, end: message.header_end });
        }
        Next::Line { first: true } if why == why::BEGINS => {
            scratch.call.bytes = len;
            return started(scratch, Begun { stream: 0, end: 1 });
        }
        Next::Message(message) if why == why::READ && message.is_answer() && message.reply != 0 => {
            if close(scratch, &message) {
                scratch.body_at = message.header_end;
                return step::JOB;
            }
            scratch.call.texts = [0; TEXT * TEXTS];
        }
        Next::Message(message)
            if why == why::READ && message.kind == kind::SIGNAL && is_job_removed(member(&scratch.call)) =>
        {
            scratch.body_at = message.header_end;
            scratch.call.flags = 0;
            return step::JOB;
        }
        Next::Line { .. } if why == why::READ => connected(scratch),
        Next::Text { .. } | Next::Message(_) | Next::Line { .. } | Next::Part => {}
        Next::End => return step::END,
        Next::OutOfStep => return step::OUT_OF_STEP,
        Next::Unreadable => return step::UNREADABLE,
    }
    step::GO_ON
}

/// The first bytes of the name of a method or signal.
#[inline(always)]
fn member<const N: usize>(call: &OpenBusCall) -> [u8; N] {
    // SAFETY: of the second text, which is longer.
    unsafe { call.texts.as_ptr().add(TEXT).cast::<[u8; N]>().read() }
}

/// The header of a message about a job has been read: its body tells which one. Many readers fetch that with a read of its
/// own. A global function, as [`bus_step`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn bus_job() -> u64 {
    let Some(mut held) = scratch() else { return 0 };
    if let Err(reason) = job(held.lend()) {
        count::reason(reason);
    }
    0
}

/// The rest of a message is being read; is it the body of one about a job? A global function, as [`bus_step`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn bus_body() -> u64 {
    let Some(mut held) = scratch() else { return 0 };
    let scratch = held.lend();
    let key = &position_key(&scratch.job.ends, true);
    // SAFETY: the value is copied at once; one thread at a time reads messages.
    let Some(about) = (unsafe { JOB_BODIES.get(key) }) else { return 0 };
    scratch.call = *about;
    let _ = JOB_BODIES.remove(key);
    // What was left of the header comes first.
    scratch.body_at = scratch.walk.position.left.wrapping_sub(scratch.walk.position.body);
    if let Err(reason) = job(scratch) {
        count::reason(reason);
    }
    0
}

/// A message about a job: one that has begun, and then the call that it is the answer to is in the scratch, or one that is done.
#[inline(always)]
fn job(scratch: &mut Scratch) -> Result<(), Reason> {
    const MOST: u32 = JOB_BODY as u32 - 1;
    let (at, len, body) = (scratch.body_at, scratch.job.len, scratch.walk.position.body);
    if scratch.walk.position.left < body {
        return Err(Reason::MessageUnreadable);
    }
    if at >= len {
        let key = &position_key(&scratch.job.ends, true);
        let about: &OpenBusCall = &scratch.call;
        return JOB_BODIES.insert(key, about, 0).map_err(|_| Reason::MessagesFull);
    }
    let body = if body < MOST { body } else { MOST };
    if len - at < body {
        return Err(Reason::MessageUnreadable);
    }
    let body = masked(u64::from(body), JOB_BODY as u64 - 1);
    scratch.body = [0; JOB_BODY];
    let from = scratch.job.buffer.wrapping_add(u64::from(at)) as *const c_void;
    // SAFETY: within the body, as the mask says; the helper checks the address and fails cleanly.
    if unsafe { bpf_probe_read_user(scratch.body.as_mut_ptr().cast(), body, from) } != 0 {
        return Err(Reason::MessageUnreadable);
    }
    if scratch.call.flags == BUS_JOB { job_begun(scratch) } else { job_done(scratch) }
}

/// The call that this answer has closed is in the scratch. Another thread may read at the same moment that the job is done, see
/// [`job_done`]: each writes down what it knows, and then looks for what the other knows, so at least one of them sees both. Who
/// takes the job away ends it.
#[inline(always)]
fn job_begun(scratch: &mut Scratch) -> Result<(), Reason> {
    let Some(job) = job_in_answer(&scratch.body) else { return Ok(()) };
    let key = &BusKey::job(scratch.job.tgid, job);
    let call = &mut scratch.call;
    // SAFETY: no arguments.
    call.start_ns = unsafe { bpf_ktime_get_ns() };
    let call: &OpenBusCall = call;
    let kept = BUS_CALLS.insert(key, call, 0);
    if JOBS_DONE.remove(key).is_err() {
        return kept.map_err(|_| Reason::MessagesFull);
    }
    // One that did not fit is in nobody else's sight.
    if kept.is_err() || BUS_CALLS.remove(key).is_ok() {
        finished(&scratch.job, job, &scratch.call);
    }
    Ok(())
}

/// Everybody on the bus hears of every job: it may be one of others, or one of whose beginning the caller has not read yet.
#[inline(always)]
fn job_done(scratch: &mut Scratch) -> Result<(), Reason> {
    let job = job_in_signal(&scratch.body, scratch.walk.position.big != 0);
    let key = &BusKey::job(scratch.job.tgid, job);
    let kept = JOBS_DONE.insert(key, 1, 0);
    // SAFETY: the value is copied at once, and the copy is used only by who takes the entry away.
    let Some(open) = (unsafe { BUS_CALLS.get(key) }) else {
        return kept.map_err(|_| Reason::MessagesFull);
    };
    scratch.call = *open;
    let _ = JOBS_DONE.remove(key);
    if BUS_CALLS.remove(key).is_ok() {
        finished(&scratch.job, job, &scratch.call);
    }
    Ok(())
}

/// A job is done.
#[inline(always)]
fn finished(read: &Job, job: u32, open: &OpenBusCall) {
    let signal = Message { kind: kind::SIGNAL, flags: 0, serial: 0, reply: 0, size: 0, header_end: 0 };
    emit(read, (open.socket, job), open, &signal, None);
}

/// A call begins in this write.
#[inline(always)]
fn started(scratch: &mut Scratch, begun: Begun) -> u64 {
    if scratch.calls >= MAX_FRAMES as u32 {
        return step::FULL;
    }
    scratch.begun[black_box(scratch.calls as usize) & (MAX_FRAMES - 1)] = begun;
    scratch.calls += 1;
    if let Err(reason) = open(scratch, begun.stream) {
        count::reason(reason);
    }
    step::GO_ON
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

/// Keeps a text of a header: as much of it as fits, and as these bytes have.
#[inline(always)]
fn keep(texts: &mut [u8; TEXT * TEXTS], field: u8, buffer: u64, at: u32, len: u32, all: u32) {
    let Some(place) = BusTexts::place(field) else { return };
    let here = all.wrapping_sub(at);
    let len = masked(u64::from(if here < len { here } else { len }), TEXT as u64 - 1);
    let place = masked(place as u64, TEXTS as u64 - 1) as usize;
    let from = buffer.wrapping_add(u64::from(at)) as *const c_void;
    // SAFETY: within the texts, as both masks say; the helper checks the address and fails cleanly. What it cannot read
    // stays empty.
    unsafe {
        bpf_probe_read_user(texts.as_mut_ptr().add(place * TEXT).cast(), len, from);
    }
}

/// A call that had not been taken when it was written before keeps its start.
#[inline(always)]
fn open(scratch: &mut Scratch, serial: u32) -> Result<(), Reason> {
    let (job, call) = (&scratch.job, &mut scratch.call);
    call.start_ns = job.start_ns;
    call.socket = job.ends.socket;
    (call.tgid, call.tid) = (job.tgid, job.tid);
    call.flags = BUS_UNSENT;
    let key = &key(&job.ends, serial);
    let call: &OpenBusCall = call;
    if BUS_CALLS.insert(key, call, NEW).is_ok() {
        return Ok(());
    }
    let Some(known) = BUS_CALLS.get_ptr_mut(key) else { return Err(Reason::MessagesFull) };
    // SAFETY: a map value stays valid until the program returns; one thread at a time writes to a connection.
    if unsafe { (*known).flags } & BUS_UNSENT != 0 {
        return Ok(());
    }
    count::reason(Reason::MessageRepeated);
    BUS_CALLS.insert(key, call, 0).map_err(|_| Reason::MessagesFull)
}

#[inline(always)]
fn key(ends: &Ends, serial: u32) -> BusKey {
    BusKey { sock: ends.sock, socket: ends.socket, serial, reserved: 0 }
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

/// The first of the calls in the scratch has been taken by its socket, or it is to be written again, or it never will be. Another thread may
/// have read its answer already, and then its entry is another call's: so it is written by its key, and not in place. A global function, as
/// [`bus_step`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn bus_settle() -> u64 {
    let Some(mut held) = scratch() else { return 0 };
    let scratch = held.lend();
    let (begun, taken, given_up) = (scratch.begun[0], scratch.job.taken, scratch.job.given_up);
    let key = &key(&scratch.job.ends, begun.stream);
    if u64::from(begun.end) <= taken {
        // SAFETY: the value is copied at once, and the copy is kept only where its call is still open.
        let Some(open) = (unsafe { BUS_CALLS.get(key) }) else { return 0 };
        scratch.call = *open;
        scratch.call.flags = 0;
        let call: &OpenBusCall = &scratch.call;
        let _ = BUS_CALLS.insert(key, call, KNOWN);
    } else if given_up != 0 {
        let _ = BUS_CALLS.remove(key);
    }
    0
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

/// The bus has said its first line: the connection is there.
#[inline(always)]
fn connected(scratch: &mut Scratch) {
    // SAFETY: only whether it is there is looked at.
    if unsafe { BUS_CALLS.get(key(&scratch.job.ends, 0)) }.is_some() {
        let line = Message { kind: kind::RETURN, flags: 0, serial: 0, reply: 0, size: 0, header_end: 0 };
        let _ = close(scratch, &line);
    }
}

/// An answer: its call is over. May it be a job of systemd? Then the call is in the scratch.
#[inline(always)]
fn close(scratch: &mut Scratch, answer: &Message) -> bool {
    let key = &key(&scratch.job.ends, answer.reply);
    // SAFETY: the value is read at once; nobody else closes it.
    let Some(open) = (unsafe { BUS_CALLS.get(key) }) else {
        count::reason(Reason::AnswerAlone);
        return false;
    };
    let id = (key.socket, key.serial);
    emit(&scratch.job, id, open, answer, Some(&scratch.call.texts));
    let may_be_job = answer.kind == kind::RETURN && begins_job(member(open));
    if may_be_job {
        scratch.call = *open;
        scratch.call.flags = BUS_JOB;
    }
    let _ = BUS_CALLS.remove(key);
    may_be_job
}

/// Writes the record of a call, by socket and serial, that has been answered with this message; of its texts only the name of an
/// error matters.
#[inline(always)]
fn emit(
    read: &Job,
    (socket, serial): (u64, u32),
    open: &OpenBusCall,
    answer: &Message,
    texts: Option<&[u8; TEXT * TEXTS]>,
) {
    const ERROR: usize = 3;
    // SAFETY: no arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    let written = emit::fill::<BusRec>(|record| {
        let record = record.as_mut_ptr();
        // SAFETY: room for one record; each field of it is written.
        unsafe {
            (*record).header = emit::header::<BusRec>(RecKind::BusCall, now, read.tgid, read.tid);
            (*record).start_ns = open.start_ns;
            (*record).socket = socket;
            (*record).serial = serial;
            (*record).kind = u32::from(answer.kind);
            (*record).bytes = open.bytes;
            (*record).answer_bytes = answer.size;
            (*record).answer_serial = answer.serial;
            (*record).errno = 0;
            (*record).texts = open.texts;
            if let Some(texts) = texts {
                let to = (&raw mut (*record).texts).cast::<[u8; TEXT]>().add(ERROR);
                *to = *texts.as_ptr().cast::<[u8; TEXT]>().add(ERROR);
            }
        }
    });
    if !written {
        count::reason(Reason::RingFull);
    }
}
