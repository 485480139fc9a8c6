//! Rough clients at the socket of a real containerd: many streams, many connections, streams that are reset at once, one byte a
//! write, an answer of more than 64 MiB, and bytes that make no sense. Requests stay exact, and nonsense changes no count of theirs.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;

use plegtrace::decode::Request;
use plegtrace_lab::cri::{Call, Client, Extra};
use plegtrace_lab::{Containerd, Generation, Knobs, host, image};
use plegtrace_tests::draw::Draw;

use super::requests::{ask, handled, since, start, watch};
use super::*;

const STREAMS: u64 = 10_000;
const AT_ONCE: u64 = 8;
const CONNECTIONS: u64 = 200;
const RESETS: usize = 200;
const SLOW: u64 = 5;
/// Requests of two frames each that are written at once.
const AT_A_TIME: u32 = 1024;
const NONSENSE: usize = 200;
/// What a client of HTTP/2 says first (RFC 9113, 3.4), and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Frames (RFC 9113, 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
/// SETTINGS_INITIAL_WINDOW_SIZE, and the largest there is: nothing has to be confirmed.
const WINDOW: [u8; 6] = [0, 4, 0x7f, 0xff, 0xff, 0xff];
/// What the window of the connection is to grow by: from 65,535 bytes to nearly the largest.
const WIDER: [u8; 4] = [0x7f, 0xff, 0, 0];
/// Bytes of the annotation of each container, and how many of these make a list of more than 64 MiB.
const BALLAST: usize = 13 << 20;
const HEAVY: usize = 5;

/// What was counted of each method, by plegtrace and by containerd.
fn counts(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let all = snapshot.grpc.rows.iter().filter(|row| row.latency.count() > 0);
    all.map(|row| (row.method.clone(), row.latency.count())).collect()
}

fn version(client: &Client, times: u64) {
    for _ in 0..times {
        client.version(LIMIT).unwrap();
    }
}

/// Observes while `work` goes on: what plegtrace saw, and what containerd handled meanwhile.
fn observed(work: impl FnOnce(&Containerd, &Watching)) -> (Snapshot, BTreeMap<String, u64>) {
    let (snapshot, counted, _) = observed_on(&start(Generation::default()), work);
    (snapshot, counted)
}

/// The same of this one, with each request.
fn observed_on(
    containerd: &Containerd,
    work: impl FnOnce(&Containerd, &Watching),
) -> (Snapshot, BTreeMap<String, u64>, Vec<Request>) {
    let watching = watch(containerd);
    let before = handled(containerd);
    work(containerd, &watching);
    let counted = since(&before, handled(containerd));
    let all: u64 = counted.values().sum();
    let ended = plegtrace::clock::monotonic_ns();
    process::wait_for("the end of all requests", LIMIT, || {
        let seen = watching.seen();
        let reading = &seen.open_requests;
        let none_open = reading.at_ns > ended && reading.open.iter().all(|open| open.over);
        Ok((seen.requests.len() as u64 >= all && none_open).then_some(()))
    })
    .unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert_eq!(seen.undecoded, 0);
    (snapshot, counted, seen.requests)
}

/// Ten thousand streams on one connection, eight at a time, and two hundred connections.
#[test]
fn many_streams_and_many_connections_are_exact() {
    let (snapshot, counted) = observed(|containerd, _| {
        let one = containerd.client_of(containerd.client().api()).unwrap();
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| version(&one, STREAMS / AT_ONCE));
            }
        });
        let connect = |_| containerd.client_of(one.api()).unwrap();
        let many: Vec<Client> = (0..CONNECTIONS).map(connect).collect();
        many.iter().for_each(|client| version(client, 2));
    });
    assert_nothing_is_lost(&snapshot);
    assert_eq!(counts(&snapshot), counted);
    assert_eq!(counted.get("Version"), Some(&(STREAMS + 2 * CONNECTIONS)));
    assert!(snapshot.grpc.open.is_empty(), "{:?}", snapshot.grpc.open);
}

