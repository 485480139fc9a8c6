//! gRPC requests of a kubelet without an answer: the only place that begins and ends them.
//!
//! What a client writes is walked through when the write begins, which opens its requests and hands their header blocks
//! over, and when it ends, when it is known how much was taken. What the server writes is walked through when the write
//! ends: its trailers and resets close requests. Payloads are passed over unread.
//!
//! Clients that are not traced are followed at the server: what it has read of them is walked through once, which does both.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_probe_read_user};
use plegtrace_common::{
    kind::RecKind,
    reason::Reason,
    rec::{BLOCK_CUT, BLOCK_FIRST, BLOCK_FROM_START, BLOCK_LAST, BLOCK_OTHER, BlockRec, RequestRec, how},
    role::Role,
    wire::{
        Bytes,
        http2::{
            CONTINUATION, DATA, END_HEADERS, END_STREAM, Event, FIRST, GOAWAY, HEADERS, JOINED, LAST, ORPHAN,
            RST_STREAM, START, Step,
        },
        request::{BLOCK, FROM_START, MAX_LEGS, MAX_STEPS, NAME, OpenRequest, Stance},
        state::{Ends, MessageKey, PositionKey, SENDING_CLIENT, SENDING_SERVER, Sending},
    },
};

use crate::{
    arguments::masked,
    count, emit,
    maps::{CLIENTS, DIRECTIONS, OTHER_REQUESTS, REQUEST_WALKS, REQUESTS},
    messages::{self, AGAIN, Writer},
    socket::{self, Client},
    watch,
};

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

/// The bytes of a write, in the memory of the current process.
struct User {
    buffer: u64,
    len: u32,
    all: u32,
}

impl Bytes for User {
    #[inline(always)]
    fn length(&self) -> u32 {
        self.all
    }

    #[inline(always)]
    fn read<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        if u64::from(at) + N as u64 > u64::from(self.len) {
            return None;
        }
        let mut bytes = [0; N];
        let from = self.buffer.wrapping_add(u64::from(at)) as *const c_void;
        // SAFETY: `N` bytes on the stack; the helper checks the address and fails cleanly.
        let read = unsafe { bpf_probe_read_user(bytes.as_mut_ptr().cast(), N as u32, from) };
        if read == 0 { Some(bytes) } else { None }
    }
}

/// Where this CPU walks; always there.
#[inline(always)]
fn scratch() -> Option<&'static mut Scratch> {
    // SAFETY: the entry is our CPU's, and programs on system calls do not interrupt each other.
    REQUEST_WALKS.get_ptr_mut(0).map(|scratch| unsafe { &mut *scratch })
}

/// A write begins; what it is stands in `sending`.
#[inline(always)]
pub(crate) fn begin(sending: &mut Sending, writer: Writer, side: CriSide, role: u32) {
    sending.flags = if side == CriSide::Client { SENDING_CLIENT } else { SENDING_SERVER };
    messages::remember(sending, writer);
    if side == CriSide::Client
        && let Some(scratch) = scratch()
    {
        scratch.job = job(sending, writer, why::BEGINS);
        scratch.job.role = role;
        request_walk();
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
    if let Some(scratch) = scratch()
        && (taken > 0 || failed)
    {
        let why = if is_client { why::WRITTEN } else { why::ANSWERED };
        scratch.job = job(sending, writer, if failed { why::FAILED } else { why });
        if !failed {
            scratch.job.all = taken;
            if taken < scratch.job.len {
                scratch.job.len = taken;
            }
        }
        request_walk();
    }
}

/// The current process, a runtime, has read `taken` bytes, of which `len` fit where `buffer` is.
#[inline(always)]
pub(crate) fn read(ends: &Ends, buffer: u64, len: u32, taken: u64) {
    let Some(scratch) = scratch() else { return };
    let all = if taken > u64::from(u32::MAX) { u32::MAX } else { taken as u32 };
    scratch.job = Job {
        // As its client sees the connection.
        ends: Ends { sock: ends.peer, peer: ends.sock, socket: 0, peer_socket: ends.socket },
        buffer,
        start_ns: 0,
        len: if len < all { len } else { all },
        all,
        why: why::READ,
        tgid: 0,
        tid: 0,
        role: 0,
    };
    if request_read() == FOUND {
        request_walk();
    }
}

/// Has the current process read from a client that is not traced? Then what is known of that stands in this CPU's scratch. A global
/// function of BPF, as [`request_step`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn request_read() -> u64 {
    let Some(scratch) = scratch() else { return END };
    match of_other(&mut scratch.job) {
        Ok(true) => FOUND,
        Ok(false) => END,
        Err(reason) => {
            count::reason(reason);
            END
        }
    }
}

