//! What holds for any bytes: no panic, bounds, and nothing that depends on where a push ends.

use plegtrace::wire::{Connection, Connections, End, Method, Side};
use plegtrace_common::wire::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PREFACE, RST_STREAM, SETTINGS,
    Walker,
};
use proptest::prelude::*;

use crate::wire_kit::torture;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `:method: POST`, `:path` as a literal, and trailers with `grpc-status: 0`.
fn path(method: &str) -> Vec<u8> {
    [&[0x83, 0x44, u8::try_from(method.len()).unwrap()], method.as_bytes()].concat()
}

const TRAILERS: &[u8] = b"\x88\x40\x0bgrpc-status\x010";

fn opened(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &path("/a.B/C"))
}

/// Frames of a server that keeps to the protocol.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..60);
    let one = (0u8..8, 1u32..9, bytes()).prop_map(|(what, stream, bytes)| match what {
        0 | 1 => frame(DATA, 0, stream, &bytes),
        2 => frame(DATA, PADDED | END_STREAM, stream, &[&[3], &bytes[..], &[0; 3]].concat()),
        3 => frame(HEADERS, END_HEADERS, stream, &bytes),
        4 => [frame(HEADERS, END_STREAM, stream, &bytes), frame(CONTINUATION, END_HEADERS, stream, &bytes)]
            .concat(),
        5 => frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
        6 => frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 16, 0]),
        _ => frame(GOAWAY, 0, 0, &[&[0, 0, 0, 9, 0, 0, 0, 0], &bytes[..]].concat()),
    });
    proptest::collection::vec(one, 1..30).prop_map(|frames| frames.concat())
}

proptest! {
    /// The same frames, whatever the pushes.
    #[test]
    fn splits_do_not_matter(bytes in frames(), mut cuts in proptest::collection::vec(0usize..2000, 0..20)) {
        cuts.iter_mut().for_each(|cut| *cut %= bytes.len() + 1);
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pushes: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let (mut whole, mut split) = (Walker::server(), Walker::server());
        prop_assert_eq!(torture::told(&mut whole, &[&bytes]), torture::told(&mut split, &pushes));
        prop_assert!(whole.in_step() && whole.losses == 0);
        prop_assert_eq!(whole, split);
    }

    /// Any bytes on a connection, and damaged frames.
    #[test]
    fn hostile_bytes(input in proptest::collection::vec(any::<u8>(), 0..2000), frames in frames(), at in 0usize..2000) {
        torture::connection(&input);
        torture::blocks(&input);
        let mut bad = frames;
        let at = at % bad.len();
        bad[at] = bad[at].wrapping_add(1);
        let mut push = vec![0, 6, u8::try_from(bad.len() >> 8).unwrap(), u8::try_from(bad.len() & 0xff).unwrap()];
        push.extend(bad);
        torture::connection(&push);
    }
}

/// Ten thousand streams at once, each answered, reset or left open: exact, and bounded when there are more.
#[test]
fn many_streams() {
    let mut connection = Connection::new();
    connection.push(Side::Client, 0, &PREFACE);
    let streams: Vec<u32> = (0..10_000).map(|at| 2 * at + 1).collect();
    let all: Vec<u8> = streams.iter().flat_map(|stream| opened(*stream)).collect();
    connection.push(Side::Client, 1, &all);
    assert_eq!(connection.open().count(), 10_000);
    let answers: Vec<u8> = streams
        .iter()
        .filter(|stream| *stream % 4 == 1)
        .flat_map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, *stream, TRAILERS))
        .collect();
    connection.push(Side::Server, 2, &answers);
    let resets: Vec<u8> = streams
        .iter()
        .filter(|stream| *stream % 8 == 3)
        .flat_map(|at| frame(RST_STREAM, 0, *at, &[0, 0, 0, 8]))
        .collect();
    connection.push(Side::Client, 3, &resets);
    let finished = connection.take_finished();
    let count =
        |end: End| finished.iter().filter(|request| request.end.is_some_and(|(_, had)| had == end)).count();
    assert_eq!(count(End::Status(Some(0))), 5_000);
    assert_eq!(count(End::Reset { by: Side::Client, code: 8 }), 2_500);
    assert_eq!(connection.open().count(), 2_500);
    let more: Vec<u8> = (10_000..40_000u32).flat_map(|at| opened(2 * at + 1)).collect();
    connection.push(Side::Client, 4, &more);
    let counts = connection.counts();
    assert_eq!(connection.open().count(), plegtrace::wire::connection::MAX_OPEN);
    assert_eq!(counts.requests, 40_000);
    assert_eq!(counts.refused, 32_500 - plegtrace::wire::connection::MAX_OPEN as u64);
}

