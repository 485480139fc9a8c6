//! Fields that stand in a block itself, for who does not follow the header table.

use super::read::Reader;

/// Most fields of a block that are looked at.
const MAX_FIELDS: usize = 32;

/// A field that is no entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// `None` when its name is in the table.
    pub name: Option<String>,
    /// What it says; hostile text.
    pub value: String,
}

/// The literal fields of a block, which may end early; what cannot be read ends it.
#[must_use]
pub fn literals(block: &[u8]) -> Vec<Literal> {
    let (mut reader, mut found) = (Reader::new(block), Vec::new());
    for _ in 0..MAX_FIELDS {
        match next(&mut reader) {
            Some(Some(literal)) => found.push(literal),
            Some(None) => {}
            None => break,
        }
    }
    found
}

/// The next field, if it is a literal; `None` at the end.
fn next(reader: &mut Reader<'_>) -> Option<Option<Literal>> {
    let first = reader.byte()?;
    let (bits, is_literal) = match first {
        0x80.. => (7, false),
        0x40.. => (6, true),
        0x20.. => (5, false),
        _ => (4, true),
    };
    let index = reader.integer(first, bits).ok()?;
    if !is_literal {
        return Some(None);
    }
    let name = if index == 0 { Some(reader.beginning()?) } else { None };
    Some(Some(Literal { name, value: reader.beginning()? }))
}
