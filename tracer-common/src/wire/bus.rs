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

/// It was answered with a job of systemd, which is not done.
pub const BUS_JOB: u32 = 2;
/// Most jobs that are remembered as done before their caller has read that they are its own; older ones are forgotten.
pub const MAX_JOBS_DONE: u32 = 1024;
/// Most connections of which a header about a job has been read and its body has not; older ones are forgotten.
pub const MAX_JOB_BODIES: u32 = 512;
/// Bytes of a body that are looked at for the number of a job.
pub const JOB_BODY: usize = 64;

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

impl BusKey {
    /// Key of a job that is not done ([`BUS_JOB`]): by who waits for it and its number. It is told on another connection than
    /// the call that began it.
    #[inline(always)]
    #[must_use]
    pub const fn job(tgid: u32, job: u32) -> Self {
        Self { sock: tgid as u64, socket: 0, serial: job, reserved: 0 }
    }
}

/// A call without an answer, or one whose answer was a job that is not done.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OpenBusCall {
    /// When its first byte was written, of a job when its caller had read of it, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Inode number of the socket of who calls.
    pub socket: u64,
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

/// Does a method of this name make systemd answer with a job that it has just made?
#[inline(always)]
#[must_use]
pub fn begins_job(member: [u8; 4]) -> bool {
    const FIRST: [[u8; 4]; 5] = [*b"Star", *b"Stop", *b"Rest", *b"Relo", *b"TryR"];
    let member = u32::from_ne_bytes(member);
    let mut found = false;
    for first in FIRST {
        found |= member == u32::from_ne_bytes(first);
    }
    found
}

/// Is this the name of the signal with which systemd says that a job is done?
#[inline(always)]
#[must_use]
pub fn is_job_removed(member: [u8; 12]) -> bool {
    let [a, b, c, d, e, f, g, h, rest @ ..] = member;
    u64::from_ne_bytes([a, b, c, d, e, f, g, h]) == u64::from_ne_bytes(*b"JobRemov")
        && u32::from_ne_bytes(rest) == u32::from_ne_bytes(*b"ed\0\0")
}

/// The number of the job whose path is the body of an answer: 32 bits of length, `/org/freedesktop/systemd1/job/`, digits, a
/// zero.
#[inline(always)]
#[must_use]
pub fn job_in_answer(body: &[u8; JOB_BODY]) -> Option<u32> {
    const PATH: &[u8; 30] = b"/org/freedesktop/systemd1/job/";
    const DIGITS: usize = 4 + PATH.len();
    let mut differs = 0;
    for (at, byte) in PATH.iter().enumerate() {
        differs |= body[4 + at] ^ byte;
    }
    if differs != 0 {
        return None;
    }
    let mut job: u64 = 0;
    for (place, byte) in body[DIGITS..=DIGITS + 10].iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if *byte == 0 && place > 0 && job <= u32::MAX as u64 {
            return Some(job as u32);
        }
        if digit > 9 {
            return None;
        }
        job = job * 10 + digit as u64;
    }
    None
}

/// The number of the job in the body of the signal `JobRemoved`, which begins with it.
#[inline(always)]
#[must_use]
pub fn job_in_signal(body: &[u8; JOB_BODY], is_big_endian: bool) -> u32 {
    let first = [body[0], body[1], body[2], body[3]];
    if is_big_endian { u32::from_be_bytes(first) } else { u32::from_le_bytes(first) }
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

    fn body(text: &[u8]) -> [u8; JOB_BODY] {
        let mut body = [0; JOB_BODY];
        body[..text.len()].copy_from_slice(text);
        body
    }

    /// The number is what stands behind the path of jobs, up to 32 bits; anything else is no job.
    #[test]
    fn job_of_an_answer() {
        let answer = |path: &[u8]| job_in_answer(&body(&[&[9, 0, 0, 0], path].concat()));
        assert_eq!(answer(b"/org/freedesktop/systemd1/job/7\0"), Some(7));
        assert_eq!(answer(b"/org/freedesktop/systemd1/job/4294967295\0"), Some(u32::MAX));
        let others: [&[u8]; 7] = [
            b"/org/freedesktop/systemd1/job/4294967296\0",
            b"/org/freedesktop/systemd1/job/42949672950\0",
            b"/org/freedesktop/systemd1/job/\0",
            b"/org/freedesktop/systemd1/job/7x\0",
            b"/org/freedesktop/systemd1/unit/7\0",
            b"/org/freedesktop/systemd1/jo",
            b"",
        ];
        for other in others {
            assert_eq!(answer(other), None, "{other:?}");
        }
    }

    /// Byte order as the signal has it.
    #[test]
    fn job_of_a_signal() {
        let signal = body(&[1, 2, 0, 0, 30]);
        assert_eq!([job_in_signal(&signal, false), job_in_signal(&signal, true)], [0x201, 0x0102_0000]);
    }

    /// Methods that make a job, and the signal that one is done, by their whole names where that matters.
    #[test]
    fn names_of_jobs() {
        let begins = |name: &str| begins_job(*name.as_bytes().first_chunk().unwrap());
        assert!(
            ["StartTransientUnit", "StopUnit", "RestartUnit", "ReloadUnit", "TryRestartUnit"]
                .into_iter()
                .all(begins)
        );
        assert!(
            !["GetJob", "GetUnit", "SetUnitProperties", "ResetFailedUnit", "ListJobs"]
                .into_iter()
                .any(begins)
        );
        assert!(is_job_removed(*b"JobRemoved\0\0"));
        assert!(!is_job_removed(*b"JobRemovedX\0") && !is_job_removed(*b"JobNew\0\0\0\0\0\0"));
    }
}
