//! Who must answer a network plugin that waits at a unix socket. Its agent can be any process: one of a pod, or a service of
//! the host that is none of the node's own. So every process is asked what it holds open, but only when a plugin has waited
//! for longer than one does that gets its answer, once per round, and for a bounded time.
//!
//! An agent that hangs may not even have accepted the connection. The other end is then in nobody's hands; the kernel says
//! in whose queue it is (`UNIX_DIAG_ICONS`), and whoever holds that listener should have accepted it.

use std::{io, time::Duration};

use super::{classify::Interest, kept::Kept, node::Node, read, tell::Tell, threads::Threads};
use crate::{
    census::clock,
    input::{FdTarget, SocketFact},
};

/// A plugin that is younger has not waited for long.
const YOUNG_NS: u64 = 5_000_000_000;
/// How long is looked at descriptors.
const TIME: Duration = Duration::from_millis(400);

/// Completes what is known of the sockets at which the threads of a plugin wait; `false` when there is nothing to complete.
pub(super) fn find(
    tell: &mut Tell,
    interest: &Interest,
    node: &mut Node,
    kept: &mut Kept,
    threads: &mut Threads,
) -> io::Result<bool> {
    let started = clock::started_ns(interest.seen.stat.start_ticks).unwrap_or(0);
    let young = clock::now_ns().saturating_sub(started) < YOUNG_NS;
    if young || !tell.is_here() || sockets(threads).all(|socket| socket.listening) {
        return Ok(false);
    }
    let asked_all = ask_everybody(tell, node, kept)?;
    for socket in sockets(threads).filter(|socket| !socket.listening) {
        let Some(found) = node.sockets.fact(socket.inode, &node.holders) else { continue };
        let peer_state = match found.peers.as_slice() {
            [peer] => read::stat(&tell.process(peer.pid)).map(|stat| stat.state),
            _ => None,
        };
        *socket = SocketFact { asked_all, peer_state, ..found };
    }
    Ok(true)
}

/// Is it known what each process holds open? Asks once per round.
pub(super) fn ask_everybody(tell: &mut Tell, node: &mut Node, kept: &mut Kept) -> io::Result<bool> {
    if let Some(known) = node.asked_all {
        return Ok(known);
    }
    node.sockets.read_pending(kept);
    let everybody = node.everybody.iter().map(|(pid, comm)| (*pid, comm.as_str()));
    let all = node.holders.add_sockets(tell, everybody, TIME)?;
    node.asked_all = Some(all);
    Ok(all)
}

/// The sockets at which threads wait, by themselves or through epoll.
fn sockets(threads: &mut Threads) -> impl Iterator<Item = &mut SocketFact> {
    let calls = threads.parks.iter_mut().filter_map(|seen| seen.park.syscall.as_mut());
    let all = calls.flat_map(|call| call.fd.iter_mut().chain(call.watched.iter_mut()));
    all.filter_map(|fd| match &mut fd.target {
        FdTarget::Socket(socket) => Some(socket),
        _ => None,
    })
}
