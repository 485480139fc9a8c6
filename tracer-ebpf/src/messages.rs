//! Requests without an answer: the only place that begins and ends them.
//!
//! A write is walked through twice. When it begins, its requests are opened: the answer may be there before the write
//! has returned. When it ends, it is known how much of it was taken: answers close their requests, and requests that were
//! not taken are noted as unsent. They keep their start for when they are written again.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use plegtrace_common::{
    kind::RecKind,
    reason::Reason,
    rec::MessageRec,
    wire::{
        state::{
            Begun, Ends, Holder, MAX_FRAMES, MESSAGE_UNSENT, MessageKey, OpenMessage, PositionKey,
            SENDING_BUS, SENDING_CLIENT, SENDING_FROM_DOCKER, SENDING_LOST, SENDING_SERVER,
            SENDING_TO_DOCKER, Sending,
        },
        ttrpc::{Bytes, FrameHeader, HEAD, Head, Names, Next, Position, Walk, kind},
    },
};

use crate::{
    arguments::masked,
    bus, count, docker, emit, entry,
    maps::{ENDS, MESSAGES, POSITIONS, SENDING, WALKS},
    requests,
    scratch::Held,
    socket::{Peer, TtrpcSide},
    watch,
};

/// Where a write is walked through; an entry of a map.
#[repr(C)]
pub(crate) struct Scratch {
    walk: Walk,
    pub(crate) sending: Sending,
    message: OpenMessage,
    /// What the system call has given, once it has ended.
    result: i64,
    /// Who writes: process, thread, and whether it is a shim.
    writer: [u32; 3],
    reserved: u32,
}

impl Scratch {
    #[inline(always)]
    pub(crate) fn writer(&self) -> Writer {
        let [tgid, tid, is_shim] = self.writer;
        Writer { tgid, tid, is_shim: is_shim != 0 }
    }
}

/// Who writes.
#[derive(Clone, Copy)]
pub(crate) struct Writer {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    /// It is a shim.
    pub(crate) is_shim: bool,
}

/// `BPF_NOEXIST` (include/uapi/linux/bpf.h).
const NEW: u64 = 1;
/// Errors after which a write is made again: EINTR, EAGAIN, and ERESTARTSYS, which user space never sees.
pub(crate) const AGAIN: [i64; 3] = [-4, -11, -512];

/// The bytes of a write, in the memory of the current process.
struct User {
    buffer: u64,
}

impl Bytes for User {
    #[inline(always)]
    fn fetch(&mut self, at: u32, header: &mut [u8; 16], to: u32, count: u32) -> bool {
        let (to, count) = (masked(u64::from(to), 15), masked(u64::from(count), 15));
        let from = self.buffer.wrapping_add(u64::from(at));
        // SAFETY: the header is part of a larger entry of a map, and both together are at most 10; the helper checks the
        // address and fails cleanly.
        unsafe {
            let to = header.as_mut_ptr().add(to as usize);
            bpf_probe_read_user(to.cast(), count, from as *const c_void) == 0
        }
    }
}

/// Where this CPU walks; always there.
#[inline(always)]
pub(crate) fn scratch() -> Option<Held<Scratch>> {
    // SAFETY: programs on system calls do not interrupt each other; global functions are called by who holds the entry.
    unsafe { Held::of(&WALKS) }
}

/// Notes who holds this end.
#[inline(always)]
pub(crate) fn learn(ends: &Ends, tgid: u32) {
    if ends.peer_socket == 0 {
        return;
    }
    let holder = Holder { peer_socket: ends.peer_socket, tgid, reserved: 0 };
    // SAFETY: the value is compared at once.
    if unsafe { ENDS.get(ends.sock) } != Some(&holder) {
        // Full means that the oldest goes.
        let _ = ENDS.insert(ends.sock, holder, 0);
    }
}

/// Who holds the other end; 0 when it has not been seen yet.
#[inline(always)]
pub(crate) fn peer_of(ends: &Ends) -> u32 {
    // SAFETY: the value is copied at once.
    match unsafe { ENDS.get(ends.peer) } {
        Some(holder) if holder.peer_socket == ends.socket => holder.tgid,
        _ => 0,
    }
}

