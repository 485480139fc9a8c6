//! The TCP connections of our network namespace, what they have received, and what became of what was sent
//! (include/uapi/linux/inet_diag.h, `struct tcp_info` of include/uapi/linux/tcp.h; the bytes since Linux 4.1).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use crate::target::sock_diag::{
    CONNECTING, CONNECTINGS, ESTABLISHED, LISTEN, LISTENERS, Link, attributes, u32_at,
};

/// `struct inet_diag_msg`, and its `struct inet_diag_sockid`.
const MESSAGE: usize = 72;
const ID: std::ops::Range<usize> = 4..52;
/// `INET_DIAG_INFO`, as an attribute and as a bit.
const INFO: u16 = 2;
const SHOW_INFO: u8 = 1 << (INFO - 1);
/// Places in `struct tcp_info`: `tcpi_retransmits`, `tcpi_last_data_sent`, `tcpi_last_data_recv`, `tcpi_bytes_received`.
const RESENT: usize = 2;
const LAST_SENT: usize = 44;
const LAST_RECEIVED: usize = 52;
const RECEIVED: usize = 128;

/// A socket of TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tcp {
    pub(super) inode: u64,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) listening: bool,
    /// Its other end has not taken it yet.
    pub(super) connecting: bool,
    family: u8,
    /// As the kernel knows it.
    id: Vec<u8>,
    /// Bytes that its owner has not read.
    pub(super) unread: u32,
    /// Bytes that its owner has sent, and the other end has not acknowledged.
    pub(super) unacked: u32,
    /// When that was asked for, and the kernel counts bytes.
    pub(super) info: Option<Info>,
}

/// What the kernel counts of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Info {
    /// Bytes that it has received.
    pub(super) received: u64,
    /// How long ago the last of them came, milliseconds.
    pub(super) quiet_ms: u32,
    /// How long ago the last was sent, milliseconds.
    pub(super) sent_ms: u32,
    /// How often the same was sent again since the last acknowledgement.
    pub(super) resent: u8,
}

impl Info {
    fn of(info: &[u8]) -> Option<Self> {
        let received: [u8; 8] = info.get(RECEIVED..RECEIVED + 8)?.try_into().ok()?;
        Some(Self {
            received: u64::from_ne_bytes(received),
            quiet_ms: u32_at(info, LAST_RECEIVED)?,
            sent_ms: u32_at(info, LAST_SENT)?,
            resent: *info.get(RESENT)?,
        })
    }
}

/// Asks for all that listen, connect or are established, without what they have received: that would lock each for a moment.
///
/// # Errors
///
/// The kernel has no `tcp_diag`, or does not let us ask.
pub(super) fn dump(link: &mut Link) -> io::Result<Vec<Tcp>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family = u8::try_from(family).unwrap_or_default();
        all.extend(link.dump(&request(family, 0, ESTABLISHED | CONNECTINGS | LISTENERS, &[0; 48]), socket)?);
    }
    Ok(all)
}

/// Asks what one of them has received; `None` when it is not there any more.
///
/// # Errors
///
/// As for [`dump`].
pub(super) fn of_one(link: &mut Link, tcp: &Tcp) -> io::Result<Option<Tcp>> {
    let found = link.one(&request(tcp.family, SHOW_INFO, u32::MAX, &tcp.id), socket)?;
    Ok(found.filter(|found| found.inode == tcp.inode))
}

/// `struct inet_diag_req_v2`.
fn request(family: u8, show: u8, states: u32, id: &[u8]) -> Vec<u8> {
    let protocol = u8::try_from(libc::IPPROTO_TCP).unwrap_or_default();
    let mut bytes = vec![family, protocol, show, 0];
    bytes.extend(states.to_ne_bytes());
    bytes.extend(id);
    bytes
}

