//! What a thread in `epoll_wait` waits for: the sockets that its epoll instance watches. A network plugin in Go waits for its
//! agent so, not in a read.

use super::{
    files::Holders, node::Node, read, sockets::Sockets, syscall::descriptor_of, tell::Tell, threads::Threads,
};
use crate::{
    census::text::watched_by_epoll,
    input::{FdFact, FdTarget},
};

/// Adds the sockets that threads of a process watch, but for those at which it listens. Of a socket that is no unix socket
/// only the link is known.
pub(super) fn sockets(tell: &Tell, pid: u32, node: &Node, threads: &mut Threads) {
    let calls = threads.parks.iter_mut().filter_map(|seen| seen.park.syscall.as_mut());
    for call in calls.filter(|call| call.name.as_deref().is_some_and(|name| name.starts_with("epoll_"))) {
        let Some(fd) = call.fd.as_ref().map(|fd| fd.fd) else { continue };
        let info = read::text(&tell.process(pid).join(format!("fdinfo/{fd}"))).unwrap_or_default();
        call.watched = watched(pid, &info, &node.holders, &node.sockets);
    }
}

fn watched(pid: u32, fdinfo: &str, holders: &Holders, sockets: &Sockets) -> Vec<FdFact> {
    let counts = |fd: &FdFact| match &fd.target {
        FdTarget::Socket(socket) => !socket.listening,
        FdTarget::Other { link } => link.starts_with("socket:"),
        FdTarget::Pipe(_) | FdTarget::File { .. } => false,
    };
    let all = watched_by_epoll(fdinfo).into_iter();
    all.filter_map(|fd| descriptor_of(pid, fd, holders, sockets)).filter(counts).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        os::{fd::AsRawFd as _, unix::net::UnixStream},
    };

    use super::*;

    /// The sockets of an epoll instance of ours, of which none is known to be a unix socket, and not the pipe.
    #[test]
    fn what_an_instance_watches() {
        let (one, _other) = UnixStream::pair().unwrap();
        let (pipe, _writer) = io::pipe().unwrap();
        // SAFETY: plain numbers; the descriptor is closed with the process.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        for fd in [one.as_raw_fd(), pipe.as_raw_fd()] {
            let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: 0 };
            // SAFETY: open descriptors and a valid event.
            assert_eq!(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }, 0);
        }
        let (mut tell, mut holders) = (Tell::below("/".as_ref(), io::sink()), Holders::default());
        holders.add(&mut tell, std::process::id(), "x", true).unwrap();
        let info = format!("/proc/self/fdinfo/{epoll}");
        let found = watched(
            std::process::id(),
            &std::fs::read_to_string(info).unwrap(),
            &holders,
            &Sockets::default(),
        );
        assert_eq!(found.iter().map(|fd| fd.fd).collect::<Vec<_>>(), [one.as_raw_fd()]);
    }
}