#[inline(always)]
fn of_other(job: &mut Job) -> Result<bool, Reason> {
    job.role = socket::runtime_at(job.ends.peer)?;
    if job.role == 0 {
        return Ok(false);
    }
    let Some(client) = Client::of(job.ends.peer)? else { return Ok(false) };
    if watch::get(client.tgid).is_some_and(|watched| CriSide::of(watched.role) == Some(CriSide::Client)) {
        return Ok(false);
    }
    (job.tgid, job.tid) = (client.tgid, client.tgid);
    job.ends.socket = socket::number(job.ends.sock)?;
    // Once for each connection: the number of a process may be another's by the next.
    // SAFETY: only whether it is there is looked at.
    if unsafe { DIRECTIONS.get(PositionKey { sock: job.ends.sock, socket: job.ends.socket }) }.is_none() {
        let _ = CLIENTS.insert(client.tgid, client.name()?, 0);
    }
    // SAFETY: no arguments.
    job.start_ns = unsafe { bpf_ktime_get_ns() };
    Ok(true)
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

/// Walks through the write in this CPU's scratch from where its direction stands. A global function of BPF, as
/// [`request_step`]. In legs, because verifiers follow no more than 8,192 branches (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`) of one
/// function.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn request_walk() -> u64 {
    let Some(scratch) = scratch() else { return END };
    let key = PositionKey { sock: scratch.job.ends.sock, socket: scratch.job.ends.socket };
    // SAFETY: the value is copied at once; one thread at a time writes to a connection.
    match unsafe { DIRECTIONS.get(key) } {
        Some(stance) => scratch.stance = *stance,
        None => scratch.stance = Stance::default(),
    }
    scratch.at = 0;
    let mut outcome = GO_ON;
    for _ in 0..MAX_LEGS {
        outcome = request_leg();
        if outcome != GO_ON {
            break;
        }
    }
    let of_other = scratch.job.why == why::READ;
    if outcome == GO_ON {
        scratch.stance.walker.miss();
        if !of_other {
            count::reason(Reason::FramesLeft);
        }
    }
    if scratch.job.why == why::BEGINS || scratch.job.why == why::FAILED {
        return END;
    }
    if !scratch.stance.walker.in_step() {
        count::reason(if of_other { Reason::OtherOutOfStep } else { Reason::OutOfStep });
        if scratch.job.why == why::ANSWERED {
            tell(scratch, 0, how::IN_DOUBT, None);
        }
    }
    // By reference: a copy does not fit on the stack.
    let stance: &Stance = &scratch.stance;
    if DIRECTIONS.insert(key, stance, 0).is_err() {
        count::reason(Reason::SendingFull);
    }
    END
}

/// Some steps of [`request_walk`]. A global function of BPF, as [`request_step`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn request_leg() -> u64 {
    for _ in 0..MAX_STEPS {
        let mut outcome = request_step();
        if outcome == FOUND {
            outcome = request_event();
        }
        if outcome != GO_ON {
            return outcome;
        }
    }
    GO_ON
}

/// A step of [`request_walk`]: at most one frame of the bytes in this CPU's scratch. A global function of BPF (Linux 5.6),
/// which the verifier looks at by itself, once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn request_step() -> u64 {
    let Some(scratch) = scratch() else { return END };
    let push = User { buffer: scratch.job.buffer, len: scratch.job.len, all: scratch.job.all };
    match scratch.stance.walker.step(&push, &mut scratch.at) {
        Step::Event(Event { stream, kind, flags, marks, at, len, value }) => {
            scratch.event = Found { stream, at, len, value, kind, flags, marks, reserved: [0; 5] };
            FOUND
        }
        Step::More => GO_ON,
        Step::Done => END,
    }
}

