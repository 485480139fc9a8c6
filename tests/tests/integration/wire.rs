//! The parsers of the wire read a stream alike however it is cut into writes, and survive any bytes; the report shows
//! what they found.

mod captures;
mod dbus;
mod docker;
mod dockershim;
mod properties;
mod runc;
mod shims;
mod tables;

use plegtrace::{
    correlate::{Correlator, Limits, Snapshot},
    decode::{Event, Message, MessageId, MonoNs},
    diagnose::diagnose,
    input::{Fact, MessagesFact, OpenMessageFact},
    render::{
        json,
        text::{self, Section, Shown, TextOptions},
    },
};
use plegtrace_common::wire::ttrpc::{FrameHeader, Position};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::wire_kit::ttrpc::{read, run};

const S: u64 = 1_000_000_000;

/// A frame with a message of `len` bytes; requests begin with names.
fn frame(stream: u32, kind: u8, len: usize) -> (FrameHeader, Vec<u8>) {
    let header = FrameHeader { len: u32::try_from(len).unwrap(), stream: stream | 1, kind, flags: kind & 1 };
    let mut bytes = [header.len.to_be_bytes(), header.stream.to_be_bytes()].concat();
    bytes.extend([header.kind, header.flags]);
    let names = b"\n\x17containerd.task.v2.Task\x12\x05State\x1aB\n@";
    bytes.extend(names.iter().chain(std::iter::repeat(&0x5a)).take(len));
    (header, bytes)
}

/// Cuts a stream at these places.
fn cut<'a>(stream: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(stream.len() + 1)).collect();
    places.sort_unstable();
    let mut writes = Vec::new();
    let mut from = 0;
    for place in places.into_iter().chain([stream.len()]) {
        writes.push(&stream[from..place]);
        from = place;
    }
    writes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any cut of a stream into writes gives the same frames, and ends at the same place.
    #[test]
    fn a_ttrpc_stream_reads_alike_however_it_is_cut(
        frames in prop::collection::vec((any::<u32>(), 1u8..=3, 0usize..200), 0..12),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        end in 0usize..60,
    ) {
        let frames: Vec<_> = frames.into_iter().map(|(stream, kind, len)| frame(stream, kind, len)).collect();
        let mut stream: Vec<u8> = frames.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        stream.truncate(stream.len().saturating_sub(end));
        let (whole, at_end) = read(&[&stream]);
        prop_assert_eq!(whole.lost, 0);
        prop_assert!(frames.iter().map(|(header, _)| *header).collect::<Vec<_>>().starts_with(&whole.frames));
        let (parts, cut_end) = read(&cut(&stream, &places));
        prop_assert_eq!(&parts.frames, &whole.frames);
        let state = |p: Position| (p.left, p.have, p.header[..p.have as usize].to_vec());
        prop_assert_eq!((parts.lost, state(cut_end)), (0, state(at_end)));
    }

    /// Byte by byte, too.
    #[test]
    fn a_ttrpc_stream_byte_by_byte(lens in prop::collection::vec(0usize..80, 0..6)) {
        let frames: Vec<_> = (1..).zip(lens).map(|(stream, len)| frame(2 * stream, 2, len)).collect();
        let stream: Vec<u8> = frames.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let (parts, end) = read(&stream.chunks(1).collect::<Vec<_>>());
        prop_assert_eq!(parts.frames, frames.iter().map(|(header, _)| *header).collect::<Vec<_>>());
        prop_assert!(end.is_boundary());
    }

    /// Whole requests are named.
    #[test]
    fn ttrpc_requests_have_names(streams in prop::collection::vec(any::<u32>(), 1..6)) {
        let writes: Vec<Vec<u8>> = streams.iter().map(|stream| frame(*stream, 1, 99).1).collect();
        let (read, _) = read(&writes.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let name = ("containerd.task.v2.Task".to_owned(), "State".to_owned());
        prop_assert_eq!(read.named, vec![name; writes.len()]);
    }

    /// Hostile bytes never panic, and never give more frames than fit.
    #[test]
    fn hostile_ttrpc_bytes(input in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(10), any::<u8>()], 0..600)) {
        let _read = run(&input);
    }
}

fn open(stream: u32, start_ns: u64, method: &str) -> OpenMessageFact {
    OpenMessageFact {
        socket: 7,
        stream,
        start_ns,
        asker: 20,
        answerer: 30,
        service: "containerd.task.v2.Task".to_owned(),
        method: method.to_owned(),
        ..OpenMessageFact::default()
    }
}

/// A node whose shim answered one request and not another, a second wait that lasts by design.
fn node() -> Snapshot {
    let mut correlator = Correlator::new(Limits::default());
    correlator.push(Event::Message(Message {
        id: MessageId { socket: 7, stream: 1, start: MonoNs(S) },
        asker: 20,
        answerer: 30,
        end: MonoNs(S + 3_000_000),
        service: "containerd.task.v2.Task".to_owned(),
        method: "State".to_owned(),
    }));
    let open = vec![open(3, S, "Wait"), open(5, 2 * S, "State"), open(7, 9 * S, "\u{1b}[31mred")];
    let reading = MessagesFact { at_ns: 10 * S, open, complete: true };
    correlator.push(Event::Fact { at: MonoNs(10 * S), fact: Box::new(Fact::Messages(reading)) });
    correlator.snapshot(MonoNs(12 * S))
}

/// The text names the method, its age and both processes; what lasts by design is not shown as missing an answer.
#[test]
fn a_request_without_an_answer_in_the_text() {
    let snapshot = node();
    let text = |verbose| {
        let mut out = Vec::new();
        let options = TextOptions { verbose, show: Shown::from_iter(Section::ALL), ..TextOptions::default() };
        text::report(&snapshot, &diagnose(&snapshot), &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let short = text(false);
    let row = |method: &str, text: &str| -> Vec<String> {
        let line = text.lines().rfind(|line| line.contains(method)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row("Task/State", &short), ["10.0", "s", "Task/State", "20", "30"], "{short}");
    assert!(!short.contains("lasts by design") && !short.contains('\u{1b}'), "{short}");
    assert!(text(true).contains("lasts by design"));
}

/// The document has both, and nothing of it when the source is off.
#[test]
fn requests_between_runtime_and_shims_in_the_document() {
    let document = |snapshot: &Snapshot| -> Value {
        let mut out = Vec::new();
        json::report(snapshot, &diagnose(snapshot), &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    };
    let messages = &document(&node())["messages"];
    let state = messages["methods"].as_array().unwrap().iter().find(|row| row["method"] == "State").unwrap();
    assert_eq!(
        (&state["count"], &state["open"], &state["max_ns"]),
        (&json!(1), &json!(1), &json!(3_000_000))
    );
    let open = &messages["open"][1];
    assert_eq!((&open["method"], &open["age_ns"]), (&json!("State"), &json!(10 * S)));
    assert_eq!(
        (&open["pid"], &open["answerer_pid"], &open["long_lived"]),
        (&json!(20), &json!(30), &json!(false))
    );
    assert_eq!(messages["open"][0]["long_lived"], true);
    let off = document(&Correlator::new(Limits::default()).snapshot(MonoNs(S)));
    assert!(off.get("messages").is_none());
}
