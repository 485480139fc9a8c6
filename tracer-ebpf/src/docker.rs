//! Requests to Docker's API without an answer: the only place that begins and ends them.
//!
//! Of each write only the first bytes are looked at: the request line of a client, the status line of dockerd. Clients are
//! the kubelet, in which dockershim is, and cri-dockerd, where the dockerd that answers is watched: cAdvisor in a kubelet asks
//! any Docker that runs beside another runtime, and whoever does not see the answers takes each request for an open one.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use plegtrace_common::{
    key::Watched,
    kind::RecKind,
    reason::Reason,
    rec::DockerRec,
    role::Role,
    wire::{
        docker::{
            DOCKER_UNSENT, HEAD, OpenDockerRequest, SWITCHING_PROTOCOLS, begins_request, is_final, status,
        },
        state::{Ends, MessageKey, PositionKey, SENDING_FROM_DOCKER, SENDING_TO_DOCKER, Sending},
    },
};

use crate::{
    arguments::masked,
    count, emit, entry,
    maps::{DOCKER_OPENS, DOCKER_REQUESTS, HIJACKED},
    messages::{self, AGAIN, Writer},
    scratch::Held,
    socket, task,
};

/// Where a request is read; an entry of a map.
#[repr(C)]
pub(crate) struct Scratch {
    request: OpenDockerRequest,
    ends: Ends,
    buffer: u64,
    len: u32,
    reserved: u32,
}

/// `BPF_NOEXIST` (include/uapi/linux/bpf.h).
const NEW: u64 = 1;

/// What a process does on connections to dockerd.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DockerSide {
    Client,
    Server,
}

impl DockerSide {
    #[inline(always)]
    pub(crate) fn of(watched: &Watched) -> Option<Self> {
        if watched.asks_docker() {
            Some(Self::Client)
        } else if watched.role == Role::Dockerd as u32 {
            Some(Self::Server)
        } else {
            None
        }
    }

    /// Is it a connection to Docker's API?
    #[inline(always)]
    pub(crate) fn has(self, ends: &Ends) -> Result<bool, Reason> {
        socket::is_docker(if self == Self::Client { ends.peer } else { ends.sock })
    }
}

/// Where this CPU reads requests; always there.
#[inline(always)]
fn scratch() -> Option<Held<Scratch>> {
    // SAFETY: programs on system calls do not interrupt each other; global functions are called by who holds the entry.
    unsafe { Held::of(&DOCKER_OPENS) }
}

/// A write begins; what it is stands in `sending`.
#[inline(always)]
pub(crate) fn begin(sending: &mut Sending, writer: Writer, side: DockerSide) {
    if side == DockerSide::Server {
        sending.flags = SENDING_FROM_DOCKER;
        messages::remember(sending, writer);
        return;
    }
    sending.flags = SENDING_TO_DOCKER;
    let Some(mut held) = scratch() else { return };
    let scratch = held.lend();
    scratch.ends = sending.ends;
    scratch.buffer = sending.buffer;
    scratch.len = sending.len;
    scratch.request.start_ns = sending.start_ns;
    (scratch.request.tgid, scratch.request.tid) = (writer.tgid, writer.tid);
    if held.call(docker_open) != 0 {
        messages::remember(sending, writer);
    }
}

/// Opens the request that begins in this CPU's scratch; 0 when none does. A global function of BPF (Linux 5.6), which the verifier
/// looks at by itself, once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn docker_open() -> u64 {
    let Some(mut held) = scratch() else { return 0 };
    match open(held.lend()) {
        Ok(opened) => u64::from(opened),
        Err(reason) => {
            count::reason(reason);
            0
        }
    }
}

#[inline(always)]
fn open(scratch: &mut Scratch) -> Result<bool, Reason> {
    // Behind a shorter write there may be memory that cannot be read.
    if scratch.len < 8 {
        return Ok(false);
    }
    let Some(first) = task::user_word(scratch.buffer) else { return Err(Reason::MessageUnreadable) };
    if !begins_request(&first.to_ne_bytes()) {
        return Ok(false);
    }
    // SAFETY: only whether it is there is looked at.
    if unsafe { HIJACKED.get(client(&scratch.ends)) }.is_some() {
        return Ok(false);
    }
    let request = &mut scratch.request;
    let len = if scratch.len < HEAD as u32 { u64::from(scratch.len) } else { HEAD as u64 - 1 };
    let len = masked(len, HEAD as u64 - 1);
    request.head = [0; HEAD];
    let from = scratch.buffer as *const c_void;
    // SAFETY: there is room for one byte more; the helper checks the address and fails cleanly.
    if unsafe { bpf_probe_read_user(request.head.as_mut_ptr().cast(), len, from) } != 0 {
        return Err(Reason::MessageUnreadable);
    }
    request.flags = 0;
    request.peer = messages::peer_of(&scratch.ends);
    let (key, request): (_, &OpenDockerRequest) = (key(&scratch.ends, false), request);
    if DOCKER_REQUESTS.insert(key, request, NEW).is_ok() {
        return Ok(true);
    }
    let Some(known) = DOCKER_REQUESTS.get_ptr_mut(key) else { return Err(Reason::MessagesFull) };
    // SAFETY: a map value stays valid until the program returns; one thread at a time writes to a connection.
    unsafe {
        if (*known).flags & DOCKER_UNSENT != 0 {
            // It keeps its start.
            (*known).flags = 0;
            return Ok(true);
        }
    }
    count::reason(Reason::DockerAnswerUnseen);
    DOCKER_REQUESTS.insert(key, request, 0).map_err(|_| Reason::MessagesFull)?;
    Ok(true)
}

