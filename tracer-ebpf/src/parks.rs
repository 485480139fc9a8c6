//! Goroutines inside watched calls and their parks: the only place that touches [`PARKERS`].
//!
//! A goroutine is followed from the start of its outermost call to the end of that. A call remembers the sums at its
//! start, and what they have grown by at its end is its own. The fields of an entry are written by probes on its own
//! goroutine, and by the one on the scheduler right before it runs, so never by two at once.

use aya_ebpf::{EbpfContext, helpers::bpf_get_stack, programs::ProbeContext};
use plegtrace_common::{
    key::{CallKey, OpenCall, Parker, ParkerKey},
    kind::RecKind,
    reason::Reason,
    rec::{CALL_PARKS, PARK_FRAMES, ParkRec},
    site::SiteConf,
};

use crate::{count, emit, go::regs, inflight::Hit, maps::PARKERS, settings::setting, task};

/// `BPF_F_USER_STACK` (include/uapi/linux/bpf.h).
const USER_STACK: u64 = 1 << 8;

/// What a new entry begins with; too large for the stack of a program.
static EMPTY: Parker = Parker::EMPTY;

/// Parks added up. No `Option` around it: moving one that is `None` reads bytes that were never written, which the
/// verifier of Linux 5.10 refuses.
#[derive(Clone, Copy)]
pub(crate) struct Sums {
    /// Not 0: everything was measured.
    pub(crate) measured: u64,
    pub(crate) parked_ns: u64,
    pub(crate) short_ns: u64,
    pub(crate) parks: u32,
}

impl Sums {
    /// Nothing was measured.
    pub(crate) const NONE: Self = Self { measured: 0, parked_ns: 0, short_ns: 0, parks: 0 };
}

#[inline(always)]
fn key_of(call: &CallKey) -> ParkerKey {
    ParkerKey { goid: call.goid, tgid: call.tgid, reserved: 0 }
}

/// A call begins: follows its goroutine if nobody does yet, and says what is measured so far.
#[inline(always)]
pub(crate) fn enter(call: &CallKey, site: &SiteConf, hit: &Hit) -> Sums {
    if site.parks == 0 {
        return Sums::NONE;
    }
    let key = key_of(call);
    // By reference: a copy does not fit on the stack.
    let empty = &EMPTY;
    let known = PARKERS.get_ptr_mut(key);
    let parker = match known {
        Some(parker) => parker,
        None => {
            if PARKERS.insert(key, empty, 0).is_err() {
                count::reason(Reason::ParkersFull);
                return Sums::NONE;
            }
            match PARKERS.get_ptr_mut(key) {
                Some(parker) => parker,
                None => return Sums::NONE,
            }
        }
    };
    // SAFETY: a map value stays valid until the program returns; nobody else writes this entry now.
    unsafe {
        // Nothing of an outermost call is left once its goroutine begins something as far out: it ended unseen.
        if known.is_none() || hit.goroutine.depth <= (*parker).root_depth {
            (*parker).root_start_ns = hit.now_ns;
            (*parker).root_class = call.class;
            (*parker).root_depth = hit.goroutine.depth;
            (*parker).start_code = task::start_code().unwrap_or(0);
        }
        // It runs, so it is not parked, whatever was seen of it.
        (*parker).since_ns = 0;
        Sums {
            measured: 1,
            parked_ns: (*parker).parked_ns,
            short_ns: (*parker).short_ns,
            parks: (*parker).parks,
        }
    }
}