/// A client that gives up all its calls while the runtime does not run: each stream ends once, by its reset. The client keeps the
/// last resets back until the runtime runs, and the runtime may answer before them.
#[test]
fn streams_that_are_reset_end_once() {
    let (snapshot, _) = observed(|containerd, watching| {
        let client = containerd.client_of(containerd.client().api()).unwrap();
        version(&client, 1);
        let stopped = fault::stop_process(containerd.pid()).unwrap();
        let work = |client: &Client| client.list_containers(LIMIT).map(drop);
        let start = |_| Call::start(&client, "ListContainers", work).unwrap();
        let mut calls: Vec<Call> = (0..RESETS).map(start).collect();
        process::wait_for("all requests", LIMIT, || {
            Ok((watching.seen().open_requests.open.len() == RESETS).then_some(()))
        })
        .unwrap();
        for call in &mut calls {
            call.cancel();
            call.wait(LIMIT).unwrap().unwrap_err();
        }
        drop(stopped);
        version(&client, 1);
    });
    assert_nothing_is_lost(&snapshot);
    let row = snapshot.grpc.rows.iter().find(|row| row.method == "ListContainers").unwrap();
    assert_eq!((row.latency.count() + row.unanswered, row.open), (RESETS as u64, 0));
    assert!(row.unanswered > RESETS as u64 / 2, "{row:?}");
}

/// A client that says itself what it writes at once.
pub(super) struct Rough {
    connection: UnixStream,
    /// Most bytes of one write.
    piece: usize,
}

impl Rough {
    /// Connects, and writes so many bytes at a time from the first on.
    pub(super) fn connect(containerd: &Containerd, piece: usize) -> Self {
        let connection = UnixStream::connect(containerd.socket()).unwrap();
        connection.set_read_timeout(Some(LIMIT)).unwrap();
        let mut client = Self { connection, piece };
        client.write(PREFACE);
        client
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(self.piece) {
            self.connection.write_all(piece).unwrap();
        }
    }

    /// Bytes that came and were not read.
    pub(super) fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.connection).unwrap()
    }

    /// Type, flags, stream and payload of the next frame.
    fn read(&mut self) -> (u8, u8, u32, Vec<u8>) {
        let mut head = [0; 9];
        self.connection.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.connection.read_exact(&mut payload).unwrap();
        (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload)
    }

    /// Reads up to the trailers of so many answers, and answers what has to be; how many bytes of messages came.
    fn read_answers(&mut self, mut left: u32) -> u64 {
        let mut bytes = 0;
        while left > 0 {
            match self.read() {
                (SETTINGS, 0, ..) => self.write(&frame(SETTINGS, 1, 0, &[])),
                (PING, 0, _, payload) => self.write(&frame(PING, 1, 0, &payload)),
                (HEADERS, flags, ..) if flags & 1 != 0 => left -= 1,
                (DATA, _, _, payload) => bytes += payload.len() as u64,
                _ => {}
            }
        }
        bytes
    }
}

/// A call of `Version`: two frames.
fn version_request(stream: u32, package: &str) -> Vec<u8> {
    request(stream, package, "Version")
}

/// A call with an empty message: two frames.
pub(super) fn request(stream: u32, package: &str, method: &str) -> Vec<u8> {
    let path = format!("/{package}.RuntimeService/{method}");
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path.as_bytes());
    block.extend(b"\x01\x09localhost\x0f\x10\x10application/grpc\0\x02te\x08trailers");
    [frame(HEADERS, 4, stream, &block), frame(DATA, 1, stream, &[0; 5])].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// A preface and frames whose bytes come one by one.
#[test]
fn requests_of_one_byte_a_write_are_exact() {
    let (snapshot, counted) = observed(|containerd, _| {
        let mut client = Rough::connect(containerd, 1);
        let package = format!("runtime.{}", containerd.client().api());
        for nth in 0..SLOW {
            client.write(&version_request(u32::try_from(2 * nth + 1).unwrap(), &package));
            client.read_answers(1);
        }
    });
    assert_nothing_is_lost(&snapshot);
    assert_eq!((counts(&snapshot), counted.get("Version")), (counted.clone(), Some(&SLOW)));
}

