//! Connections to a bus that the kernel refuses: the queue of those that nobody has accepted is full, or nobody listens.
//!
//! A connection that is made is seen by its first bytes; of these, only the end of connect(2) tells.

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use plegtrace_common::{
    kind::RecKind,
    reason::Reason,
    rec::BusRec,
    wire::{
        bus::{TEXT, TEXTS},
        dbus::kind,
    },
};

use super::{SECOND, THIRD, user};
use crate::{
    bus, count, emit,
    socket::{self, Listener},
    task, watch,
};

/// connect(2) (arch/x86/entry/syscalls/syscall_64.tbl).
pub(super) const CONNECT: u64 = 42;
/// include/uapi/asm-generic/errno.h: it goes on, or may be asked again at once.
const EINTR: i64 = -4;
const EALREADY: i64 = -114;
const EINPROGRESS: i64 = -115;

/// connect(2) with these registers returns this.
#[inline(always)]
pub(super) fn connected(regs: u64, result: i64) -> Result<(), Reason> {
    if result >= 0 || matches!(result, EINTR | EALREADY | EINPROGRESS) {
        return Ok(());
    }
    let pid_tgid = bpf_get_current_pid_tgid();
    let tgid = (pid_tgid >> 32) as u32;
    let asks = watch::get(tgid).is_some_and(|watched| bus::asks(watched.role));
    if !asks {
        return Ok(());
    }
    let (address, len): (u64, u64) = (task::kernel(regs, SECOND)?, task::kernel(regs, THIRD)?);
    // As for a path in `socket`; a caller that gives the whole `struct sockaddr_un` does not say where its path ends.
    if !(18..=110).contains(&len) {
        return Ok(());
    }
    let word = |back: u32| user(address.wrapping_add(len - u64::from(back)));
    if let Some(listener) = socket::listener_at(len as u32, word)? {
        tell(tgid, pid_tgid as u32, listener, -result as u32);
    }
    Ok(())
}

/// Writes the record of a connection that was refused with this error. Where to stands where a call has the name of who is to answer.
#[inline(always)]
fn tell(tgid: u32, tid: u32, listener: Listener, errno: u32) {
    const DESTINATION: usize = 2;
    // SAFETY: no arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    let written = emit::fill::<BusRec>(|record| {
        let record = record.as_mut_ptr();
        // SAFETY: room for one record; each field of it is written.
        unsafe {
            (*record).header = emit::header::<BusRec>(RecKind::BusCall, now, tgid, tid);
            (*record).start_ns = now;
            (*record).socket = 0;
            (*record).serial = 0;
            (*record).kind = u32::from(kind::ERROR);
            (*record).bytes = 0;
            (*record).answer_bytes = 0;
            (*record).answer_serial = 0;
            (*record).errno = errno;
            (*record).texts = [0; TEXT * TEXTS];
            let destination = (&raw mut (*record).texts).cast::<[u8; TEXT]>().add(DESTINATION);
            match listener {
                Listener::Bus => *destination.cast() = *b"org.freedesktop.DBus",
                Listener::Systemd => *destination.cast() = *b"org.freedesktop.systemd1",
            }
        }
    });
    if !written {
        count::reason(Reason::RingFull);
    }
}
