//! A D-Bus stream, walked as the kernel side walks it. An input of the fuzz target: the length of each piece (two bytes,
//! little endian) and its bytes.

use plegtrace_common::wire::dbus::{HEADER_LEN, MAX_MESSAGE, Message, Next, Position, Walk};

/// Everything that was read from a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    /// Its messages, with the codes and lengths of their texts.
    pub messages: Vec<(Message, Vec<(u8, u32)>)>,
    /// Texts that were there as a whole, with the code of their field.
    pub texts: Vec<(u8, String)>,
    /// Preambles that began.
    pub preambles: usize,
    /// How often it was out of step.
    pub lost: usize,
}

/// Walks what was written in one direction. Where headers end is left out: that depends on the pieces.
pub(crate) fn read(pieces: &[&[u8]]) -> (Read, Position) {
    let (mut read, mut position) = (Read::default(), Position::BOUNDARY);
    let mut texts = Vec::new();
    for piece in pieces {
        let mut walk = Walk::new(position, u32::try_from(piece.len()).expect("a write of 4 GiB"));
        let mut bytes = *piece;
        // Each step takes a byte, but for the last of each message.
        for _ in 0..=2 * piece.len() + 1 {
            match walk.next(&mut bytes) {
                Next::Start => texts.clear(),
                Next::Text { field, at, len } => {
                    let end = (at as usize).saturating_add(len as usize);
                    let whole = piece.get(at as usize..end).map(|text| String::from_utf8_lossy(text));
                    read.texts.extend(whole.map(|text| (field, text.into_owned())));
                    texts.push((field, len));
                }
                Next::Message(message) => {
                    assert!((HEADER_LEN..=MAX_MESSAGE).contains(&message.size) && message.serial != 0);
                    read.messages.push((Message { header_end: 0, ..message }, texts.clone()));
                }
                Next::Line { first } => read.preambles += usize::from(first),
                Next::Part => {}
                Next::OutOfStep | Next::Unreadable => read.lost += 1,
                Next::End => break,
            }
        }
        position = walk.position;
    }
    (read, position)
}

/// Reads an input of the fuzz target.
pub(crate) fn run(mut input: &[u8]) -> Read {
    let mut pieces = Vec::new();
    while let Some((len, rest)) = input.split_first_chunk::<2>() {
        let (piece, rest) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
        pieces.push(piece);
        input = rest;
    }
    let (read, position) = read(&pieces);
    let whole: usize = pieces.iter().map(|piece| piece.len()).sum();
    assert!(read.messages.len() * 16 <= whole && position.have < HEADER_LEN);
    assert!(position.left <= 2 * MAX_MESSAGE && position.fields <= MAX_MESSAGE);
    read
}
