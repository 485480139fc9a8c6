//! Docker's API, HTTP/1.1 on `docker.sock`: where a request begins, and with which status it is answered.
//!
//! A connection has one request at a time (Go's `net/http` does not pipeline, and dockerd is one of its servers), so no body is
//! followed: a write that begins with a request line opens a request, and the first status line that is written back closes it.
//! The body of an answer comes after that and is not looked at; the bodies of requests are JSON, or archives that would have to have
//! such a line where one of their writes begins. Sources: RFC 9112, `moby/api/swagger.yaml`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most requests without an answer; more are refused and counted, never evicted.
pub const MAX_DOCKER_REQUESTS: u32 = 1024;
/// Most connections that are known to carry something else by now; the one unused for longest is forgotten.
pub const MAX_HIJACKED: u32 = 1024;
/// Room for the beginning of a request, one byte more than is kept: method, version, a container's id and what is asked of it.
pub const HEAD: usize = 128;
/// The connection carries something else from now on: the streams of an exec or attach.
pub const SWITCHING_PROTOCOLS: u16 = 101;
/// The client is to send the body now; the answer is still to come.
const CONTINUE: u16 = 100;
/// The first status that is an answer, besides [`SWITCHING_PROTOCOLS`].
const FIRST_FINAL: u16 = 200;

/// Nothing of it was taken by the socket yet; it is written again.
pub const DOCKER_UNSENT: u32 = 1;

/// A request without an answer. Its key is a [`MessageKey`](super::state::MessageKey) with stream 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OpenDockerRequest {
    /// When the write began that has its first byte, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Process that asks.
    pub tgid: u32,
    /// Thread that wrote it.
    pub tid: u32,
    /// Process that is to answer; 0 when not known.
    pub peer: u32,
    /// [`DOCKER_UNSENT`] or 0.
    pub flags: u32,
    /// Its beginning, zeros behind it.
    pub head: [u8; HEAD],
}

/// Is this how a request begins? Methods of the API, and the path that follows each.
#[inline(always)]
#[must_use]
pub const fn begins_request(first: &[u8; 8]) -> bool {
    let word = u64::from_be_bytes(*first);
    is(word, b"GET /")
        || is(word, b"POST /")
        || is(word, b"PUT /")
        || is(word, b"HEAD /")
        || is(word, b"DELETE /")
}

#[inline(always)]
const fn is<const N: usize>(word: u64, text: &[u8; N]) -> bool {
    let (mut want, mut mask) = ([0; 8], [0; 8]);
    let mut i = 0;
    while i < N {
        (want[i], mask[i]) = (text[i], 0xff);
        i += 1;
    }
    word & u64::from_be_bytes(mask) == u64::from_be_bytes(want)
}

/// The status of a status line, of which these are the first bytes; `None` when it is none.
#[inline(always)]
#[must_use]
pub fn status(first: [u8; 8], second: [u8; 8]) -> Option<u16> {
    let ([b'H', b'T', b'T', b'P', b'/', b'1', b'.', _], [b' ', hundreds, tens, ones, ..]) = (first, second)
    else {
        return None;
    };
    if !(hundreds.is_ascii_digit() && tens.is_ascii_digit() && ones.is_ascii_digit()) {
        return None;
    }
    let digit = |byte: u8| u16::from(byte - b'0');
    Some(100 * digit(hundreds) + 10 * digit(tens) + digit(ones))
}

/// Is it the answer, not one of those that come before it?
#[inline(always)]
#[must_use]
pub const fn is_final(status: u16) -> bool {
    status >= FIRST_FINAL || status == SWITCHING_PROTOCOLS
}

const _: () = assert!(size_of::<OpenDockerRequest>() == 24 + HEAD);
const _: () = assert!(!is_final(CONTINUE) && is_final(SWITCHING_PROTOCOLS));

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    fn first<const N: usize>(text: &[u8]) -> [u8; N] {
        let mut first = [0; N];
        for (to, from) in first.iter_mut().zip(text) {
            *to = *from;
        }
        first
    }

    /// Each method of the API begins a request; a body, or a method cut short, does not.
    #[test]
    fn request_lines() {
        let all = ["GET /v1.40/", "POST /c", "PUT /x", "HEAD /_ping", "DELETE /v1"];
        assert_eq!(all.map(|line| begins_request(&first(line.as_bytes()))), [true; 5]);
        let none =
            ["{\"Id\":1}", "get /v1", "GETS /v1", "GET  /v1", "GET v1/", "DELETE v1", "PRI * HT", "", "GET "];
        assert_eq!(none.map(|line| begins_request(&first(line.as_bytes()))), [false; 9]);
    }

    /// A status has three digits, behind a version of HTTP that dockerd speaks.
    #[test]
    fn status_lines() {
        let of = |line: &str| {
            let bytes: [u8; 16] = first(line.as_bytes());
            status(bytes[..8].try_into().unwrap(), bytes[8..].try_into().unwrap())
        };
        assert_eq!(of("HTTP/1.1 200 OK\r\n"), Some(200));
        assert_eq!(of("HTTP/1.0 404 Not Found"), Some(404));
        assert_eq!(of("HTTP/1.1 101 UPGRADED"), Some(101));
        let none = [
            "HTTP/2.0 200 OK",
            "HTTP/1.1 2x0 OK",
            "HTTP/1.1200 OK",
            "{\"Id\":\"HTTP/1.1 200\"}",
            "HTTP/1.1",
            "",
        ];
        assert_eq!(none.map(of), [None; 6]);
        let bytes: Vec<u16> =
            [100, 101, 102, 199, 200, 304, 500].into_iter().filter(|it| is_final(*it)).collect();
        assert_eq!(bytes, [101, 200, 304, 500]);
    }
}
