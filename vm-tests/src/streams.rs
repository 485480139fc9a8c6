//! What runc and the bus say to each other, byte by byte.

use std::collections::{BTreeMap, BTreeSet};

use plegtrace::wire::Side;
use plegtrace_common::wire::dbus::{Next, Position, Walk, field, kind};

#[path = "../../tests/src/wire/relay.rs"]
mod relay;

pub use relay::Relay;

/// What one read gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of the connection.
    pub connection: usize,
    /// Who sent it.
    pub side: Side,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What was read of some streams.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Calls that somebody is to answer, by method.
    pub calls: BTreeMap<String, u64>,
    /// Answers, errors included.
    pub answers: u64,
    /// Times that nothing fitted.
    pub lost: u64,
}

/// Only the connections of those who say one of these words.
#[must_use]
pub fn of_those_who_say(mut chunks: Vec<Chunk>, words: &[&str]) -> Vec<Chunk> {
    let says = |chunk: &&Chunk| {
        let text = String::from_utf8_lossy(&chunk.bytes);
        chunk.side == Side::Client && words.iter().any(|word| text.contains(word))
    };
    let theirs: BTreeSet<usize> = chunks.iter().filter(says).map(|chunk| chunk.connection).collect();
    chunks.retain(|chunk| theirs.contains(&chunk.connection));
    chunks
}

/// Walks through both directions of each connection, as the kernel side does.
#[must_use]
pub fn read(chunks: &[Chunk]) -> Found {
    let mut found = Found::default();
    let mut places: BTreeMap<(usize, bool), (Position, String)> = BTreeMap::new();
    for Chunk { connection, side, bytes } in chunks {
        let key = (*connection, *side == Side::Server);
        let (position, member) = places.entry(key).or_insert_with(|| (Position::BOUNDARY, String::new()));
        *position = walk(*position, member, bytes, &mut found);
    }
    found
}

fn walk(position: Position, member: &mut String, bytes: &[u8], found: &mut Found) -> Position {
    let mut walk = Walk::new(position, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    let mut rest = bytes;
    // Each step takes a byte, but for the last of each message.
    for _ in 0..=2 * bytes.len() + 1 {
        match walk.next(&mut rest) {
            Next::Start => member.clear(),
            Next::Text { field: field::MEMBER, at, len } => {
                let end = (at as usize).saturating_add(len as usize);
                *member = bytes.get(at as usize..end).map_or(String::new(), text);
            }
            Next::Message(message) if message.expects_answer() => {
                *found.calls.entry(member.clone()).or_default() += 1;
            }
            Next::Message(message) => {
                found.answers += u64::from(matches!(message.kind, kind::RETURN | kind::ERROR));
            }
            Next::OutOfStep | Next::Unreadable => found.lost += 1,
            Next::End => break,
            Next::Text { .. } | Next::Line { .. } | Next::Part => {}
        }
    }
    walk.position
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