/// Who is to answer what this writer asks here; 0 when that is not known.
#[inline(always)]
fn answerer(ends: &Ends, writer: Writer) -> u32 {
    let peer = peer_of(ends);
    if peer != 0 || !writer.is_shim {
        return peer;
    }
    // Nobody has read from it, and a runtime that hangs never will: it is the one that listens. Where shims listen, a process does
    // so that ends at once.
    let is_runtime =
        |pid| watch::get(pid).is_some_and(|watched| TtrpcSide::of(watched.role) == Some(TtrpcSide::Runtime));
    match Peer::of(ends.sock) {
        Ok(Some(listener)) if listener.is_alive() && is_runtime(listener.tgid) => listener.tgid,
        Ok(_) => 0,
        Err(reason) => {
            count::reason(reason);
            0
        }
    }
}

#[inline(always)]
fn position_key(ends: &Ends) -> PositionKey {
    PositionKey { sock: ends.sock, socket: ends.socket }
}

/// A write begins; what it is stands in `sending` of the scratch.
#[inline(always)]
pub(crate) fn begin(held: &mut Held<Scratch>, writer: Writer) {
    held.lend().writer = [writer.tgid, writer.tid, u32::from(writer.is_shim)];
    held.call(message_begin);
}

/// Opens the requests of the write in this CPU's scratch. A global function of BPF (Linux 5.6), which the verifier looks at
/// by itself, once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn message_begin() -> u64 {
    if let Some(mut held) = scratch() {
        let scratch = held.lend();
        let writer = scratch.writer();
        if let Err(reason) = try_begin(scratch, writer) {
            count::reason(reason);
        }
    }
    0
}

#[inline(always)]
fn try_begin(scratch: &mut Scratch, writer: Writer) -> Result<(), Reason> {
    let key = position_key(&scratch.sending.ends);
    // SAFETY: the value is copied at once; both sides write one message at a time.
    let position = unsafe { POSITIONS.get(key) }.copied().unwrap_or(Position::BOUNDARY);
    scratch.sending.position = position;
    scratch.sending.flags = 0;
    scratch.sending.begun = [Begun { stream: 0, end: 0 }; MAX_FRAMES];
    scratch.walk = Walk::new(position, scratch.sending.len);
    let mut user = User { buffer: scratch.sending.buffer };
    let mut outcome = Err(Reason::FramesLeft);
    scratch.message.peer = answerer(&scratch.sending.ends, writer);
    for frame in 0..MAX_FRAMES {
        match scratch.walk.next(&mut user) {
            Next::Frame { header, body } => {
                if header.kind == kind::REQUEST {
                    match open(scratch, header, body, writer) {
                        Ok(()) => scratch.sending.begun[frame] = Begun { stream: header.stream, end: body },
                        Err(Reason::OutOfStep) => {
                            outcome = Err(Reason::OutOfStep);
                            break;
                        }
                        Err(reason) => count::reason(reason),
                    }
                }
            }
            Next::End => {
                outcome = Ok(());
                break;
            }
            Next::OutOfStep => {
                outcome = Err(Reason::OutOfStep);
                break;
            }
            Next::Unreadable => {
                outcome = Err(Reason::MessageUnreadable);
                break;
            }
        }
    }
    if outcome.is_err() {
        scratch.sending.flags = SENDING_LOST;
    }
    remember(&scratch.sending, writer);
    outcome
}

/// Keeps a write until it ends. By reference: a copy does not fit on the stack.
#[inline(always)]
pub(crate) fn remember(sending: &Sending, writer: Writer) {
    // SAFETY: the value is compared at once; only this thread writes this key.
    if unsafe { SENDING.get(writer.tid) }.is_some_and(|last| last.tgid == writer.tgid) {
        count::reason(Reason::ExitUnseen);
    }
    if SENDING.insert(writer.tid, sending, 0).is_err() {
        count::reason(Reason::SendingFull);
    }
}