/// What the frame that a step has found means. A global function of BPF, as [`request_step`]; not called by it, because the
/// stacks of one chain of calls have 512 bytes together.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn request_event() -> u64 {
    let Some(scratch) = scratch() else { return END };
    let event = scratch.event;
    let (begins, is_server) = (scratch.job.why == why::BEGINS, scratch.job.why == why::ANSWERED);
    let opens = begins || scratch.job.why == why::READ;
    let ends_stream = event.flags & END_STREAM != 0 && event.marks & LAST != 0;
    match event.kind {
        JOINED => {
            scratch.stance.joined_ns = scratch.job.start_ns;
            scratch.stance.blocks = 0;
            scratch.stance.flags = if event.marks & START != 0 { FROM_START } else { 0 };
        }
        HEADERS | CONTINUATION if !is_server => {
            if opens {
                block(scratch);
                if event.kind == HEADERS && event.marks & FIRST != 0 && event.stream & 1 != 0 {
                    open(scratch);
                }
            } else if scratch.job.why == why::FAILED && event.kind == HEADERS {
                let _ = REQUESTS.remove(key(&scratch.job.ends, event.stream, false));
            }
            scratch.stance.blocks += u64::from(event.len);
        }
        HEADERS if ends_stream => close(scratch, how::ANSWERED),
        _ if scratch.job.why == why::FAILED => {}
        DATA if !begins => {
            transferred(scratch);
            if is_server && ends_stream {
                close(scratch, how::CUT);
            }
        }
        RST_STREAM if is_server => close(scratch, how::RESET_BY_SERVER),
        RST_STREAM if !begins => close(scratch, how::RESET_BY_CLIENT),
        GOAWAY if is_server => tell(scratch, event.stream, how::GOING_AWAY, None),
        _ => {}
    }
    GO_ON
}

/// Hands a fragment of a header block over.
#[inline(always)]
fn block(scratch: &Scratch) {
    let (job, event, stance) = (&scratch.job, &scratch.event, &scratch.stance);
    let mut flags = 0;
    if event.kind == HEADERS && event.marks & FIRST != 0 {
        flags |= BLOCK_FIRST;
    }
    if event.marks & LAST != 0 && event.flags & END_HEADERS != 0 {
        flags |= BLOCK_LAST;
    }
    if stance.flags & FROM_START != 0 {
        flags |= BLOCK_FROM_START;
    }
    if job.why == why::READ {
        flags |= BLOCK_OTHER;
    }
    let is_whole = u64::from(event.at) + u64::from(event.len) <= u64::from(job.len);
    if event.len as usize >= BLOCK || !is_whole || event.marks & ORPHAN != 0 {
        flags |= BLOCK_CUT;
    }
    let written = emit::fill::<BlockRec>(|record| {
        let record = record.as_mut_ptr();
        let len = masked(u64::from(event.len), BLOCK as u64 - 1);
        let from = job.buffer.wrapping_add(u64::from(event.at)) as *const c_void;
        // SAFETY: room for one record, of which each field that is read is written; the helper checks the address and
        // fails cleanly.
        unsafe {
            let to = (&raw mut (*record).bytes).cast();
            if bpf_probe_read_user(to, len, from) != 0 {
                flags |= BLOCK_CUT;
            }
            (*record).header = emit::header::<BlockRec>(RecKind::Block, job.start_ns, job.tgid, job.tid);
            (*record).socket = job.ends.socket;
            (*record).joined_ns = stance.joined_ns;
            (*record).offset = stance.blocks;
            (*record).stream = event.stream;
            (*record).len = event.len;
            (*record).flags = flags;
            (*record).reserved = 0;
        }
    });
    if !written {
        count::reason(Reason::RingFull);
    }
}