/// Two thousand frames in one write.
#[test]
fn requests_of_one_write_are_exact() {
    let (snapshot, counted) = observed(|containerd, _| {
        let mut client = Rough::connect(containerd, usize::MAX);
        let package = format!("runtime.{}", containerd.client().api());
        let all: Vec<u8> = (0..AT_A_TIME).flat_map(|nth| version_request(2 * nth + 1, &package)).collect();
        client.write(&all);
        client.read_answers(AT_A_TIME);
    });
    assert_nothing_is_lost(&snapshot);
    assert_eq!((counts(&snapshot), counted.get("Version")), (counted.clone(), Some(&u64::from(AT_A_TIME))));
}

/// A list of more than 64 MiB, in thousands of frames and of writes, twice: exact to the byte, and nothing is lost.
#[test]
fn an_answer_of_64_mib_is_exact() {
    host::require_root().unwrap();
    let knobs = Knobs { pods: 0, large_messages: true, ..Knobs::default() };
    let containerd = Containerd::start(&knobs).unwrap();
    let pod = containerd.run_pod("p1").unwrap();
    for number in 0..HEAVY {
        let extra = Extra {
            name: format!("heavy{number}"),
            image: image::REFERENCE.to_owned(),
            command: vec!["/pause".to_owned()],
            ballast: BALLAST,
            log_directory: containerd.scratch().path().to_owned(),
            ..Extra::default()
        };
        containerd.client().create_extra(&pod.sandbox, &extra, LIMIT).unwrap();
    }
    let mut read = 0;
    let (snapshot, counted, requests) = observed_on(&containerd, |containerd, _| {
        let mut client = Rough::connect(containerd, usize::MAX);
        client.write(&[frame(SETTINGS, 0, 0, &WINDOW), frame(WINDOW_UPDATE, 0, 0, &WIDER)].concat());
        let package = format!("runtime.{}", containerd.client().api());
        for stream in [1, 3] {
            client.write(&request(stream, &package, "ListContainers"));
            read = client.read_answers(1);
        }
    });
    assert_nothing_is_lost(&snapshot);
    assert_eq!((counts(&snapshot), counted.get("ListContainers")), (counted.clone(), Some(&2)));
    assert!(read > 64 << 20, "{read} bytes");
    let lists = requests.iter().filter(|request| request.message.method == "ListContainers");
    assert_eq!(lists.map(|list| (list.bytes, list.answer_bytes)).collect::<Vec<_>>(), [(5, read); 2]);
}

/// Bytes of a connection that make less and less sense.
fn nonsense(draw: &mut Draw) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    for _ in 0..draw.below(40) {
        let payload: Vec<u8> = (0..draw.below(300)).map(|_| any(draw)).collect();
        let mut next = frame(any(draw) % 12, any(draw), u32::from(any(draw)), &payload);
        if draw.below(4) == 0 {
            next.truncate(draw.below(next.len()));
        }
        bytes.extend(next);
    }
    bytes
}

fn any(draw: &mut Draw) -> u8 {
    u8::try_from(draw.below(256)).expect("below 256")
}

/// Connections of nonsense beside one that makes sense: its requests are exact, and nothing else was answered.
#[test]
fn nonsense_changes_no_count() {
    let mut draw = Draw::from_environment();
    eprintln!("{draw}");
    let (snapshot, counted) = observed(|containerd, _| {
        let client = containerd.client_of(containerd.client().api()).unwrap();
        for nth in 0..NONSENSE {
            let mut rough = UnixStream::connect(containerd.socket()).unwrap();
            // containerd may have hung up before the end.
            for piece in nonsense(&mut draw).chunks(1 + draw.below(500)) {
                if rough.write_all(piece).is_err() {
                    break;
                }
            }
            if nth % 10 == 0 {
                ask(&client).unwrap();
            }
        }
    });
    assert!(snapshot.refused.iter().all(|refused| refused.source != "wire"), "{:?}", snapshot.refused);
    assert_eq!(counts(&snapshot), counted);
    let losses: Vec<_> = snapshot.real_losses().map(|loss| (loss.reason.clone(), loss.count)).collect();
    eprintln!("counted: {losses:?}");
}