/// A response of 64 MiB in pieces of any size is one message.
#[test]
fn a_long_response() {
    let mut connection = Connection::new();
    connection.push(Side::Client, 0, &[&PREFACE[..], &opened(1)].concat());
    let length = 64u32 << 20;
    let message = [&[0][..], &length.to_be_bytes(), &vec![1; length as usize]].concat();
    let mut wire = frame(HEADERS, END_HEADERS, 1, &[0x88]);
    message.chunks(16_384).for_each(|part| wire.extend(frame(DATA, 0, 1, part)));
    wire.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS));
    wire.chunks(33_333).for_each(|push| connection.push(Side::Server, 1, push));
    let done = connection.take_finished();
    assert_eq!((done[0].received.count, done[0].received.longest), (1, length));
    assert_eq!(done[0].end, Some((1, End::Status(Some(0)))));
    assert_eq!(done[0].method, Method::Known("/a.B/C".into()));
}

/// Bytes that were missed make open requests doubtful; the next ones are seen, but nobody's name is believed that came
/// from the old table.
#[test]
fn missed_bytes() {
    let mut connection = Connection::new();
    connection.push(Side::Client, 0, &[&PREFACE[..], &opened(1)].concat());
    connection.push(Side::Client, 1, &frame(HEADERS, END_HEADERS | END_STREAM, 3, &[0x83, 0xbe]));
    connection.miss(Side::Client);
    connection.push(Side::Client, 2, &frame(HEADERS, END_HEADERS | END_STREAM, 9, &[0x83, 0xbe]));
    let open: Vec<(u32, String, bool)> =
        connection.open().map(|one| (one.stream, one.method.to_string(), one.doubtful)).collect();
    let name = "/a.B/C".to_owned();
    assert_eq!(open, [(1, name.clone(), true), (3, name, true), (9, "unknown#1.2".to_owned(), false)]);
    assert_eq!(connection.counts().losses, 1);
}

/// GOAWAY ends what the server will not serve, and nothing else.
#[test]
fn goaway_refuses_later_streams() {
    let mut connection = Connection::new();
    connection.push(Side::Client, 0, &[&PREFACE[..], &opened(1), &opened(3), &opened(5)].concat());
    connection.push(Side::Server, 1, &frame(GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 2]));
    let refused = connection.take_finished();
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].stream, refused[0].end), (5, Some((1, End::Refused { code: 2 }))));
    assert_eq!(connection.open().count(), 2);
}

/// A teacher who contradicts himself takes back all he said.
#[test]
fn a_teacher_who_errs() {
    let ask = |stream: u32| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x83, 0xbe]);
    let mut connection = Connection::late();
    connection.push(Side::Client, 0, &[ask(11), ask(13)].concat());
    assert_eq!(connection.teach(11, "/a.B/C"), plegtrace::wire::Taught::Fits);
    let names = |connection: &Connection| -> Vec<String> {
        connection.open().map(|request| request.method.to_string()).collect()
    };
    assert_eq!(names(&connection), ["/a.B/C", "/a.B/C"]);
    assert_eq!(connection.teach(13, "/a.B/D"), plegtrace::wire::Taught::Contradicts);
    connection.push(Side::Client, 1, &ask(15));
    assert_eq!(names(&connection)[2], "unknown#1.2");
    assert_eq!(connection.counts().contradictions, 1);
}

/// Connections and what they hold are bounded together.
#[test]
fn many_connections() {
    let mut all = Connections::default();
    for key in 0..1000 {
        all.push(key, Side::Client, 0, &[&PREFACE[..], &opened(1)].concat());
    }
    let most = plegtrace::wire::connections::MAX_CONNECTIONS;
    assert_eq!((0..1000).filter(|key| all.get(*key).is_some()).count(), most);
    assert_eq!(all.refused_connections, 1000 - most as u64);
    let many: Vec<u8> = (1..16_000u32).flat_map(|at| opened(2 * at + 1)).collect();
    (0..8).for_each(|key| all.push(key, Side::Client, 1, &many));
    let held: usize = (0..1000).filter_map(|key| all.get(key)).map(Connection::held).sum();
    assert!(held < plegtrace::wire::connections::MAX_HELD + 16_000, "{held}");
    assert!(all.refused_pushes > 0);
    assert_eq!(all.close(0).unwrap().open().count(), 16_000);
    all.push(999, Side::Client, 2, b"");
    assert!(all.get(999).is_some(), "there is room again");
}
