//! The bytes of one direction of a connection, as they were read and cut otherwise.

use plegtrace::wire::Side;
use plegtrace_tests::draw::Draw;
use plegtrace_tests::wire::Chunk;

/// One direction of a connection, as it was read.
pub(crate) fn pieces(chunks: &[Chunk], connection: usize, side: Side) -> Vec<&[u8]> {
    let chunks = chunks.iter().filter(|chunk| (chunk.connection, chunk.side) == (connection, side));
    chunks.map(|chunk| &chunk.bytes[..]).collect()
}

/// The same bytes in pieces of one to so many bytes.
pub(crate) fn cut<'a>(stream: &'a [u8], draw: &mut Draw) -> Vec<&'a [u8]> {
    let (mut rest, mut pieces) = (stream, Vec::new());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((1 + draw.below(60)).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}