/// A client's write that has opened a request has ended with this result.
#[inline(always)]
pub(crate) fn sent(sending: &Sending, result: i64) {
    if result <= 0 {
        unsent(&key(&sending.ends, false), result);
    }
}

/// dockerd has written what stands in the scratch of [`messages`]: is it an answer? A global function of BPF, as [`docker_open`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn docker_answer() -> u64 {
    if let Some(mut held) = messages::scratch() {
        let scratch = held.lend();
        if let Err(reason) = answer(&scratch.sending, scratch.writer()) {
            count::reason(reason);
        }
    }
    0
}

#[inline(always)]
fn answer(sending: &Sending, writer: Writer) -> Result<(), Reason> {
    let key = key(&sending.ends, true);
    // SAFETY: the value is copied at once; nobody else answers.
    let open = unsafe { DOCKER_REQUESTS.get(key) };
    let status = status_of(sending)?;
    let Some(open) = open else {
        // Of a client that is not traced, or whose request was not written at once.
        return if status.is_some() { Err(Reason::AnswerAlone) } else { Ok(()) };
    };
    let Some(status) = status else {
        // Whatever this is, the answer to the request was not seen, or will not be known.
        entry::change(Reason::UpdateRefused, || DOCKER_REQUESTS.remove(key));
        return Err(Reason::OutOfStep);
    };
    if !is_final(status) {
        return Ok(());
    }
    let written = emit::fill::<DockerRec>(|record| {
        let record = record.as_mut_ptr();
        // SAFETY: room for one record; each field of it is written.
        unsafe {
            (*record).header =
                emit::header::<DockerRec>(RecKind::Docker, sending.start_ns, writer.tgid, writer.tid);
            (*record).start_ns = open.start_ns;
            (*record).socket = key.socket;
            (*record).asker = open.tgid;
            (*record).status = u32::from(status);
            (*record).head = open.head;
        }
    });
    if !written {
        count::reason(Reason::RingFull);
    }
    entry::change(Reason::UpdateRefused, || DOCKER_REQUESTS.remove(key));
    if status == SWITCHING_PROTOCOLS {
        let _ = HIJACKED.insert(PositionKey { sock: key.asker, socket: key.socket }, 1, 0);
    }
    Ok(())
}

/// The status, if this begins an answer: never in fewer bytes than are looked at, behind which there may be memory that cannot be
/// read.
#[inline(always)]
fn status_of(sending: &Sending) -> Result<Option<u16>, Reason> {
    if sending.len < 16 {
        return Ok(None);
    }
    let (Some(first), Some(second)) =
        (task::user_word(sending.buffer), task::user_word(sending.buffer.wrapping_add(8)))
    else {
        return Err(Reason::MessageUnreadable);
    };
    Ok(status(first.to_ne_bytes(), second.to_ne_bytes()))
}

/// A request that was not taken: it is written again, or never.
#[inline(always)]
fn unsent(key: &MessageKey, result: i64) {
    count::reason(Reason::SendCut);
    if !AGAIN.contains(&result) {
        entry::change(Reason::UpdateRefused, || DOCKER_REQUESTS.remove(key));
    } else if let Some(open) = DOCKER_REQUESTS.get_ptr_mut(key) {
        // SAFETY: as in `open`.
        unsafe { (*open).flags = DOCKER_UNSENT };
    }
}

#[inline(always)]
fn client(ends: &Ends) -> PositionKey {
    PositionKey { sock: ends.sock, socket: ends.socket }
}

#[inline(always)]
fn key(ends: &Ends, is_server: bool) -> MessageKey {
    let (asker, answerer, socket) = if is_server {
        (ends.peer, ends.sock, ends.peer_socket)
    } else {
        (ends.sock, ends.peer, ends.socket)
    };
    MessageKey { asker, answerer, socket, stream: 0, reserved: 0 }
}
