//! gRPC over HTTP/2: what is in messages, behind the five bytes before each.

use std::collections::HashMap;

use plegtrace::wire::Side;

/// Bytes that a client sends before its first frame.
const PREFACE: usize = 24;

/// Calls `with` for each byte of each message in a whole direction. Knows no padding: the programs of the lab use none.
pub(super) fn each_content(side: Side, stream: &mut [u8], with: &mut impl FnMut(&mut u8)) {
    let mut at = if side == Side::Client { PREFACE } else { 0 };
    let mut messages: HashMap<[u8; 4], (u32, Vec<u8>)> = HashMap::new();
    while let Some(&[a, b, c, kind, _, e, f, g, h]) = stream.get(at..).and_then(<[u8]>::first_chunk) {
        at += 9;
        let end = (at + u32::from_be_bytes([0, a, b, c]) as usize).min(stream.len());
        let (left, prefix) = messages.entry([e, f, g, h]).or_default();
        for byte in stream[at..end].iter_mut().filter(|_| kind == 0) {
            if *left > 0 {
                *left -= 1;
                with(byte);
                continue;
            }
            prefix.push(*byte);
            if let [_, a, b, c, d] = prefix[..] {
                *left = u32::from_be_bytes([a, b, c, d]);
                prefix.clear();
            }
        }
        at = end;
    }
}
