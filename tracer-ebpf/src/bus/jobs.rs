//! Jobs of systemd: a call begins one, and a signal, much later, tells that it is done.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_probe_read_user};
use plegtrace_common::{
    reason::Reason,
    wire::{
        bus::{BUS_JOB, BusKey, JOB_BODY, OpenBusCall, job_in_answer, job_in_signal},
        dbus::{Message, kind},
    },
};

use super::{Job, Scratch, calls::emit, position_key, scratch};
use crate::{
    arguments::masked,
    count,
    entry::{self, Change},
    maps::{BUS_CALLS, JOB_BODIES, JOBS_DONE},
};

/// The header of a message about a job has been read: its body tells which one. Many readers fetch that with a read of its
/// own. A global function, as [`bus_step`](super::walk::bus_step).
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn bus_job() -> u64 {
    let Some(mut held) = scratch() else { return 0 };
    if let Err(reason) = job(held.lend()) {
        count::reason(reason);
    }
    0
}

/// The rest of a message is being read; is it the body of one about a job? A global function, as [`bus_step`](super::walk::bus_step).
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn bus_body() -> u64 {
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
    // Where the kernel refuses, the job may still run: it stays in flight, and the loss says so.
    if entry::change(Reason::UpdateRefused, || JOBS_DONE.remove(key)) != Change::Made {
        return kept.map_err(|_| Reason::MessagesFull);
    }
    // One that did not fit is in nobody else's sight.
    if kept.is_err() || entry::change(Reason::UpdateRefused, || BUS_CALLS.remove(key)) != Change::Absent {
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
    if entry::change(Reason::UpdateRefused, || BUS_CALLS.remove(key)) != Change::Absent {
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
