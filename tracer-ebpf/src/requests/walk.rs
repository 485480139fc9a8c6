//! From the bytes of a write to frames. Global functions of BPF (Linux 5.6), which the verifier looks at by themselves, once each.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use plegtrace_common::{
    reason::Reason,
    rec::how,
    wire::{
        Bytes,
        http2::{Event, Step},
        request::{MAX_LEGS, MAX_STEPS, Stance},
        state::PositionKey,
    },
};

use super::{
    END, FOUND, Found, GO_ON,
    events::{request_event, tell},
    scratch, why,
};
use crate::{count, maps::DIRECTIONS};

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

/// Walks through the write in this CPU's scratch from where its direction stands. A global function of BPF, as
/// [`request_step`]. In legs, because verifiers follow no more than 8,192 branches (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`) of one
/// function.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn request_walk() -> u64 {
    let Some(mut held) = scratch() else { return END };
    let scratch = held.lend();
    let key = PositionKey { sock: scratch.job.ends.sock, socket: scratch.job.ends.socket };
    // SAFETY: the value is copied at once; one thread at a time writes to a connection.
    match unsafe { DIRECTIONS.get(key) } {
        Some(stance) => scratch.stance = *stance,
        None => scratch.stance = Stance::default(),
    }
    scratch.at = 0;
    let mut outcome = GO_ON;
    for _ in 0..MAX_LEGS {
        outcome = held.call(request_leg);
        if outcome != GO_ON {
            break;
        }
    }
    let scratch = held.lend();
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
    let Some(mut held) = scratch() else { return END };
    let scratch = held.lend();
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