/// How long the goroutine of an open call has been parked since its start.
#[inline(always)]
pub(crate) fn since(key: &CallKey, call: &OpenCall) -> Sums {
    if call.flags & CALL_PARKS == 0 {
        return Sums::NONE;
    }
    let Some(parker) = PARKERS.get_ptr_mut(key_of(key)) else { return Sums::NONE };
    // SAFETY: as above.
    unsafe {
        // It runs; if it is parked all the same, its return was not seen. And the sums of an entry that is younger than
        // the call began without it: user space forgets entries when it takes the probes of a program off.
        if (*parker).since_ns != 0 || (*parker).root_start_ns > call.start_ns {
            return Sums::NONE;
        }
        Sums {
            measured: 1,
            parked_ns: (*parker).parked_ns.wrapping_sub(call.parked_ns),
            short_ns: (*parker).short_ns.wrapping_sub(call.short_ns),
            parks: (*parker).parks.wrapping_sub(call.parks),
        }
    }
}

/// A call is over: says what [`since`] says, and forgets the goroutine when it was its outermost one.
#[inline(always)]
pub(crate) fn leave(key: &CallKey, call: &OpenCall) -> Sums {
    let sums = since(key, call);
    let parker_key = key_of(key);
    let Some(parker) = PARKERS.get_ptr_mut(parker_key) else { return sums };
    // SAFETY: as above.
    let outermost = unsafe { (*parker).root_start_ns == call.start_ns && (*parker).root_class == key.class };
    if outermost {
        let _ = PARKERS.remove(parker_key);
    }
    sums
}

/// The goroutine `key` gives its thread away, if it is followed.
#[inline(always)]
pub(crate) fn park(ctx: &ProbeContext, key: &ParkerKey, site: &SiteConf) {
    let Some(parker) = PARKERS.get_ptr_mut(key) else { return };
    let sp = regs::sp(ctx);
    // SAFETY: as above; the helper writes into `frames` and nowhere else.
    unsafe {
        if (*parker).since_ns != 0 {
            count::reason(Reason::ParkRepeated);
        }
        (*parker).hook = site.hook;
        (*parker).reason = regs::value(ctx, site).unwrap_or(0) as u32 & 0xff;
        // The frame of this function is not made yet, so its caller is no frame.
        (*parker).caller = task::user_word(sp).unwrap_or(0);
        let frames = (&raw mut (*parker).frames).cast();
        let _ = bpf_get_stack(ctx.as_ptr(), frames, 8 * PARK_FRAMES as u32, USER_STACK);
        (*parker).since_ns = now();
    }
}

/// The goroutine `key` is about to run again, if it is followed and was parked.
#[inline(always)]
pub(crate) fn resume(key: &ParkerKey, tid: u32) {
    let Some(parker) = PARKERS.get_ptr_mut(key) else { return };
    let worth_ns = u64::from(setting!(park_min_ns));
    // SAFETY: as above.
    unsafe {
        let start_ns = (*parker).since_ns;
        if start_ns == 0 {
            // It was runnable, not parked: preempted, or back from a system call.
            return;
        }
        let now_ns = now();
        let ns = now_ns.wrapping_sub(start_ns);
        (*parker).since_ns = 0;
        (*parker).parked_ns += ns;
        (*parker).parks += 1;
        if ns < worth_ns {
            (*parker).short_ns += ns;
        } else {
            tell(key, parker, start_ns, now_ns, tid);
        }
    }
}

/// Emits the park that is over.
///
/// # Safety
///
/// `parker` is valid.
#[inline(always)]
unsafe fn tell(key: &ParkerKey, parker: *const Parker, start_ns: u64, now_ns: u64, tid: u32) {
    // SAFETY: `record` is room for a whole record, and every field of it is written.
    let told = emit::fill::<ParkRec>(|record| unsafe {
        let record = record.as_mut_ptr();
        (*record).header = emit::header::<ParkRec>(RecKind::Park, now_ns, key.tgid, tid);
        (*record).start_ns = start_ns;
        (*record).goid = key.goid;
        (*record).start_code = (*parker).start_code;
        (*record).hook = (*parker).hook;
        (*record).reason = (*parker).reason;
        (*record).caller = (*parker).caller;
        (*record).frames = (*parker).frames;
    });
    if !told {
        count::reason(Reason::RingFull);
    }
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no arguments.
    unsafe { aya_ebpf::helpers::bpf_ktime_get_ns() }
}
