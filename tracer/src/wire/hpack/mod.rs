//! Header blocks (HPACK, RFC 7541) of one direction of a connection, which may have been joined late: what an entry older
//! than us says stays unknown until a teacher names it, and is never guessed.
//!
//! The Huffman code is a crate's; the tables are our own, because decoders expect to see a connection from its beginning.

mod literal;
mod read;
mod statics;
mod table;

use std::sync::Arc;

pub use literal::{Literal, literals};
use read::Reader;
use statics::COUNT;
use table::Table;
pub use table::{Entry, JOIN};

/// Most lines of a block that are kept; the rest is decoded for the sake of the table only.
pub const MAX_LINES: usize = 128;

/// Why a block cannot be decoded. The table is worth nothing afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It ends within a field.
    #[error("the header block ends within a field")]
    Cut,
    /// An integer of more than 28 bits.
    #[error("an integer of the header block is too large")]
    Integer,
    /// An entry that cannot be in the table.
    #[error("the header block refers to an entry that does not exist")]
    Index,
    /// No Huffman code.
    #[error("a string of the header block is no Huffman code")]
    Huffman,
    /// A change of the table's size after a field.
    #[error("the size of the header table changes within a block")]
    Resize,
}

/// One field of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it says.
    pub entry: Entry,
    /// The table's entry that it stands for or became; `None` when it has none.
    pub ordinal: Option<u64>,
}

/// Decodes the blocks of one direction, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
}

impl Decoder {
    /// For a connection that begins.
    #[must_use]
    pub fn new() -> Self {
        Self { table: Table::new() }
    }

    /// For a connection that we join, or after blocks were missed.
    #[must_use]
    pub fn late() -> Self {
        Self { table: Table::late() }
    }

    /// The fields of a whole block.
    ///
    /// # Errors
    ///
    /// It is no header block; the decoder must be replaced by a [`late`](Decoder::late) one.
    pub fn decode(&mut self, block: &[u8]) -> Result<Vec<Line>, Error> {
        let (mut reader, mut lines) = (Reader::new(block), Vec::new());
        let mut may_resize = true;
        while let Some(first) = reader.byte() {
            if first & 0xe0 == 0x20 {
                if !may_resize {
                    return Err(Error::Resize);
                }
                let size = reader.integer(first, 5)?;
                self.table.resize(size);
                continue;
            }
            may_resize = false;
            let line = self.line(first, &mut reader)?;
            if lines.len() < MAX_LINES {
                lines.push(line);
            }
        }
        Ok(lines)
    }

    /// From now on the entry of an ordinal is known.
    pub fn learn(&mut self, ordinal: u64, name: &str, value: &Arc<str>) {
        let entry = Entry { name: Some(name.into()), value: Some(Arc::clone(value)) };
        self.table.learn(ordinal, entry);
    }

    fn line(&mut self, first: u8, reader: &mut Reader<'_>) -> Result<Line, Error> {
        if first & 0x80 != 0 {
            let index = reader.integer(first, 7)?;
            let (ordinal, entry) = self.indexed(index)?;
            return Ok(Line { entry, ordinal });
        }
        let is_kept = first & 0x40 != 0;
        let index = reader.integer(first, if is_kept { 6 } else { 4 })?;
        let (name, name_least) = if index == 0 {
            let name = reader.string()?;
            (name.text, name.least)
        } else {
            let (_, entry) = self.indexed(index)?;
            let least = entry.name.as_ref().map_or(0, |name| name.len() as u64);
            (entry.name, least)
        };
        let value = reader.string()?;
        let entry = Entry { name, value: value.text };
        let ordinal = is_kept.then(|| self.table.insert(entry.clone(), name_least + value.least));
        Ok(Line { entry, ordinal })
    }

    fn indexed(&self, index: u64) -> Result<(Option<u64>, Entry), Error> {
        if let Some((name, value)) = statics::entry(index) {
            return Ok((None, Entry { name: Some(name.into()), value: Some(value.into()) }));
        }
        let offset = index.checked_sub(COUNT + 1).ok_or(Error::Index)?;
        let (ordinal, entry) = self.table.get(offset)?;
        Ok((Some(ordinal), entry))
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::late()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let value = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(value).collect()
    }

    fn said(lines: &[Line]) -> Vec<String> {
        let text = |text: &Option<Arc<str>>| text.as_deref().unwrap_or("?").to_owned();
        lines.iter().map(|line| format!("{}: {}", text(&line.entry.name), text(&line.entry.value))).collect()
    }

    /// RFC 7541, C.4: requests with Huffman, each block after the other.
    const BLOCKS: [&str; 3] = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];

    #[test]
    fn the_examples_of_the_rfc() {
        let mut decoder = Decoder::new();
        let all = BLOCKS.map(|block| said(&decoder.decode(&bytes(block)).unwrap()));
        let first = [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
        assert_eq!(all[0], first);
        assert_eq!(all[1][3..], [":authority: www.example.com", "cache-control: no-cache"]);
        let third = [
            ":method: GET",
            ":scheme: https",
            ":path: /index.html",
            ":authority: www.example.com",
            "custom-key: custom-value",
        ];
        assert_eq!(all[2], third);
    }

    /// Joined after the first block, its entry is unknown, and stays the same one.
    #[test]
    fn joined_late() {
        let mut decoder = Decoder::late();
        let second = decoder.decode(&bytes(BLOCKS[1])).unwrap();
        assert_eq!(said(&second)[3..], ["?: ?", "cache-control: no-cache"]);
        let third = decoder.decode(&bytes(BLOCKS[2])).unwrap();
        assert_eq!(said(&third)[3..], ["?: ?", "custom-key: custom-value"]);
        assert_eq!(second[3].ordinal, Some(JOIN - 1));
        assert_eq!(third[3].ordinal, Some(JOIN - 1));
        decoder.learn(JOIN - 1, ":authority", &"there".into());
        // Two insertions later the same entry has index 64.
        assert_eq!(said(&decoder.decode(&[0xc0]).unwrap()), [":authority: there"]);
    }

    /// Whatever is no block says so.
    #[test]
    fn no_blocks() {
        for (block, error) in [
            ("80", Error::Index),
            ("be", Error::Index),
            ("82 3f e1 1f", Error::Resize),
            ("ff ff ff ff ff", Error::Integer),
            ("40 05 61", Error::Cut),
            ("ff", Error::Cut),
            ("44 84 ff ff ff ff", Error::Huffman),
        ] {
            assert_eq!(Decoder::new().decode(&bytes(block)), Err(error), "{block}");
        }
        assert_eq!(Decoder::late().decode(&[0xbe]).unwrap().len(), 1);
    }
}
