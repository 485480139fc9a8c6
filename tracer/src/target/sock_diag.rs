//! Sockets, as the kernel lists them by `NETLINK_SOCK_DIAG`: one socket to ask with, for all families
//! (include/uapi/linux/sock_diag.h; Linux 3.3 and later).

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::FromRawFd as _,
};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `struct nlmsghdr`.
const HEADER: usize = 16;
/// States of include/net/tcp_states.h as bits: established and listening.
pub(crate) const ESTABLISHED: u32 = 1 << 1;
pub(crate) const CONNECTING: u8 = 2;
pub(crate) const CONNECTINGS: u32 = 1 << CONNECTING;
pub(crate) const LISTENERS: u32 = 1 << LISTEN;
pub(crate) const LISTEN: u8 = 10;
/// Sockets that are kept.
const MAX_SOCKETS: usize = 65_536;
/// The kernel fills at most 32 KiB per read of a dump.
const PIECE: usize = 64 << 10;
/// It answers from memory; silence means that something is wrong with it.
static PATIENCE: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 200_000 };

/// A socket to ask with, open before the child gives up the right to open one.
#[derive(Debug)]
pub(crate) struct Link {
    socket: File,
    /// An answer was not read to its end: what comes next may belong to it.
    pub(crate) is_spent: bool,
}

impl Link {
    /// Opens one.
    ///
    /// # Errors
    ///
    /// The kernel does not let us.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { socket: open()?, is_spent: false })
    }

    /// Asks for all sockets that a request of its family wants; `of` reads one, and leaves out what it does not want.
    ///
    /// # Errors
    ///
    /// The kernel has no such module, or does not let us ask.
    pub(crate) fn dump<T>(&mut self, wanted: &[u8], of: fn(&[u8]) -> Option<T>) -> io::Result<Vec<T>> {
        self.ask(wanted, libc::NLM_F_REQUEST | libc::NLM_F_DUMP)?;
        let mut found = Vec::new();
        let mut piece = vec![0; PIECE];
        loop {
            let length = self.socket.read(&mut piece)?;
            match take(&piece[..length], &mut found, of) {
                Dump::Goes if length > 0 && found.len() < MAX_SOCKETS => {}
                Dump::Goes => return Ok(found),
                Dump::Over => {
                    self.is_spent = false;
                    return Ok(found);
                }
                // Nothing follows an error.
                Dump::Failed(errno) => {
                    self.is_spent = false;
                    return Err(io::Error::from_raw_os_error(errno));
                }
            }
        }
    }

    /// Asks for one socket; `None` when it is not there any more.
    ///
    /// # Errors
    ///
    /// As for [`Self::dump`].
    pub(crate) fn one<T>(&mut self, wanted: &[u8], of: fn(&[u8]) -> Option<T>) -> io::Result<Option<T>> {
        self.ask(wanted, libc::NLM_F_REQUEST)?;
        let (mut found, mut piece) = (Vec::new(), vec![0; PIECE]);
        let length = self.socket.read(&mut piece)?;
        // The answer is one message.
        self.is_spent = false;
        match take(&piece[..length], &mut found, of) {
            Dump::Failed(libc::ENOENT) | Dump::Goes | Dump::Over => Ok(found.pop()),
            Dump::Failed(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn ask(&mut self, wanted: &[u8], flags: libc::c_int) -> io::Result<()> {
        if self.is_spent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.is_spent = true;
        let flags = u16::try_from(flags).unwrap_or_default();
        let mut bytes = Vec::with_capacity(HEADER + wanted.len());
        bytes.extend(u32::try_from(HEADER + wanted.len()).unwrap_or_default().to_ne_bytes());
        bytes.extend(BY_FAMILY.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]); // sequence, port
        bytes.extend(wanted);
        self.socket.write_all(&bytes)
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

#[derive(Debug, PartialEq, Eq)]
enum Dump {
    Goes,
    Over,
    Failed(i32),
}

/// Reads one piece of the dump; what is cut or malformed is left out.
fn take<T>(mut bytes: &[u8], found: &mut Vec<T>, of: fn(&[u8]) -> Option<T>) -> Dump {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = length as usize;
        let Some(body) = bytes.get(HEADER..length) else { return Dump::Goes };
        match i32::from(kind) {
            libc::NLMSG_DONE => return Dump::Over,
            libc::NLMSG_ERROR => {
                let errno = u32_at(body, 0).map_or(libc::EIO, |code| code.cast_signed().saturating_neg());
                return Dump::Failed(errno);
            }
            _ if kind == BY_FAMILY => found.extend(of(body)),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Dump::Goes
}

/// The attributes behind the first `from` bytes of a message, by number; what is cut or malformed ends them.
pub(crate) fn attributes(body: &[u8], from: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(from..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, attribute) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((attribute, value))
    })
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A refusal of the kernel keeps its error number.
    #[test]
    fn refusal() {
        let mut bytes = 36u32.to_ne_bytes().to_vec();
        bytes.extend(2u16.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend((-libc::ENOENT).to_ne_bytes());
        bytes.extend([0; 16]);
        assert_eq!(take(&bytes, &mut Vec::<()>::new(), |_| None), Dump::Failed(libc::ENOENT));
    }

    proptest! {
        /// Lengths that lie do not make it read past the end, nor for ever.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(0u8..40, 0..200)) {
            let _ = take(&bytes, &mut Vec::new(), |body| Some(body.len()));
            assert!(attributes(&bytes, 0).count() <= bytes.len());
        }
    }
}
