//! Captures of real clients and runtimes: all requests by name, and no wrong name wherever one joins.

use std::collections::{BTreeMap, HashMap};

use plegtrace::wire::{Connection, End, Method, Request, Side, Taught};
use plegtrace_tests::wire::{
    Capture, Chunk, Protocol,
    capture::Tally,
    record::{CANCELLED, CLIENTS, UNIMPLEMENTED},
};

/// A request's connection and stream.
type Key = (usize, u32);

/// Most chunks of a capture with places to join.
const JOINED: usize = 300;
/// Of so many of them one is a place to join at each of its bytes.
const DENSE: usize = 8;
/// Chunks that are replayed after joining.
const REPLAYED: usize = 120;
/// Streams per method that the teacher knows.
const LESSONS: usize = 3;

fn requests(connection: &mut Connection) -> Vec<Request> {
    let mut all = connection.take_finished();
    all.extend(connection.open().cloned());
    all
}

/// Every request of a capture, read from the beginning.
fn whole(capture: &Capture) -> BTreeMap<Key, Request> {
    let mut all = BTreeMap::new();
    for number in 0..capture.connections() {
        let mut connection = Connection::new();
        for (at, chunk) in capture.chunks.iter().enumerate().filter(|(_, chunk)| chunk.connection == number) {
            connection.push(chunk.side, at as u64, &chunk.bytes);
        }
        let counts = connection.counts();
        assert_eq!((counts.losses, counts.skipped, counts.broken_blocks), (0, 0, 0));
        assert_eq!((counts.strange_streams, counts.unasked, counts.refused), (0, 0, 0));
        all.extend(requests(&mut connection).into_iter().map(|request| ((number, request.stream), request)));
    }
    all
}

fn tally<'r>(requests: impl Iterator<Item = &'r Request>) -> Tally {
    let mut tally = Tally::new();
    for request in requests {
        let code = match request.end {
            Some((_, End::Status(code))) => code.expect("the table is known"),
            Some((_, End::Reset { .. })) | None => CANCELLED,
            end => panic!("{end:?}"),
        };
        *tally.entry((request.method.to_string(), code)).or_default() += 1;
    }
    tally
}

/// Every request has its name and its status: as many as the other book says.
#[test]
fn from_the_beginning() {
    for client in CLIENTS {
        let capture = Capture::load(client.name).unwrap();
        let all = whole(&capture);
        assert_eq!(tally(all.values()), capture.tally, "{}", client.name);
        for request in all.values() {
            let ok = matches!(request.end, Some((_, End::Status(Some(0)))));
            // What is not served is refused before the message has come.
            let unserved = matches!(request.end, Some((_, End::Status(Some(UNIMPLEMENTED)))));
            let sent = request.sent.count == 1 || unserved && request.sent.count == 0;
            assert!(sent && !request.sent.is_broken(), "{request:?}");
            assert!(!ok || request.received.count == 1 && !request.received.is_inside(), "{request:?}");
            let is_list = request.method.to_string().contains("/ListPodSandbox");
            assert!(!is_list || request.timeout_ns.is_some(), "{request:?}");
        }
    }
}

/// Replays from byte `from` of chunk `at` on.
fn join(chunks: &[Chunk], at: usize, from: usize, with: &mut HashMap<usize, Connection>) {
    for (number, chunk) in chunks.iter().enumerate().skip(at).take(REPLAYED) {
        let bytes = &chunk.bytes[if number == at { from } else { 0 }..];
        with.entry(chunk.connection).or_default().push(chunk.side, number as u64, bytes);
    }
}

/// Every name given after joining is right; gives how many there were.
fn judge(connections: &mut HashMap<usize, Connection>, truth: &BTreeMap<Key, Request>, place: &str) -> usize {
    let mut named = 0;
    for (number, connection) in connections {
        for request in requests(connection) {
            let right = truth.get(&(*number, request.stream));
            let right = right.unwrap_or_else(|| panic!("no such request: {place} {request:?}"));
            match &request.method {
                Method::Known(path) => {
                    assert_eq!(**path, *right.method.to_string(), "{place}");
                    named += 1;
                }
                Method::Unknown { .. } => {}
                Method::Unreadable => panic!("{place} {request:?}"),
            }
            if let (Some((_, End::Status(Some(code)))), Some((_, right))) = (request.end, right.end) {
                assert_eq!(End::Status(Some(code)), right, "{place}");
            }
        }
    }
    named
}

/// Joined at any chunk, and at any byte of many, with messages that look like anything: no name and no status is wrong.
#[test]
fn joined_anywhere() {
    for client in CLIENTS {
        let mut capture = Capture::load(client.name).unwrap();
        let truth = whole(&capture);
        capture.fill_messages(Protocol::Grpc);
        let (mut places, mut named) = (0, 0);
        let chunks = capture.chunks.iter().enumerate().step_by(capture.chunks.len() / JOINED + 1);
        for (nth, (at, chunk)) in chunks.enumerate() {
            // Responses are long and have no names: some of their bytes are enough.
            let step = match chunk.side {
                _ if nth % DENSE > 0 => usize::MAX,
                Side::Client => 1,
                Side::Server => 7,
            };
            for from in (0..chunk.bytes.len()).step_by(step) {
                let mut connections = HashMap::new();
                join(&capture.chunks, at, from, &mut connections);
                places += 1;
                named += judge(&mut connections, &truth, &format!("{} {at}+{from}", client.name));
            }
        }
        assert!(places > 300 && named > 0, "{}: {places} {named}", client.name);
    }
}

/// A teacher who knows a few streams of each method gives nearly all others their names, and no wrong one.
#[test]
fn with_a_teacher() {
    let mut all = 0;
    for client in CLIENTS {
        let capture = Capture::load(client.name).unwrap();
        let truth = whole(&capture);
        for part in 1..4 {
            let at = capture.chunks.len() * part / 4;
            let (after, named, mut connections) = taught(&capture, at, &truth);
            judge(&mut connections, &truth, &format!("{} {at}", client.name));
            assert!(named * 100 >= after * 99, "{} from {at}: {named} of {after}", client.name);
            all += after;
        }
    }
    assert!(all > 200, "{all}");
}

/// Replays from chunk `at` on; the first streams of each method are taught a chunk after they began. Gives how many
/// requests came after the lessons about their method, how many of them have a name, and the connections.
fn taught(
    capture: &Capture,
    at: usize,
    truth: &BTreeMap<Key, Request>,
) -> (usize, usize, HashMap<usize, Connection>) {
    let mut connections: HashMap<usize, Connection> = HashMap::new();
    let mut lessons: HashMap<(usize, String), usize> = HashMap::new();
    let (mut after, mut named) = (0, 0);
    for (number, chunk) in capture.chunks.iter().enumerate().skip(at) {
        let connection = connections.entry(chunk.connection).or_default();
        connection.push(chunk.side, number as u64, &chunk.bytes);
        let new: Vec<Request> =
            connection.open().filter(|request| request.start_ns == number as u64).cloned().collect();
        for request in new {
            let method = truth[&(chunk.connection, request.stream)].method.to_string();
            let count = lessons.entry((chunk.connection, method.clone())).or_default();
            if *count < LESSONS {
                *count += 1;
                assert_eq!(connection.teach(request.stream, &method), Taught::Fits);
            } else {
                after += 1;
                named += usize::from(matches!(request.method, Method::Known(_)));
            }
        }
    }
    (after, named, connections)
}
