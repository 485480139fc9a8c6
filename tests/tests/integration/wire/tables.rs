//! A made-up encoder with a table of its own, read by decoders that come late: ordinals and names are always right.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use plegtrace::wire::hpack::Decoder;
use plegtrace::wire::lessons::Lessons;
use proptest::prelude::*;

/// What the encoder does for one field of a block.
#[derive(Clone, Debug)]
enum Say {
    /// By index if it is in the table, otherwise it is added.
    Indexed(u8, u8),
    /// Added again, even if it is there.
    Again(u8, u8),
    /// As it is, not added.
    Plain(u8, u8),
}

/// The table grows and shrinks between blocks.
#[derive(Clone, Debug)]
struct Block {
    resize: Option<u16>,
    says: Vec<Say>,
}

fn say() -> impl Strategy<Value = Say> {
    let field = || (0u8..6, 0u8..12);
    prop_oneof![
        6 => field().prop_map(|(name, value)| Say::Indexed(name, value)),
        1 => field().prop_map(|(name, value)| Say::Again(name, value)),
        1 => field().prop_map(|(name, value)| Say::Plain(name, value)),
    ]
}

fn block() -> impl Strategy<Value = Block> {
    let resize = prop_oneof![12 => Just(None), 1 => (0u16..900).prop_map(Some)];
    (resize, proptest::collection::vec(say(), 0..8)).prop_map(|(resize, says)| Block { resize, says })
}

fn text(name: u8, value: u8) -> (String, String) {
    (format!("name-{name}"), "v".repeat(usize::from(value) * 9) + &value.to_string())
}

/// RFC 7541 as simple as it can be.
#[derive(Default)]
struct Encoder {
    table: VecDeque<(String, String)>,
    size: usize,
}

impl Encoder {
    fn evict(&mut self) {
        let weight = |table: &VecDeque<(String, String)>| -> usize {
            table.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
        };
        while weight(&self.table) > self.size {
            self.table.pop_back();
        }
    }

    /// A block, and the fields it stands for.
    fn encode(&mut self, block: &Block) -> (Vec<u8>, Vec<(String, String)>) {
        let (mut bytes, mut fields) = (Vec::new(), Vec::new());
        if let Some(size) = block.resize {
            self.size = usize::from(size);
            self.evict();
            integer(&mut bytes, 0x20, 5, self.size);
        }
        for say in &block.says {
            let (Say::Indexed(name, value) | Say::Again(name, value) | Say::Plain(name, value)) = *say;
            let field = text(name, value);
            let at = self.table.iter().position(|entry| *entry == field);
            let name_at = self.table.iter().position(|(name, _)| *name == field.0);
            match (say, at) {
                (Say::Indexed(..), Some(at)) => integer(&mut bytes, 0x80, 7, at + 62),
                (Say::Plain(..), _) => literal(&mut bytes, 0, 4, name_at, &field),
                _ => {
                    literal(&mut bytes, 0x40, 6, name_at, &field);
                    self.table.push_front(field.clone());
                    self.evict();
                }
            }
            fields.push(field);
        }
        (bytes, fields)
    }
}

fn literal(bytes: &mut Vec<u8>, mark: u8, bits: u32, name_at: Option<usize>, field: &(String, String)) {
    integer(bytes, mark, bits, name_at.map_or(0, |at| at + 62));
    if name_at.is_none() {
        integer(bytes, 0, 7, field.0.len());
        bytes.extend(field.0.as_bytes());
    }
    let mut coded = Vec::new();
    httlib_huffman::encode(field.1.as_bytes(), &mut coded).unwrap();
    integer(bytes, 0x80, 7, coded.len());
    bytes.extend(coded);
}

fn integer(bytes: &mut Vec<u8>, mark: u8, bits: u32, value: usize) {
    let full = (1usize << bits) - 1;
    if value < full {
        bytes.push(mark | u8::try_from(value).unwrap());
        return;
    }
    bytes.push(mark | u8::try_from(full).unwrap());
    let mut left = value - full;
    while left >= 128 {
        bytes.push(0x80 | u8::try_from(left % 128).unwrap());
        left /= 128;
    }
    bytes.push(u8::try_from(left).unwrap());
}

proptest! {
    /// Joined after any number of blocks: what is known is right, an ordinal is the same field for ever, and from the
    /// beginning everything is known.
    #[test]
    fn ordinals_are_right(blocks in proptest::collection::vec(block(), 1..60), join in 0usize..60) {
        let mut encoder = Encoder { size: 4096, ..Encoder::default() };
        let (mut new, mut late) = (Decoder::new(), Decoder::late());
        let mut meaning: HashMap<u64, (String, String)> = HashMap::new();
        for (at, block) in blocks.iter().enumerate() {
            let (bytes, fields) = encoder.encode(block);
            let whole = new.decode(&bytes).unwrap();
            prop_assert_eq!(whole.len(), fields.len());
            for (line, (name, value)) in whole.iter().zip(&fields) {
                prop_assert_eq!(line.entry.name.as_deref(), Some(&**name));
                prop_assert_eq!(line.entry.value.as_deref(), Some(&**value));
            }
            if at < join {
                continue;
            }
            let lines = late.decode(&bytes).unwrap();
            prop_assert_eq!(lines.len(), fields.len());
            for (line, field) in lines.iter().zip(&fields) {
                prop_assert!(line.entry.name.as_deref().is_none_or(|name| name == field.0));
                prop_assert!(line.entry.value.as_deref().is_none_or(|value| value == field.1));
                if let Some(ordinal) = line.ordinal {
                    let before = meaning.entry(ordinal).or_insert_with(|| field.clone());
                    prop_assert_eq!(&*before, field, "ordinal {}", ordinal);
                }
            }
        }
    }

    /// Blocks of entries of which one is the method: lessons in any order conclude nothing wrong, and contradict nothing.
    #[test]
    fn lessons_are_right(blocks in proptest::collection::vec((0u64..6, proptest::collection::btree_set(100u64..110, 0..5), any::<bool>()), 0..60)) {
        let mut lessons = Lessons::default();
        let path = |method: u64| -> Arc<str> { format!("m{method}").into() };
        for (method, others, is_taught) in blocks {
            // The entry of a method is its number.
            let among: Vec<u64> = others.into_iter().chain([method]).collect();
            if is_taught {
                for (entry, value) in lessons.teach(&path(method), &among).unwrap() {
                    prop_assert_eq!(path(entry), value);
                }
            }
            if let Some(value) = lessons.value_of(&among) {
                prop_assert_eq!(value, &path(method));
            }
        }
    }
}
