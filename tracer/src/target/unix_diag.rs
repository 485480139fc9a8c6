//! All unix sockets of our network namespace with queues and peers (include/uapi/linux/unix_diag.h).

use std::io;

use super::{
    sock_diag::{ESTABLISHED, LISTEN, LISTENERS, Link, attributes, u32_at},
    unix_sockets::UnixSocket,
};

/// `UDIAG_SHOW_NAME`, `…_PEER`, `…_RQLEN`.
const SHOW: u32 = 0x01 | 0x04 | 0x10;
/// `UDIAG_SHOW_NAME`, `…_ICONS`: who is connected to a listener and was not accepted.
const SHOW_PENDING: u32 = 0x01 | 0x08;
/// Attributes: `UNIX_DIAG_NAME`, `…_PEER`, `…_ICONS`, `…_RQLEN`.
const NAME: u16 = 0;
const PEER: u16 = 2;
const PENDING: u16 = 3;
const QUEUES: u16 = 4;
/// `struct unix_diag_msg`.
const MESSAGE: usize = 16;

/// Asks for all sockets that listen or are connected.
///
/// # Errors
///
/// The kernel has no `unix_diag`, or does not let us ask.
pub(crate) fn dump(link: &mut Link) -> io::Result<Vec<UnixSocket>> {
    link.dump(&request(ESTABLISHED | LISTENERS, SHOW), socket)
}

/// Asks for all listeners with the connections that wait to be accepted. Not a part of [`dump`]: the kernel ends a dump
/// early, and does not say so, at a socket with more of them than fit into one piece.
///
/// # Errors
///
/// As for [`dump`].
pub(crate) fn pending(link: &mut Link) -> io::Result<Vec<UnixSocket>> {
    link.dump(&request(LISTENERS, SHOW_PENDING), socket)
}

/// `struct unix_diag_req`.
fn request(states: u32, show: u32) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0]; // AF_UNIX
    bytes.extend(states.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes()); // any inode
    bytes.extend(show.to_ne_bytes());
    bytes.extend([0xff; 8]); // no cookie
    bytes
}

fn socket(body: &[u8]) -> Option<UnixSocket> {
    let &[_family, kind, state, _pad] = body.get(..4)? else { return None };
    let inode = u64::from(u32_at(body, 4)?);
    let mut socket = UnixSocket { inode, listening: state == LISTEN, ..UnixSocket::default() };
    for (attribute, value) in attributes(body, MESSAGE) {
        match attribute {
            NAME => socket.name = name(value),
            PEER => socket.peer = u32_at(value, 0).map(u64::from).filter(|peer| *peer != 0),
            PENDING => {
                let inodes = value.chunks_exact(4).filter_map(|inode| u32_at(inode, 0)).map(u64::from);
                socket.pending = inodes.filter(|inode| *inode != 0).collect();
            }
            QUEUES => {
                socket.unread = u32_at(value, 0);
                socket.backlog = u32_at(value, 4).filter(|_| socket.listening);
            }
            _ => {}
        }
    }
    let connects = matches!(i32::from(kind), libc::SOCK_STREAM | libc::SOCK_SEQPACKET);
    connects.then_some(socket)
}

/// As the kernel stores it: abstract names begin with a zero, paths end with one.
fn name(bytes: &[u8]) -> Option<String> {
    let name = match bytes.split_first()? {
        (0, rest) => format!("@{}", String::from_utf8_lossy(rest)),
        _ => String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next()?).into_owned(),
    };
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        os::{
            linux::net::SocketAddrExt as _,
            unix::net::{SocketAddr, UnixListener, UnixStream},
        },
    };

    use proptest::prelude::*;

    use super::*;

    fn inode(socket: &impl std::os::fd::AsRawFd) -> u64 {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        link.to_str().unwrap().trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
    }

    /// A listener with a connection nobody accepted, and its client; bytes that were sent and not read.
    #[test]
    fn own_sockets() {
        let name = format!("plegtrace-test-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let first = UnixStream::connect_addr(&address).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.write_all(b"hello").unwrap();
        let waiting = UnixStream::connect_addr(&address).unwrap();
        let mut link = Link::open().unwrap();
        let all = dump(&mut link).unwrap();
        let find = |wanted: u64| all.iter().find(|socket| socket.inode == wanted).cloned().unwrap();
        let own = find(inode(&listener));
        assert!(own.listening && own.unread == Some(1) && own.backlog > Some(1), "{own:?}");
        assert_eq!(own.name, Some(format!("@{name}")));
        let client = find(inode(&first));
        assert_eq!((client.unread, client.peer), (Some(5), Some(inode(&accepted))));
        assert_eq!(find(inode(&accepted)).name, Some(format!("@{name}")));
        assert_eq!((find(inode(&waiting)).peer, find(inode(&waiting)).name), (None, None));
        let listeners = pending(&mut link).unwrap();
        let own = listeners.iter().find(|socket| socket.inode == inode(&listener)).unwrap();
        assert_eq!(own.pending, [inode(&waiting)]);
        assert!(listeners.iter().all(|socket| socket.listening));
    }

    proptest! {
        /// Lengths that lie do not make it read past the end.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(0u8..40, 0..200)) {
            let _ = socket(&bytes);
        }
    }
}
