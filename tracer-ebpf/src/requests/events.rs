//! What frames mean: they open requests, count bytes, and close requests.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use plegtrace_common::{
    kind::RecKind,
    reason::Reason,
    rec::{
        BLOCK_CUT, BLOCK_FIRST, BLOCK_FROM_START, BLOCK_LAST, BLOCK_OTHER, BLOCK_TRAILERS, BlockRec,
        RequestRec, WORDLESS, how,
    },
    wire::{
        http2::{
            CONTINUATION, DATA, END_HEADERS, END_STREAM, FIRST, GOAWAY, HEADERS, JOINED, LAST, ORPHAN,
            RST_STREAM, START,
        },
        request::{BLOCK, FROM_START, NAME, OpenRequest},
        state::{Ends, MessageKey},
    },
};

use super::{END, GO_ON, NEW, Scratch, scratch, why};
use crate::{
    arguments::masked,
    count, emit, entry,
    maps::{OTHER_REQUESTS, REQUESTS},
    messages,
};

/// What the frame that a step has found means. A global function of BPF, as [`request_step`]; not called by it, because the
/// stacks of one chain of calls have 512 bytes together.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn request_event() -> u64 {
    let Some(mut held) = scratch() else { return END };
    let scratch = held.lend();
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
                let key = key(&scratch.job.ends, event.stream, false);
                entry::change(Reason::UpdateRefused, || REQUESTS.remove(key));
            }
            scratch.stance.blocks += u64::from(event.len);
        }
        HEADERS if ends_stream => {
            if is_server && event.len >= WORDLESS && event.marks & FIRST != 0 {
                block(scratch);
            }
            close(scratch, how::ANSWERED);
        }
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

/// Hands a fragment of a header block over; of trailers as much as there is room for.
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
    let is_server = job.why == why::ANSWERED;
    let mut kept = event.len;
    if is_server {
        flags |= BLOCK_TRAILERS;
        if kept >= BLOCK as u32 {
            kept = BLOCK as u32 - 1;
        }
    }
    let is_whole = u64::from(event.at) + u64::from(event.len) <= u64::from(job.len);
    if event.len as usize >= BLOCK || !is_whole || event.marks & ORPHAN != 0 {
        flags |= BLOCK_CUT;
    }
    let written = emit::fill::<BlockRec>(|record| {
        let record = record.as_mut_ptr();
        let len = masked(u64::from(kept), BLOCK as u64 - 1);
        let from = job.buffer.wrapping_add(u64::from(event.at)) as *const c_void;
        // SAFETY: room for one record, of which each field that is read is written; the helper checks the address and
        // fails cleanly.
        unsafe {
            let to = (&raw mut (*record).bytes).cast();
            if bpf_probe_read_user(to, len, from) != 0 {
                flags |= BLOCK_CUT;
            }
            (*record).header = emit::header::<BlockRec>(RecKind::Block, job.start_ns, job.tgid, job.tid);
            (*record).socket = if is_server { job.ends.peer_socket } else { job.ends.socket };
            (*record).joined_ns = stance.joined_ns;
            (*record).offset = stance.blocks;
            (*record).stream = event.stream;
            (*record).len = kept;
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
        entry::change(Reason::UpdateRefused, || REQUESTS.remove(key));
        return;
    }
    // SAFETY: as above.
    if let Some(open) = unsafe { OTHER_REQUESTS.get(key) } {
        tell(scratch, scratch.event.stream, how | how::OTHER, Some(open));
        entry::change(Reason::UpdateRefused, || OTHER_REQUESTS.remove(key));
        return;
    }
    // A client resets streams that the server has ended too.
    if how != how::RESET_BY_CLIENT {
        count::reason(Reason::AnswerAlone);
    }
}

/// Says how the request of a stream ended, or what happened to a connection.
#[inline(always)]
pub(super) fn tell(scratch: &Scratch, stream: u32, how: u32, open: Option<&OpenRequest>) {
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