/// A request that had not been taken when it was written before keeps its start.
#[inline(always)]
fn open(scratch: &mut Scratch) {
    let (job, request) = (&scratch.job, &mut scratch.request);
    *request = OpenRequest {
        start_ns: job.start_ns,
        bytes: 0,
        answer_bytes: 0,
        tgid: job.tgid,
        tid: job.tid,
        peer: messages::peer_of(&job.ends),
        role: job.role,
    };
    let key = &key(&job.ends, scratch.event.stream, false);
    let request: &OpenRequest = request;
    if job.why == why::READ {
        if OTHER_REQUESTS.insert(key, request, 0).is_err() {
            count::reason(Reason::OtherRequestsFull);
        }
        return;
    }
    if REQUESTS.insert(key, request, NEW).is_err() && REQUESTS.get_ptr(key).is_none() {
        count::reason(Reason::MessagesFull);
    }
}

#[inline(always)]
fn key(ends: &Ends, stream: u32, is_server: bool) -> MessageKey {
    let (asker, answerer, socket) = if is_server {
        (ends.peer, ends.sock, ends.peer_socket)
    } else {
        (ends.sock, ends.peer, ends.socket)
    };
    MessageKey { asker, answerer, socket, stream, reserved: 0 }
}

/// A fragment of DATA.
#[inline(always)]
fn transferred(scratch: &Scratch) {
    let is_server = scratch.job.why == why::ANSWERED;
    let key = key(&scratch.job.ends, scratch.event.stream, is_server);
    let Some(request) = REQUESTS.get_ptr_mut(key).or_else(|| OTHER_REQUESTS.get_ptr_mut(key)) else { return };
    let len = u64::from(scratch.event.len);
    // SAFETY: a map value stays valid until the program returns; each side writes its own field.
    unsafe {
        if is_server {
            (*request).answer_bytes += len;
        } else {
            (*request).bytes += len;
        }
    }
}

/// The stream of the event is over.
#[inline(always)]
fn close(scratch: &Scratch, how: u32) {
    let key = key(&scratch.job.ends, scratch.event.stream, scratch.job.why == why::ANSWERED);
    // SAFETY: read at once.
    if let Some(open) = unsafe { REQUESTS.get(key) } {
        tell(scratch, scratch.event.stream, how, Some(open));
        let _ = REQUESTS.remove(key);
        return;
    }
    // SAFETY: as above.
    if let Some(open) = unsafe { OTHER_REQUESTS.get(key) } {
        tell(scratch, scratch.event.stream, how | how::OTHER, Some(open));
        let _ = OTHER_REQUESTS.remove(key);
        return;
    }
    // A client resets streams that the server has ended too.
    if how != how::RESET_BY_CLIENT {
        count::reason(Reason::AnswerAlone);
    }
}

/// Says how the request of a stream ended, or what happened to a connection.
#[inline(always)]
fn tell(scratch: &Scratch, stream: u32, how: u32, open: Option<&OpenRequest>) {
    let job = &scratch.job;
    let is_server = job.why == why::ANSWERED;
    let written = emit::fill::<RequestRec>(|record| {
        let record = record.as_mut_ptr();
        // SAFETY: room for one record; each field of it is written.
        unsafe {
            (*record).header = emit::header::<RequestRec>(RecKind::Request, job.start_ns, job.tgid, job.tid);
            (*record).socket = if is_server { job.ends.peer_socket } else { job.ends.socket };
            (*record).start_ns = open.map_or(job.start_ns, |open| open.start_ns);
            (*record).bytes = open.map_or(0, |open| open.bytes);
            (*record).answer_bytes = open.map_or(0, |open| open.answer_bytes);
            (*record).asker = open.map_or(0, |open| open.tgid);
            (*record).answerer = if is_server { job.tgid } else { open.map_or(0, |open| open.peer) };
            (*record).stream = stream;
            (*record).how = how;
            (*record).name = [0; NAME];
        }
    });
    if !written {
        count::reason(Reason::RingFull);
    }
}
