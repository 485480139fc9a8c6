//! One input of the fuzzer → pushes on a connection, or header blocks. Panics on a broken promise.
//!
//! Of a connection, the first byte says whether it is joined late; then come pushes: a byte whose lowest bits say who
//! sends and whether something was missed or is taught, two bytes of length, and as many bytes. Of blocks each is a byte of
//! length and as many bytes.

#![allow(dead_code, reason = "each program of the fuzzer uses a half of it")]

use plegtrace::wire::connection::{MAX_FINISHED, MAX_OPEN};
use plegtrace::wire::hpack::{Decoder, JOIN, MAX_LINES};
use plegtrace::wire::{Connection, Method, Side};
use plegtrace_common::wire::Bytes;
use plegtrace_common::wire::http2::{CONTINUATION, DATA, Event, FIRST, HEADERS, Walker};

/// Steps that a walker may take for a byte, and for a push.
const STEPS_PER_BYTE: u32 = 2;
const STEPS: u32 = 8;

/// Feeds a connection.
pub(crate) fn connection(input: &[u8]) {
    let Some((late, mut rest)) = input.split_first() else { return };
    let mut connection = if late & 1 == 0 { Connection::new() } else { Connection::late() };
    let mut now = 0;
    while let [what, high, low, more @ ..] = rest {
        let length = (usize::from(*high) << 8 | usize::from(*low)).min(more.len());
        let (push, behind) = more.split_at(length);
        rest = behind;
        now += 1;
        let side = if what & 1 == 0 { Side::Client } else { Side::Server };
        match what >> 1 & 7 {
            0 => connection.miss(side),
            1 => _ = connection.teach(u32::from(*low), "/a.B/C"),
            2 => _ = connection.teach(u32::from(*low), &String::from_utf8_lossy(push)),
            _ => connection.push(side, now, push),
        }
        splits_do_not_matter(push);
        check(&connection);
    }
    connection.take_finished().iter().for_each(|request| assert!(request.end.is_some()));
}

fn check(connection: &Connection) {
    assert!(connection.held() <= MAX_OPEN + MAX_FINISHED);
    for request in connection.open() {
        assert!(request.end.is_none() && request.stream % 2 == 1);
        if let Method::Known(path) = &request.method {
            assert!(path.len() <= 200 && path.bytes().all(|byte| byte.is_ascii_graphic()), "{path:?}");
        }
    }
}

/// A walker that was in step says the same of the whole push and of its bytes one by one, in few steps.
fn splits_do_not_matter(push: &[u8]) {
    let (mut whole, mut split) = (Walker::server(), Walker::server());
    let one = told(&mut whole, &[push]);
    let pieces: Vec<&[u8]> = push.chunks(1).collect();
    let two = told(&mut split, &pieces);
    // Out of step, the one skips the rest, the other tries again at each byte.
    if whole.in_step() && split.losses == 0 {
        assert_eq!(one, two);
        assert_eq!(whole, split);
    }
    assert!(whole.losses <= split.losses);
}

/// What a walker says: kind, stream, flags, value and the bytes of each frame.
pub(crate) fn told(walker: &mut Walker, pushes: &[&[u8]]) -> Vec<(u8, u32, u8, u32, Vec<u8>)> {
    let mut told: Vec<(u8, u32, u8, u32, Vec<u8>)> = Vec::new();
    for push in pushes {
        let steps = push.length() * STEPS_PER_BYTE + STEPS;
        let done = walker.walk(*push, &mut 0, steps, |event| {
            let Event { stream, kind, flags, marks, at, len, value } = event;
            let part = &push[at as usize..][..len as usize];
            let of_frame = matches!(kind, DATA | HEADERS | CONTINUATION);
            match told.last_mut() {
                Some(last) if of_frame && marks & FIRST == 0 => last.4.extend(part),
                _ => told.push((kind, stream, flags, value, part.to_vec())),
            }
        });
        assert!(done, "more steps than bytes");
    }
    told
}

/// Feeds a decoder of a connection that begins and one that is late.
pub(crate) fn blocks(input: &[u8]) {
    let (mut new, mut late) = (Decoder::new(), Decoder::late());
    let mut rest = input;
    while let [length, more @ ..] = rest {
        let (block, behind) = more.split_at(usize::from(*length).min(more.len()));
        rest = behind;
        let of_late = late.decode(block);
        match new.decode(block) {
            // What a whole table understands a late one does too, and where both know something it is the same.
            Ok(lines) => {
                let of_late = of_late.expect("a late table knows less, not other things");
                assert_eq!(lines.len(), of_late.len());
                for (known, line) in lines.iter().zip(&of_late) {
                    assert_eq!(known, line);
                    assert!(known.ordinal.is_none_or(|ordinal| ordinal >= JOIN));
                }
                assert!(lines.len() <= MAX_LINES && lines.len() <= block.len());
            }
            Err(_) => (new, late) = (Decoder::new(), Decoder::late()),
        }
    }
}