#[inline(always)]
fn open(scratch: &mut Scratch, header: FrameHeader, body: u32, writer: Writer) -> Result<(), Reason> {
    let sending = &scratch.sending;
    let message = &mut scratch.message;
    if writer.is_shim && message.peer == 0 {
        // Shims of a runtime that is not traced ask it too, and its answers are not seen.
        return Err(Reason::PeerUnknown);
    }
    let here = sending.len.wrapping_sub(body);
    let have = if here < header.len { here } else { header.len };
    let from = sending.buffer.wrapping_add(u64::from(body)) as *const c_void;
    let have = masked(u64::from(have), HEAD as u64 - 1);
    // SAFETY: the head has one byte more; the helper checks the address and fails cleanly.
    if unsafe { bpf_probe_read_user(message.head.as_mut_ptr().cast(), have, from) } != 0 {
        return Err(Reason::MessageUnreadable);
    }
    let names = match Names::find(&message.head, have) {
        Head::Named(names) => names,
        Head::Unnamed => {
            count::reason(Reason::MessageUnnamed);
            Names { service: 0, method: 0 }
        }
        Head::Other => return Err(Reason::OutOfStep),
    };
    message.head = [0; HEAD];
    if names.method != 0 {
        let end = masked(u64::from(names.end()), HEAD as u64 - 1);
        // SAFETY: as above. Once more, so that no payload is kept.
        if unsafe { bpf_probe_read_user(message.head.as_mut_ptr().cast(), end, from) } != 0 {
            return Err(Reason::MessageUnreadable);
        }
    }
    message.start_ns = sending.start_ns;
    message.peer_socket = sending.ends.peer_socket;
    (message.tgid, message.tid) = (writer.tgid, writer.tid);
    message.bytes = header.len;
    (message.flags, message.reserved) = (0, 0);
    (message.service, message.method) = (names.service, names.method);
    insert(&request_key(&sending.ends, header.stream), message)
}

/// A request that had not been taken when it was written before keeps its start.
#[inline(always)]
fn insert(key: &MessageKey, message: &OpenMessage) -> Result<(), Reason> {
    if MESSAGES.insert(key, message, NEW).is_ok() {
        return Ok(());
    }
    let Some(known) = MESSAGES.get_ptr_mut(key) else { return Err(Reason::MessagesFull) };
    // SAFETY: a map value stays valid until the program returns; one thread at a time writes to a connection.
    unsafe {
        if (*known).flags & MESSAGE_UNSENT != 0 {
            (*known).flags = 0;
            return Ok(());
        }
    }
    count::reason(Reason::MessageRepeated);
    MESSAGES.insert(key, message, 0).map_err(|_| Reason::MessagesFull)
}

#[inline(always)]
fn request_key(ends: &Ends, stream: u32) -> MessageKey {
    MessageKey { asker: ends.sock, answerer: ends.peer, socket: ends.socket, stream, reserved: 0 }
}

/// The write of the current thread has ended, with this result; `fd` is that of the call that ends. Is there something
/// that a bus has to walk through?
#[inline(always)]
pub(crate) fn end(held: &mut Held<Scratch>, writer: Writer, fd: u32, result: i64) -> Result<bool, Reason> {
    let scratch = held.lend();
    // SAFETY: the value is copied at once; only this thread writes this key.
    let Some(sending) = (unsafe { SENDING.get(writer.tid) }) else { return Ok(false) };
    scratch.sending = *sending;
    let _ = SENDING.remove(writer.tid);
    let sending = &scratch.sending;
    if sending.tgid != writer.tgid {
        // Of a thread that was killed: its requests went with its process.
        return Ok(false);
    }
    if sending.fd != fd {
        return Err(Reason::ExitUnseen);
    }
    if sending.flags & SENDING_BUS != 0 {
        return Ok(bus::end(sending, result));
    }
    if sending.flags & SENDING_TO_DOCKER != 0 {
        docker::sent(sending, result);
        return Ok(false);
    }
    if sending.flags & (SENDING_CLIENT | SENDING_SERVER) != 0 {
        requests::end(sending, writer, result);
        return Ok(false);
    }
    let of_docker = sending.flags & SENDING_FROM_DOCKER != 0;
    scratch.result = result;
    scratch.writer = [writer.tgid, writer.tid, 0];
    if !of_docker {
        held.call(message_end);
    } else if result > 0 {
        held.call(docker::docker_answer);
    }
    Ok(false)
}

