//! All unix sockets of our network namespace with queues and peers, by `NETLINK_SOCK_DIAG`
//! (include/uapi/linux/unix_diag.h; Linux 3.3 and later).

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::FromRawFd as _,
};

use crate::target::UnixSocket;

/// `SOCK_DIAG_BY_FAMILY` (include/uapi/linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// States of include/net/tcp_states.h as bits: established and listening.
const STATES: u32 = 1 << 1 | LISTENERS;
const LISTENERS: u32 = 1 << LISTEN;
const LISTEN: u8 = 10;
/// `UDIAG_SHOW_NAME`, `…_PEER`, `…_RQLEN`.
const SHOW: u32 = 0x01 | 0x04 | 0x10;
/// `UDIAG_SHOW_NAME`, `…_ICONS`: who is connected to a listener and was not accepted.
const SHOW_PENDING: u32 = 0x01 | 0x08;
/// Attributes: `UNIX_DIAG_NAME`, `…_PEER`, `…_ICONS`, `…_RQLEN`.
const NAME: u16 = 0;
const PEER: u16 = 2;
const PENDING: u16 = 3;
const QUEUES: u16 = 4;
/// `struct nlmsghdr` and `struct unix_diag_msg`.
const HEADER: usize = 16;
const MESSAGE: usize = 16;
/// Sockets that are kept.
const MAX_SOCKETS: usize = 65_536;
/// The kernel fills at most 32 KiB per read of a dump.
const PIECE: usize = 64 << 10;
/// It answers from memory; silence means that something is wrong with it.
static PATIENCE: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 200_000 };

/// A socket to ask with, open before the child gives up the right to open one.
#[derive(Debug)]
pub(super) struct Link {
    socket: File,
    /// An answer was not read to its end: what comes next may belong to it.
    pub(super) is_spent: bool,
}

impl Link {
    /// Opens one.
    ///
    /// # Errors
    ///
    /// The kernel does not let us.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { socket: open()?, is_spent: false })
    }

    /// Asks for all sockets that listen or are connected.
    ///
    /// # Errors
    ///
    /// The kernel has no `unix_diag`, or does not let us ask.
    pub(super) fn dump(&mut self) -> io::Result<Vec<UnixSocket>> {
        self.ask(STATES, SHOW)
    }

    /// Asks for all listeners with the connections that wait to be accepted. Not a part of [`Self::dump`]: the kernel ends
    /// a dump early, and does not say so, at a socket with more of them than fit into one piece.
    ///
    /// # Errors
    ///
    /// As for [`Self::dump`].
    pub(super) fn pending(&mut self) -> io::Result<Vec<UnixSocket>> {
        self.ask(LISTENERS, SHOW_PENDING)
    }

    fn ask(&mut self, states: u32, show: u32) -> io::Result<Vec<UnixSocket>> {
        if self.is_spent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.is_spent = true;
        self.socket.write_all(&request(states, show))?;
        let mut sockets = Vec::new();
        let mut piece = vec![0; PIECE];
        loop {
            let length = self.socket.read(&mut piece)?;
            match take(&piece[..length], &mut sockets) {
                Dump::Goes if length > 0 && sockets.len() < MAX_SOCKETS => {}
                Dump::Goes => return Ok(sockets),
                Dump::Over => {
                    self.is_spent = false;
                    return Ok(sockets);
                }
                Dump::Failed(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

fn open() -> io::Result<File> {
    const NETLINK_SOCK_DIAG: libc::c_int = 4;
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: plain numbers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, NETLINK_SOCK_DIAG) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that nobody else has.
    let link = unsafe { File::from_raw_fd(fd) };
    let size = libc::socklen_t::try_from(size_of_val(&PATIENCE)).unwrap_or_default();
    let time = (&raw const PATIENCE).cast();
    // SAFETY: a valid structure of that size.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, time, size) };
    Ok(link)
}

/// `struct nlmsghdr` and `struct unix_diag_req`.
fn request(states: u32, show: u32) -> Vec<u8> {
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).unwrap_or_default();
    let mut bytes = Vec::with_capacity(HEADER + 24);
    bytes.extend(40u32.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]); // sequence, port
    bytes.extend([1, 0, 0, 0]); // AF_UNIX
    bytes.extend(states.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes()); // any inode
    bytes.extend(show.to_ne_bytes());
    bytes.extend([0xff; 8]); // no cookie
    bytes
}

#[derive(Debug, PartialEq, Eq)]
enum Dump {
    Goes,
    Over,
    Failed(i32),
}

/// Reads one piece of the dump; what is cut or malformed is left out.
fn take(mut bytes: &[u8], sockets: &mut Vec<UnixSocket>) -> Dump {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = length as usize;
        let Some(body) = bytes.get(HEADER..length) else { return Dump::Goes };
        match i32::from(kind) {
            libc::NLMSG_DONE => return Dump::Over,
            libc::NLMSG_ERROR => {
                let errno = u32_at(body, 0).map_or(libc::EIO, |code| code.cast_signed().saturating_neg());
                return Dump::Failed(errno);
            }
            _ if kind == BY_FAMILY => sockets.extend(socket(body)),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Dump::Goes
}

fn socket(body: &[u8]) -> Option<UnixSocket> {
    let &[_family, kind, state, _pad] = body.get(..4)? else { return None };
    let inode = u64::from(u32_at(body, 4)?);
    let mut socket = UnixSocket { inode, listening: state == LISTEN, ..UnixSocket::default() };
    let mut attributes = body.get(MESSAGE..)?;
    while let (Some(length), Some(attribute)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
        let length = usize::from(length);
        let Some(value) = attributes.get(4..length) else { break };
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
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
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

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
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
        let all = link.dump().unwrap();
        let find = |wanted: u64| all.iter().find(|socket| socket.inode == wanted).cloned().unwrap();
        let own = find(inode(&listener));
        assert!(own.listening && own.unread == Some(1) && own.backlog > Some(1), "{own:?}");
        assert_eq!(own.name, Some(format!("@{name}")));
        let client = find(inode(&first));
        assert_eq!((client.unread, client.peer), (Some(5), Some(inode(&accepted))));
        assert_eq!(find(inode(&accepted)).name, Some(format!("@{name}")));
        assert_eq!((find(inode(&waiting)).peer, find(inode(&waiting)).name), (None, None));
        let listeners = link.pending().unwrap();
        let own = listeners.iter().find(|socket| socket.inode == inode(&listener)).unwrap();
        assert_eq!(own.pending, [inode(&waiting)]);
        assert!(listeners.iter().all(|socket| socket.listening));
    }

    /// What the kernel refuses is told with its number.
    #[test]
    fn refusal() {
        let mut bytes = 36u32.to_ne_bytes().to_vec();
        bytes.extend(2u16.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend((-libc::ENOENT).to_ne_bytes());
        bytes.extend([0; 16]);
        assert_eq!(take(&bytes, &mut Vec::new()), Dump::Failed(libc::ENOENT));
    }

    proptest! {
        /// Lengths that lie do not make it read past the end, nor for ever.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(0u8..40, 0..200)) {
            let _ = take(&bytes, &mut Vec::new());
            let _ = socket(&bytes);
        }
    }
}
