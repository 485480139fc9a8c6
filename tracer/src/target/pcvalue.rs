//! The table that says how deep the stack of a function is at each of its instructions (`pcsp`).
//!
//! Pairs of variable-length integers: a zigzag step of the value, then a step of the address in units of the smallest
//! instruction; a step of 0 that is not the first ends it (`pcvalue` and `step` in Go's runtime/symtab.go, Go 1.2 to
//! 1.27). Only a few tables are wanted, so they are read from the file when they are, not kept.

use std::ops::Range;

use super::elf::Elf;

/// How much of a table is read: almost always the first is enough.
const READS: [u64; 3] = [256, 8 << 10, 256 << 10];
/// Deepest frame believed, bytes: Go refuses larger ones (cmd/compile: 1 GiB).
const MAX_DEPTH: i64 = 1 << 30;

/// Depth at `pc` of the function at `entry`, whose table begins at `table.start`.
pub(crate) fn stack_depth(elf: &Elf, table: Range<u64>, entry: u64, pc: u64) -> Option<u32> {
    for size in READS {
        let whole = table.end - table.start <= size;
        let block = elf.read_vaddr(table.start, size.min(table.end - table.start), "a stack table").ok()?;
        match value_at(&block, entry, pc, elf.machine.quantum()) {
            Answer::Value(value) => return depth(value),
            Answer::Cut if !whole => {}
            Answer::Cut | Answer::None => return None,
        }
    }
    None
}

fn depth(value: i64) -> Option<u32> {
    (0..=MAX_DEPTH).contains(&value).then(|| u32::try_from(value).ok()).flatten().filter(|d| d % 8 == 0)
}

/// What a table, or the part of it that was read, says.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Value(i64),
    /// It ends before this address.
    None,
    /// More of it must be read.
    Cut,
}

fn value_at(table: &[u8], entry: u64, target: u64, quantum: u8) -> Answer {
    let (mut rest, mut pc, mut value, mut first) = (table, entry, -1i64, true);
    loop {
        let Some(step) = varint(&mut rest) else { return Answer::Cut };
        if step == 0 && !first {
            return Answer::None;
        }
        first = false;
        let half = i64::from(step >> 1);
        value += if step & 1 == 1 { !half } else { half };
        let Some(step) = varint(&mut rest) else { return Answer::Cut };
        pc = pc.saturating_add(u64::from(step) * u64::from(quantum));
        if target < pc {
            return Answer::Value(value);
        }
    }
}

/// Seven bits per byte, low ones first; `None` when the bytes end. Like the runtime, more than 32 bits are cut.
fn varint(bytes: &mut &[u8]) -> Option<u32> {
    let (mut value, mut shift) = (0u32, 0u32);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function that pushes 24 bytes at offset 4 and pops them at offset 200: 0, 24, 0.
    const TABLE: &[u8] = &[2, 4, 48, 0xc4, 1, 47, 1, 0];

    /// Values hold from one step to the next, and end with the table.
    #[test]
    fn steps() {
        let at = |offset: u64| value_at(TABLE, 0x1000, 0x1000 + offset, 1);
        assert_eq!((at(0), at(3), at(4), at(199)), (v(0), v(0), v(24), v(24)));
        assert_eq!((at(200), at(201)), (v(0), Answer::None));
        assert_eq!(value_at(TABLE, 0x1000, 0x1000 + 12, 4), v(0));
        assert_eq!(value_at(TABLE, 0x1000, 0x1000 + 16, 4), v(24));
    }

    fn v(value: i64) -> Answer {
        Answer::Value(value)
    }

    /// A table that is cut off asks for more; nothing makes it fail or run on.
    #[test]
    fn cut_off_and_hostile() {
        for len in 0..TABLE.len() {
            assert_eq!(value_at(&TABLE[..len], 0, 500, 1), Answer::Cut);
        }
        assert_eq!(value_at(&[0xff; 4096], 0, 1, 1), Answer::Cut);
        assert_eq!(value_at(&[1, 0, 1, 0, 1, 0, 0], 0, 9, 1), Answer::None);
        assert_eq!((depth(-1), depth(7), depth(MAX_DEPTH + 8), depth(16)), (None, None, None, Some(16)));
    }
}