/// Corrects what the write in this CPU's scratch has begun, and closes what it answers. As [`message_begin`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn message_end() -> u64 {
    if let Some(mut held) = scratch()
        && let Err(reason) = try_end(held.lend())
    {
        count::reason(reason);
    }
    0
}

#[inline(always)]
fn try_end(scratch: &mut Scratch) -> Result<(), Reason> {
    let (writer, result, sending) = (scratch.writer(), scratch.result, &scratch.sending);
    let sent = if result <= 0 {
        0
    } else if result < i64::from(sending.len) {
        result as u32
    } else {
        sending.len
    };
    if sent < sending.len {
        unsent(sending, sent, result > 0 || AGAIN.contains(&result));
    }
    let before = sending.position;
    if sending.flags & SENDING_LOST != 0 {
        save(&sending.ends, before, Position::BOUNDARY);
        return Ok(());
    }
    if sent == 0 {
        return Ok(());
    }
    scratch.walk = Walk::new(before, sent);
    let mut user = User { buffer: sending.buffer };
    for _ in 0..MAX_FRAMES {
        match scratch.walk.next(&mut user) {
            Next::Frame { header, .. } if header.kind == kind::ANSWER => {
                close(&scratch.sending, header, writer);
            }
            Next::Frame { .. } => {}
            Next::End => break,
            Next::OutOfStep => return Err(Reason::OutOfStep),
            Next::Unreadable => return Err(Reason::MessageUnreadable),
        }
    }
    save(&scratch.sending.ends, before, scratch.walk.position);
    Ok(())
}

/// Notes the requests that were not taken; those that will not be written again are forgotten.
#[inline(always)]
fn unsent(sending: &Sending, sent: u32, again: bool) {
    count::reason(Reason::SendCut);
    for begun in &sending.begun {
        if begun.stream == 0 || begun.end <= sent {
            continue;
        }
        let key = request_key(&sending.ends, begun.stream);
        if again {
            if let Some(message) = MESSAGES.get_ptr_mut(key) {
                // SAFETY: as in `insert`.
                unsafe { (*message).flags = MESSAGE_UNSENT };
            }
        } else {
            entry::change(Reason::UpdateRefused, || MESSAGES.remove(key));
        }
    }
}

/// Only directions that are inside a frame have an entry.
#[inline(always)]
fn save(ends: &Ends, before: Position, now: Position) {
    let key = position_key(ends);
    if !now.is_boundary() {
        if POSITIONS.insert(key, now, 0).is_err() {
            count::reason(Reason::SendingFull);
        }
    } else if !before.is_boundary() {
        let _ = POSITIONS.remove(key);
    }
}

/// An answer: its request is over.
#[inline(always)]
fn close(sending: &Sending, header: FrameHeader, writer: Writer) {
    let ends = &sending.ends;
    let key = MessageKey {
        asker: ends.peer,
        answerer: ends.sock,
        socket: ends.peer_socket,
        stream: header.stream,
        reserved: 0,
    };
    // SAFETY: the value is copied at once; nobody else answers.
    let Some(open) = (unsafe { MESSAGES.get(key) }) else {
        count::reason(Reason::AnswerAlone);
        return;
    };
    emit::emit(MessageRec {
        header: emit::header::<MessageRec>(RecKind::Message, sending.start_ns, writer.tgid, writer.tid),
        start_ns: open.start_ns,
        socket: key.socket,
        stream: key.stream,
        asker: open.tgid,
        bytes: open.bytes,
        answer_bytes: header.len,
        service: open.service,
        method: open.method,
        head: open.head,
    });
    entry::change(Reason::UpdateRefused, || MESSAGES.remove(key));
}
