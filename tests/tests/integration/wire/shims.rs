//! What a real containerd of each generation and one of its shims said to each other: each request once, by its names, with one
//! answer, as containerd's own book has them; wherever the streams are cut, and wherever one joins.

use std::collections::BTreeMap;

use plegtrace::wire::Side;
use plegtrace_common::wire::ttrpc::{FrameHeader, Position, kind};
use plegtrace_tests::draw::Draw;
use plegtrace_tests::wire::{
    Capture, Chunk, Protocol,
    capture::Tally,
    protobuf::{Value, fields},
    record::SHIMS,
};

use crate::wire_kit::{
    pieces::{cut, pieces},
    ttrpc::{Read, read},
};

/// Times that each stream is cut in other places.
const CUTS: usize = 20;
/// The field of a request that says how long it may take, in nanoseconds.
const TIMEOUT: u64 = 4;

/// Both directions of the only connection.
fn both(chunks: &[Chunk]) -> [(Read, Position); 2] {
    [Side::Client, Side::Server].map(|side| read(&pieces(chunks, 0, side)))
}

/// The message of each frame of a direction, as protobuf has it.
fn messages(chunks: &[Chunk], side: Side, frames: &[FrameHeader]) -> Vec<Vec<u8>> {
    let stream = pieces(chunks, 0, side).concat();
    let mut rest = &stream[..];
    let message = |frame: &FrameHeader| {
        let (whole, behind) = rest.split_at(10 + frame.len as usize);
        rest = behind;
        whole[10..].to_vec()
    };
    frames.iter().map(message).collect()
}

/// How long a request may take, in words: some of the whole seconds have gone when it is sent.
fn timeout(request: &[u8]) -> String {
    let nanoseconds = fields(request).into_iter().find_map(|field| match field {
        (TIMEOUT, Value::Number(nanoseconds)) if nanoseconds > 0 => Some(nanoseconds),
        _ => None,
    });
    nanoseconds
        .map_or_else(String::new, |nanoseconds| format!(" within {}s", nanoseconds.div_ceil(1_000_000_000)))
}

/// The code of an answer's status; without one all is well.
fn code(answer: &[u8]) -> u32 {
    let Some((1, Value::Bytes(status))) = fields(answer).into_iter().find(|(number, _)| *number == 1) else {
        return 0;
    };
    match fields(&answer[status]).first() {
        Some((1, Value::Number(code))) => u32::try_from(*code).unwrap(),
        _ => 0,
    }
}

/// Each request has its names, and its one answer.
#[test]
fn requests_of_each_generation() {
    for pair in SHIMS {
        let capture = Capture::load(pair.name).unwrap();
        let [(asked, end), (answered, other_end)] = both(&capture.chunks);
        assert_eq!((capture.connections(), asked.lost, answered.lost), (1, 0, 0), "{}", pair.name);
        assert!(end.is_boundary() && other_end.is_boundary(), "{}", pair.name);
        assert!(asked.frames.iter().all(|frame| frame.kind == kind::REQUEST), "{:?}", asked.frames);
        assert!(answered.frames.iter().all(|frame| frame.kind == kind::ANSWER), "{:?}", answered.frames);
        assert_eq!(asked.named.len(), asked.frames.len(), "{}: all have names", pair.name);
        let mut codes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let answers = messages(&capture.chunks, Side::Server, &answered.frames);
        for (frame, answer) in answered.frames.iter().zip(answers) {
            codes.entry(frame.stream).or_default().push(code(&answer));
        }
        let mut tally = Tally::new();
        let requests = messages(&capture.chunks, Side::Client, &asked.frames);
        for ((frame, (service, method)), request) in asked.frames.iter().zip(&asked.named).zip(requests) {
            let own = codes.remove(&frame.stream).unwrap_or_default();
            let [code] = own[..] else { panic!("{} {method}: {own:?}", pair.name) };
            *tally.entry((format!("{service}/{method}{}", timeout(&request)), code)).or_default() += 1;
        }
        assert!(codes.is_empty(), "{}: nobody has asked for {codes:?}", pair.name);
        assert_eq!(tally, capture.tally, "{}", pair.name);
    }
}

/// The same frames wherever the streams are cut, and from any chunk on those that come then.
#[test]
fn cut_anywhere_and_joined_at_any_chunk() {
    let mut draw = Draw::from_environment();
    for pair in SHIMS {
        let mut capture = Capture::load(pair.name).unwrap();
        capture.fill_messages(Protocol::Ttrpc);
        let whole = both(&capture.chunks).map(|(read, _)| read);
        for (side, whole) in [Side::Client, Side::Server].into_iter().zip(&whole) {
            let stream = pieces(&capture.chunks, 0, side).concat();
            for _ in 0..CUTS {
                let (read, position) = read(&cut(&stream, &mut draw));
                assert_eq!((&read.frames, read.lost), (&whole.frames, 0), "{} {draw}", pair.name);
                assert!(position.is_boundary());
            }
        }
        for from in 0..capture.chunks.len() {
            for ((read, _), whole) in both(&capture.chunks[from..]).iter().zip(&whole) {
                assert_eq!(read.lost, 0, "{} from {from}", pair.name);
                assert!(whole.frames.ends_with(&read.frames), "{} from {from}", pair.name);
                assert!(whole.named.ends_with(&read.named), "{} from {from}", pair.name);
            }
        }
        assert!(whole[0].frames.len() > 100, "{}: {}", pair.name, whole[0].frames.len());
    }
}
