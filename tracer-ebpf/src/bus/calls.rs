//! Opens calls, settles whether they were sent, and closes them.

use core::hint::black_box;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use plegtrace_common::{
    kind::RecKind,
    reason::Reason,
    rec::BusRec,
    wire::{
        bus::{BUS_JOB, BUS_UNSENT, BusKey, OpenBusCall, TEXT, TEXTS, begins_job},
        dbus::{Message, kind},
        state::{Begun, Ends, MAX_FRAMES},
    },
};

use super::{Job, Scratch, scratch, walk::step};
use crate::{count, emit, entry, maps::BUS_CALLS};

/// `BPF_NOEXIST` (include/uapi/linux/bpf.h).
const NEW: u64 = 1;
/// `BPF_EXIST` (include/uapi/linux/bpf.h).
const KNOWN: u64 = 2;

/// A call begins in this write.
#[inline(always)]
pub(super) fn started(scratch: &mut Scratch, begun: Begun) -> u64 {
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
pub(super) fn key(ends: &Ends, serial: u32) -> BusKey {
    BusKey { sock: ends.sock, socket: ends.socket, serial, reserved: 0 }
}

/// The first of the calls in the scratch has been taken by its socket, or it is to be written again, or it never will be. Another thread may
/// have read its answer already, and then its entry is another call's: so it is written by its key, and not in place. A global function, as
/// [`bus_step`](super::walk::bus_step).
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn bus_settle() -> u64 {
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
        entry::change(Reason::UpdateRefused, || BUS_CALLS.insert(key, call, KNOWN));
    } else if given_up != 0 {
        entry::change(Reason::UpdateRefused, || BUS_CALLS.remove(key));
    }
    0
}

/// An answer: its call is over. May it be a job of systemd? Then the call is in the scratch.
#[inline(always)]
pub(super) fn close(scratch: &mut Scratch, answer: &Message) -> bool {
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
    entry::change(Reason::UpdateRefused, || BUS_CALLS.remove(key));
    may_be_job
}

/// Writes the record of a call, by socket and serial, that has been answered with this message; of its texts only the name of an
/// error matters.
#[inline(always)]
pub(super) fn emit(
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

/// The first bytes of the name of a method or signal.
#[inline(always)]
pub(super) fn member<const N: usize>(call: &OpenBusCall) -> [u8; N] {
    // SAFETY: of the second text, which is longer.
    unsafe { call.texts.as_ptr().add(TEXT).cast::<[u8; N]>().read() }
}
