//! Requests of clients that are not traced, where a runtime has read them.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use plegtrace_common::{
    reason::Reason,
    wire::state::{Ends, PositionKey},
};

use super::{CriSide, END, FOUND, Job, scratch, walk::request_walk, why};
use crate::{
    count,
    maps::{CLIENTS, DIRECTIONS},
    socket::{self, Peer},
    watch,
};

/// The current process, a runtime, has read `taken` bytes, of which `len` fit where `buffer` is.
#[inline(always)]
pub(crate) fn read(ends: &Ends, buffer: u64, len: u32, taken: u64) {
    let Some(mut held) = scratch() else { return };
    let all = if taken > u64::from(u32::MAX) { u32::MAX } else { taken as u32 };
    held.lend().job = Job {
        // As its client sees the connection.
        ends: Ends { sock: ends.peer, peer: ends.sock, socket: 0, peer_socket: ends.socket },
        buffer,
        start_ns: 0,
        len: if len < all { len } else { all },
        all,
        why: why::READ,
        tgid: 0,
        tid: 0,
        role: 0,
    };
    if held.call(request_read) == FOUND {
        held.call(request_walk);
    }
}

/// Has the current process read from a client that is not traced? Then what is known of that stands in this CPU's scratch. A global
/// function of BPF, as [`request_step`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn request_read() -> u64 {
    let Some(mut held) = scratch() else { return END };
    match of_other(&mut held.lend().job) {
        Ok(true) => FOUND,
        Ok(false) => END,
        Err(reason) => {
            count::reason(reason);
            END
        }
    }
}

#[inline(always)]
fn of_other(job: &mut Job) -> Result<bool, Reason> {
    job.role = socket::runtime_at(job.ends.peer)?;
    if job.role == 0 {
        return Ok(false);
    }
    let Some(client) = Peer::of(job.ends.peer)? else { return Ok(false) };
    if watch::get(client.tgid).is_some_and(|watched| CriSide::of(watched.role) == Some(CriSide::Client)) {
        return Ok(false);
    }
    (job.tgid, job.tid) = (client.tgid, client.tgid);
    job.ends.socket = socket::number(job.ends.sock)?;
    // Once for each connection: the number of a process may be another's by the next.
    // SAFETY: only whether it is there is looked at.
    if unsafe { DIRECTIONS.get(PositionKey { sock: job.ends.sock, socket: job.ends.socket }) }.is_none() {
        let _ = CLIENTS.insert(client.tgid, client.name()?, 0);
    }
    // SAFETY: no arguments.
    job.start_ns = unsafe { bpf_ktime_get_ns() };
    Ok(true)
}
