//! The only place that writes to the ring buffer; a record that finds no room is counted.

use core::mem::MaybeUninit;

use plegtrace_common::{ABI_VERSION, header::RecHeader, kind::RecKind, reason::Reason};

use crate::{count, maps::EVENTS};

/// `BPF_RB_NO_WAKEUP` (include/uapi/linux/bpf.h): user space drains on a timer.
const NO_WAKEUP: u64 = 1;

/// Header of a record of type `T`.
#[inline(always)]
pub(crate) fn header<T>(kind: RecKind, ts_ns: u64, tgid: u32, tid: u32) -> RecHeader {
    RecHeader { ts_ns, len: size_of::<T>() as u32, kind: kind as u16, abi: ABI_VERSION, tgid, tid }
}

/// Lets `write` fill a record in place, for those that are larger than a stack; `false` when there was no room, which
/// is the caller's to count.
#[inline(always)]
pub(crate) fn fill<T: 'static>(write: impl FnOnce(&mut MaybeUninit<T>)) -> bool {
    match EVENTS.reserve::<T>(0) {
        Some(mut entry) => {
            write(&mut entry);
            entry.submit(NO_WAKEUP);
            true
        }
        None => false,
    }
}

/// Hands a record to user space.
#[inline(always)]
pub(crate) fn emit<T: 'static>(record: T) {
    match EVENTS.reserve::<T>(0) {
        Some(mut entry) => {
            entry.write(record);
            entry.submit(NO_WAKEUP);
        }
        None => count::reason(Reason::RingFull),
    }
}
