//! What a real dockershim and its dockerd said to each other: each request once, by what it is about, with its status, as dockerd's
//! log has them; and no other wherever one joins.

use std::collections::HashMap;

use plegtrace::wire::Side;
use plegtrace_common::wire::docker::SWITCHING_PROTOCOLS;
use plegtrace_tests::wire::{Capture, Protocol, capture::Tally, record::DOCKERS};

use crate::wire_kit::docker::{Read, read};

/// A request that was answered.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    /// Chunk that began it.
    begun: usize,
    method: String,
    status: u16,
}

/// How far a connection is.
#[derive(Default)]
struct Connection {
    open: Option<(usize, String)>,
    /// It carries the streams of a command by now.
    hijacked: bool,
}

impl Connection {
    /// What a chunk is to the kernel side; gives the request that it answers.
    fn push(&mut self, at: usize, side: Side, bytes: &[u8]) -> Option<Ended> {
        match (side, read(bytes)) {
            (Side::Client, Read::Request(call)) if !self.hijacked => {
                let method = call.expect("a line").method;
                let before = self.open.replace((at, method));
                assert_eq!(before, None, "one request at a time: chunk {at}");
            }
            (Side::Server, Read::Status(status, true)) => {
                let (begun, method) = self.open.take()?;
                self.hijacked = status == SWITCHING_PROTOCOLS;
                return Some(Ended { begun, method, status });
            }
            (Side::Server, _) => assert_eq!(self.open, None, "chunk {at} is no answer"),
            (Side::Client, _) => {}
        }
        None
    }
}

/// All requests that began with chunk `from` or later and were answered, in the order of the answers; and how many were not.
fn replay(capture: &Capture, from: usize) -> (Vec<Ended>, usize) {
    let mut connections: HashMap<usize, Connection> = HashMap::new();
    let mut ended = Vec::new();
    for (at, chunk) in capture.chunks.iter().enumerate().skip(from) {
        let connection = connections.entry(chunk.connection).or_default();
        ended.extend(connection.push(at, chunk.side, &chunk.bytes));
    }
    let open = connections.values().filter(|connection| connection.open.is_some()).count();
    (ended, open)
}

/// As many requests of each kind as dockerd has handled, with the statuses that they have.
#[test]
fn as_often_as_dockerd_says() {
    for pair in DOCKERS {
        let mut capture = Capture::load(pair.name).unwrap();
        for filled in [false, true] {
            if filled {
                capture.fill_messages(Protocol::Http1);
            }
            let (ended, open) = replay(&capture, 0);
            let mut tally = Tally::new();
            for Ended { method, status, .. } in ended {
                *tally.entry((method, u32::from(status))).or_default() += 1;
            }
            assert_eq!((&tally, open), (&capture.tally, 0), "{} filled: {filled}", pair.name);
        }
        let count = |method: &str, status| capture.tally[&(method.to_owned(), status)];
        assert!(count("GET /containers/json", 200) > 20 && count("POST /containers/create", 201) > 3);
        assert!(count("POST /exec/{id}/start", 101) > 5 && count("GET /containers/{id}/json", 404) > 3);
    }
}

/// Joined at any chunk: what begins later is seen as it was, and nothing else.
#[test]
fn joined_at_any_chunk() {
    for pair in DOCKERS {
        let mut capture = Capture::load(pair.name).unwrap();
        capture.fill_messages(Protocol::Http1);
        let (truth, _) = replay(&capture, 0);
        for from in 0..capture.chunks.len() {
            let (ended, open) = replay(&capture, from);
            let later: Vec<&Ended> = truth.iter().filter(|ended| ended.begun >= from).collect();
            assert_eq!((ended.iter().collect::<Vec<_>>(), open), (later, 0), "{} from {from}", pair.name);
        }
    }
}
