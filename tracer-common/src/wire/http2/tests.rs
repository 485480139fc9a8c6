//! Frames by hand: what each kind becomes, in one push and byte by byte, and what is no frame.

extern crate std;

use std::vec::Vec;

use super::*;
use crate::wire::Bytes;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Kind, stream, flags, marks, value, bytes; fragments of one frame put together.
type Told = (u8, u32, u8, u8, u32, Vec<u8>);

fn walk(walker: &mut Walker, pushes: &[&[u8]]) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::new();
    for push in pushes {
        let done = walker.walk(*push, &mut 0, 1 << 20, |event| {
            let Event { stream, kind, flags, marks, at, len, value } = event;
            let part = &push[at as usize..][..len as usize];
            let of_frame = matches!(kind, DATA | HEADERS | CONTINUATION);
            match told.last_mut() {
                Some(last) if of_frame && marks & FIRST == 0 => {
                    last.3 |= marks;
                    last.5.extend(part);
                }
                _ => told.push((kind, stream, flags, marks, value, part.to_vec())),
            }
        });
        assert!(done);
    }
    told
}

fn all_kinds() -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 1, 0, 0, 1, 0, 0, 0x20, 0]));
    bytes.extend(frame(SETTINGS, 1, 0, &[]));
    bytes.extend(frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
    bytes.extend(frame(HEADERS, HAS_PRIORITY | PADDED, 1, &[2, 0, 0, 0, 0, 9, b'a', b'b', 0, 0]));
    bytes.extend(frame(CONTINUATION, 0, 1, b""));
    bytes.extend(frame(CONTINUATION, END_HEADERS, 1, b"c"));
    bytes.extend(frame(PRIORITY, 0, 3, &[0; 5]));
    bytes.extend(frame(DATA, PADDED, 1, &[3, b'x', b'y', 0, 0, 0]));
    bytes.extend(frame(PING, 0, 0, &[7; 8]));
    bytes.extend(frame(DATA, END_STREAM, 1, b""));
    bytes.extend(frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    bytes.extend(frame(GOAWAY, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 2, b'b', b'y', b'e']));
    bytes
}

fn expected() -> Vec<Told> {
    let both = FIRST | LAST;
    std::vec![
        (SETTINGS, 0, 0, 0, 0x2000, b"".to_vec()),
        (HEADERS, 1, HAS_PRIORITY | PADDED, both, 0, b"ab".to_vec()),
        (CONTINUATION, 1, 0, both, 0, b"".to_vec()),
        (CONTINUATION, 1, END_HEADERS, both, 0, b"c".to_vec()),
        (DATA, 1, PADDED, both, 0, b"xy".to_vec()),
        (DATA, 1, END_STREAM, both, 0, b"".to_vec()),
        (RST_STREAM, 1, 0, 0, 8, b"".to_vec()),
        (GOAWAY, 5, 0, 0, 2, b"".to_vec()),
    ]
}

#[test]
fn every_kind_in_one_push_and_in_two() {
    let bytes = all_kinds();
    for cut in 0..=bytes.len() {
        let mut walker = Walker::client();
        assert_eq!(walk(&mut walker, &[&bytes[..cut], &bytes[cut..]]), expected(), "cut at {cut}");
        assert_eq!((walker.frames, walker.losses), (12, 0));
    }
}

#[test]
fn byte_by_byte() {
    let bytes = all_kinds();
    let pushes: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(walk(&mut Walker::client(), &pushes), expected());
}

#[test]
fn what_is_no_frame_is_out_of_step() {
    let good = frame(PING, 0, 0, &[0; 8]);
    for bad in [
        frame(5, 0, 1, &[0; 4]),
        frame(0x40, 0, 1, b""),
        frame(DATA, 0, 0, b"a"),
        frame(DATA, 0, 1 << 31 | 1, b"a"),
        frame(DATA, PADDED, 1, b""),
        frame(DATA, PADDED, 1, &[1]),
        frame(HEADERS, 0x10, 1, b"a"),
        frame(HEADERS, HAS_PRIORITY, 1, b"abcd"),
        frame(RST_STREAM, 0, 1, &[0; 5]),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(SETTINGS, 1, 0, &[0; 6]),
        frame(PING, 0, 1, &[0; 8]),
        frame(GOAWAY, 0, 0, &[0; 7]),
        frame(WINDOW_UPDATE, 0, 0, &[0; 5]),
        frame(CONTINUATION, END_HEADERS, 1, b"a"),
        [frame(HEADERS, 0, 1, b"a"), good.clone()].concat(),
    ] {
        let mut walker = Walker::server();
        let told = walk(&mut walker, &[&[&good[..], &bad, &good].concat()]);
        assert_eq!(told.last().unwrap().0, LOST, "{bad:?}");
        assert!(!walker.in_step() && walker.losses == 1);
        let told = walk(&mut walker, &[&good]);
        assert_eq!((told[0].0, walker.in_step(), walker.losses), (JOINED, true, 1));
    }
}

