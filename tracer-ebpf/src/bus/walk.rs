//! Walks through the bytes of a connection to the bus, unit by unit.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use plegtrace_common::{
    reason::Reason,
    wire::{
        bus::{BusTexts, MAX_UNITS, TEXT, TEXTS, is_job_removed},
        dbus::{Message, Next, Walk, kind},
        state::{Begun, PositionKey},
        ttrpc::Bytes,
    },
};

use super::{
    Scratch,
    calls::{close, key, member, started},
    jobs::{bus_body, bus_job},
    position, scratch, why,
};
use crate::{arguments::masked, maps::BUS_CALLS, scratch::Held};

/// What comes of a step.
pub(super) mod step {
    pub(in crate::bus) const GO_ON: u64 = 0;
    pub(in crate::bus) const END: u64 = 1;
    pub(in crate::bus) const OUT_OF_STEP: u64 = 2;
    pub(in crate::bus) const UNREADABLE: u64 = 3;
    pub(in crate::bus) const FULL: u64 = 4;
    /// A message that may be about a job of systemd.
    pub(in crate::bus) const JOB: u64 = 5;
}

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

/// Walks through the bytes of the job from where the direction stands; a write that begins (not
/// `ENDED`) brings no answers. Each step is a function that the verifier looks at
/// by itself, once: all paths through all steps would be too many for it.
#[inline(always)]
pub(super) fn walk_through<const ENDED: bool>(
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

/// The bus has said its first line: the connection is there.
#[inline(always)]
fn connected(scratch: &mut Scratch) {
    // SAFETY: only whether it is there is looked at.
    if unsafe { BUS_CALLS.get(key(&scratch.job.ends, 0)) }.is_some() {
        let line = Message { kind: kind::RETURN, flags: 0, serial: 0, reply: 0, size: 0, header_end: 0 };
        let _ = close(scratch, &line);
    }
}
