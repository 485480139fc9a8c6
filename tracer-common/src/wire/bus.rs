//! Keys and values of the maps of family `bus`: calls over D-Bus without an answer.
//!
//! Addresses of sockets in the kernel are keys here and nowhere else: no record and no fact has them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::dbus::field;

/// Most calls without an answer; more are refused and counted, never evicted.
pub const MAX_BUS_CALLS: u32 = 2048;
/// Most units (headers, header fields, lines) that are looked at in one system call.
pub const MAX_UNITS: usize = 24;
/// Room for one text, a zero at its end included; longer ones are cut.
pub const TEXT: usize = 64;
/// Texts that are kept of a call and its answer.
pub const TEXTS: usize = 4;

/// The socket has not taken the call yet: it is being written, or the buffer is full.
pub const BUS_UNSENT: u32 = 1;

/// Key of a call without an answer. Numbers of sockets are never used again, addresses are.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct BusKey {
    /// `struct sock` of who calls.
    pub sock: u64,
    /// Its inode number.
    pub socket: u64,
    /// Serial of the call; 0: the connection itself, from its first byte to the first line of the bus.
    pub serial: u32,
    /// Always 0.
    pub reserved: u32,
}

/// A call without an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OpenBusCall {
    /// When its first byte was written, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Inode number of the other end; 0 while nobody has accepted the connection.
    pub peer_socket: u64,
    /// Process that calls.
    pub tgid: u32,
    /// Thread that wrote it.
    pub tid: u32,
    /// Bytes of the message.
    pub bytes: u32,
    /// `BUS_*` bits.
    pub flags: u32,
    /// See [`BusTexts`].
    pub texts: [u8; TEXT * TEXTS],
}

/// Texts of a call, each with zeros behind it; empty where they were not read.
#[derive(Clone, Copy, Debug)]
pub struct BusTexts<'a>(pub &'a [u8; TEXT * TEXTS]);

impl<'a> BusTexts<'a> {
    /// Place of the text of this header field among those that are kept.
    #[inline(always)]
    #[must_use]
    pub const fn place(code: u8) -> Option<usize> {
        match code {
            field::INTERFACE => Some(0),
            field::MEMBER => Some(1),
            field::DESTINATION => Some(2),
            field::ERROR_NAME => Some(3),
            _ => None,
        }
    }

    /// The text of this header field; `None` when it cannot be a name.
    #[must_use]
    pub fn text(self, code: u8) -> Option<&'a str> {
        let from = Self::place(code)?.checked_mul(TEXT)?;
        let bytes = self.0.get(from..from + TEXT)?.split(|byte| *byte == 0).next()?;
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':');
        if !bytes.iter().all(is_name) {
            return None;
        }
        str::from_utf8(bytes).ok()
    }
}

const _: () = assert!(size_of::<BusKey>() == 24);
const _: () = assert!(size_of::<OpenBusCall>() == 32 + TEXT * TEXTS);

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text is in its place; bytes that no name has are no text.
    #[test]
    fn texts() {
        let mut bytes = [0; TEXT * TEXTS];
        bytes[..3].copy_from_slice(b"a.b");
        bytes[TEXT..TEXT + 5].copy_from_slice(b"Hello");
        bytes[2 * TEXT..3 * TEXT].copy_from_slice(&[b':'; TEXT]);
        bytes[3 * TEXT] = 0x1b;
        let texts = BusTexts(&bytes);
        assert_eq!(texts.text(field::INTERFACE), Some("a.b"));
        assert_eq!(texts.text(field::MEMBER), Some("Hello"));
        assert_eq!(texts.text(field::DESTINATION).map(str::len), Some(TEXT), "one that is cut");
        assert_eq!([texts.text(field::ERROR_NAME), texts.text(field::PATH)], [None; 2]);
    }
}