#[test]
fn joins_where_a_push_begins_with_frames_up_to_its_end() {
    let ping = frame(PING, 0, 0, &[0; 8]);
    let rst = frame(RST_STREAM, 0, 1, &[0; 4]);
    let four = [&ping[..], &rst, &ping, &rst, b"\x00\x00\x08"].concat();
    let big = frame(DATA, 0, 1, &[0; 100]);
    for (push, joins) in [
        (ping.clone(), true),
        ([&ping[..], &rst].concat(), true),
        (four, true),
        ([&ping[..], &rst, b"no frame"].concat(), false),
        (big[..50].to_vec(), false),
        (b"x".to_vec(), false),
        ([0; 9].to_vec(), false),
        ([&PREFACE[..], &ping].concat(), true),
    ] {
        let mut walker = Walker::late();
        walk(&mut walker, &[&push]);
        assert_eq!(walker.in_step(), joins, "{push:?}");
        assert_eq!(walker.skipped, if joins { 0 } else { push.len() as u64 });
    }
}

#[test]
fn joins_at_a_preface_in_pieces() {
    let bytes = all_kinds();
    let joined = (JOINED, 0, 0, START, 0, Vec::new());
    let wanted: Vec<Told> = [joined].into_iter().chain(expected()).collect();
    for cut in 1..PREFACE.len() {
        let mut walker = Walker::late();
        assert_eq!(walk(&mut walker, &[&bytes[..cut], &bytes[cut..]]), wanted, "cut at {cut}");
        assert_eq!((walker.frames, walker.losses, walker.skipped), (12, 0, 0));
    }
    let one_by_one: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(walk(&mut Walker::late(), &one_by_one), wanted);
}

#[test]
fn what_only_begins_as_a_preface_is_none() {
    let mut walker = Walker::late();
    walk(&mut walker, &[&PREFACE[..3], b"no preface"]);
    assert!(!walker.in_step());
    let ping = frame(PING, 0, 0, &[0; 8]);
    walk(&mut walker, &[b"PRESIDENT", &ping]);
    assert_eq!((walker.in_step(), walker.frames), (true, 1));
}

#[test]
fn a_header_block_that_began_before_us_is_an_orphan() {
    let push = [
        frame(CONTINUATION, 0, 1, b"a"),
        frame(CONTINUATION, END_HEADERS, 1, b"b"),
        frame(HEADERS, 5, 3, b"c"),
    ];
    let told = walk(&mut Walker::late(), &[&push.concat()]);
    let marks: Vec<u8> = told.iter().map(|told| told.3).collect();
    let both = FIRST | LAST;
    assert_eq!(marks, [0, both | ORPHAN, both | ORPHAN, both]);
}

#[test]
fn many_frames_in_steps() {
    let push: Vec<u8> = (0..4096u32).flat_map(|at| frame(DATA, 0, 2 * at + 1, b"12345")).collect();
    let (mut walker, mut at, mut events, mut calls) = (Walker::server(), 0, 0, 0);
    while !walker.walk(&push[..], &mut at, 100, |_| events += 1) {
        calls += 1;
        assert!(calls < 1000);
    }
    assert_eq!((events, walker.frames), (4096, 4096));
}

/// Memory that cannot be read from some byte on.
struct Faulty<'b>(&'b [u8], usize);

impl Bytes for Faulty<'_> {
    fn length(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap()
    }
    fn read<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        self.0[..self.1].read(at)
    }
}

#[test]
fn unreadable_memory_is_a_loss() {
    let bytes = all_kinds();
    for readable in 0..bytes.len() {
        let mut walker = Walker::client();
        let push = Faulty(&bytes, readable);
        assert!(walker.walk(&push, &mut 0, 1000, |_| {}), "{readable}");
        assert!(!walker.in_step() || walker.frames > 0);
    }
}

#[test]
fn messages_of_any_split() {
    let stream = [&[0, 0, 0, 0, 3, 1, 2, 3][..], &[1, 0, 0, 0, 0], &[0, 0, 0, 1, 0], &[9; 256]].concat();
    for cut in 0..=stream.len() {
        let mut messages = crate::wire::grpc::Messages::default();
        for push in [&stream[..cut], &stream[cut..]] {
            assert!(messages.take(push, 0, push.length(), 1000));
        }
        assert_eq!((messages.count, messages.bytes, messages.longest), (3, 259, 256));
        assert!(!messages.is_inside() && !messages.is_broken());
    }
    let mut messages = crate::wire::grpc::Messages::default();
    messages.take(&[2u8, 0, 0, 0, 0][..], 0, 5, 10);
    assert!(messages.is_broken());
}
