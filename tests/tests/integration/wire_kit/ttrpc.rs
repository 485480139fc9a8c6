//! A ttrpc stream, walked as the kernel side walks it. An input of the fuzz target: the length of each write (two bytes,
//! little endian) and its bytes.

use plegtrace_common::wire::ttrpc::{FrameHeader, HEAD, Head, Names, Next, Position, Walk};

/// Everything that was read from a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    /// Its frames.
    pub frames: Vec<FrameHeader>,
    /// Requests with both names.
    pub named: Vec<(String, String)>,
    /// How often it was out of step.
    pub lost: usize,
}

/// Walks the writes of one direction.
pub(crate) fn read(writes: &[&[u8]]) -> (Read, Position) {
    let (mut read, mut position) = (Read::default(), Position::BOUNDARY);
    for write in writes {
        let mut walk = Walk::new(position, u32::try_from(write.len()).expect("a write of 4 GiB"));
        let mut bytes = *write;
        // Each frame takes a header.
        for _ in 0..=write.len() {
            match walk.next(&mut bytes) {
                Next::Frame { header, body } => {
                    read.frames.push(header);
                    read.named.extend(names(&write[body as usize..], header.len));
                }
                Next::OutOfStep | Next::Unreadable => read.lost += 1,
                Next::End => break,
            }
        }
        position = walk.position;
    }
    (read, position)
}

fn names(body: &[u8], len: u32) -> Option<(String, String)> {
    let have = body.len().min(len as usize).min(HEAD - 1);
    let mut head = [0xff; HEAD];
    head[..have].copy_from_slice(&body[..have]);
    let Head::Named(names) = Names::find(&head, have as u32) else { return None };
    assert!(names.end() as usize <= have, "names within what is there: {names:?}");
    let (service, method) = names.texts(&head)?;
    Some((service.to_owned(), method.to_owned()))
}

/// Reads an input of the fuzz target.
pub(crate) fn run(mut input: &[u8]) -> Read {
    let mut writes = Vec::new();
    while let Some((len, rest)) = input.split_first_chunk::<2>() {
        let (write, rest) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
        writes.push(write);
        input = rest;
    }
    let (read, position) = read(&writes);
    let whole: usize = writes.iter().map(|write| write.len()).sum();
    assert!(read.frames.len() * 10 <= whole && position.have < 10);
    read
}