fn socket(body: &[u8]) -> Option<Tcp> {
    let (family, state) = (*body.first()?, *body.get(1)?);
    let id = body.get(ID)?;
    let port = |at: usize| Some(u16::from_be_bytes(id.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| {
        let bytes: [u8; 16] = id.get(at..at + 16)?.try_into().ok()?;
        let [a, b, c, d, ..] = bytes;
        match i32::from(family) {
            libc::AF_INET => Some(IpAddr::from(Ipv4Addr::new(a, b, c, d))),
            libc::AF_INET6 => Some(Ipv6Addr::from(bytes).to_canonical()),
            _ => None,
        }
    };
    let info = attributes(body, MESSAGE).find(|(attribute, _)| *attribute == INFO);
    Some(Tcp {
        inode: u64::from(u32_at(body, 68)?),
        local: SocketAddr::new(address(4)?, port(0)?),
        peer: SocketAddr::new(address(20)?, port(2)?),
        listening: state == LISTEN,
        connecting: state == CONNECTING,
        family,
        id: id.to_vec(),
        unread: u32_at(body, 56)?,
        unacked: u32_at(body, 60)?,
        info: info.and_then(|(_, info)| Info::of(info)),
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        net::{TcpListener, TcpStream},
        os::fd::AsRawFd,
        thread,
        time::{Duration, Instant},
    };

    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    fn inode(socket: &impl AsRawFd) -> u64 {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        link.to_str().unwrap().trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
    }

    /// A listener, both ends of a connection, what was sent and not read; what grows.
    #[test]
    fn own_sockets() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let mut link = Link::open().unwrap();
            let all = dump(&mut link).unwrap();
            let find = |wanted: u64| all.iter().find(|tcp| tcp.inode == wanted).cloned().unwrap();
            let (own, end) = (find(inode(&listener)), find(inode(&client)));
            assert!(own.listening && !end.listening);
            assert_eq!((own.local, end.peer), (listener.local_addr().unwrap(), server.local_addr().unwrap()));
            assert_eq!((end.info, end.local), (None, client.local_addr().unwrap()));
            let mut received = |sent: &[u8]| {
                server.write_all(sent).unwrap();
                of_one(&mut link, &end).unwrap().unwrap()
            };
            assert_eq!(received(b"").info.unwrap().received, 0);
            let some = received(b"hello");
            assert_eq!((some.info.unwrap().received, some.unread, some.info.unwrap().resent), (5, 5, 0));
            drop((client, server));
            assert_eq!(of_one(&mut link, &end).unwrap(), None);
        }
    }

    /// A listener whose queue is full drops what comes: the kernel of whoever connects sends it again after a second.
    #[test]
    fn one_that_is_not_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let taken = TcpStream::connect(address).unwrap();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let waits = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        assert_eq!(rustix::net::connect(&waits, &address).unwrap_err(), rustix::io::Errno::INPROGRESS);
        let mut link = Link::open().unwrap();
        let all = dump(&mut link).unwrap();
        let find = |wanted: u64| all.iter().find(|tcp| tcp.inode == wanted).unwrap();
        assert!(!find(inode(&taken)).connecting);
        let found = find(inode(&waits));
        assert!(found.connecting && !found.listening && found.peer == address);
        let begin = Instant::now();
        let resent = |link: &mut Link| of_one(link, found).unwrap().unwrap().info.unwrap().resent;
        while resent(&mut link) == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "it was never sent again");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// A kernel that does not count bytes says less.
    #[test]
    fn an_older_kernel() {
        let mut body = vec![2, 1, 0, 0];
        body.resize(MESSAGE, 0);
        body.extend(108u16.to_ne_bytes());
        body.extend(INFO.to_ne_bytes());
        body.resize(MESSAGE + 108, 0);
        assert_eq!(socket(&body).unwrap().info, None);
    }

    proptest! {
        /// It does not read past the end.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(0u8..40, 0..300)) {
            let _ = socket(&bytes);
        }
    }
}
