//! The instructions in an eBPF object, to put others in their place before it is parsed.

use std::ops::Range;

/// `BPF_LD | BPF_IMM | BPF_DW`, the only instruction of two slots.
pub(super) const LOAD_IMM64: u8 = 0x18;
/// Bytes of an instruction.
pub(super) const SLOT: usize = 8;

/// Where each instruction is in the object.
pub(super) fn instructions(object: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    for section in code_sections(object).unwrap_or_default() {
        let (mut at, end) = (section.start, section.end.min(object.len()));
        while at + SLOT <= end {
            found.push(at);
            at += if object[at] == LOAD_IMM64 { 2 * SLOT } else { SLOT };
        }
    }
    found
}

/// The constant in the instruction there.
pub(super) fn immediate(object: &[u8], at: usize) -> i32 {
    i32::from_le_bytes([object[at + 4], object[at + 5], object[at + 6], object[at + 7]])
}

/// The sections with instructions of an ELF object of 64 bits, little endian, as offsets in it.
fn code_sections(object: &[u8]) -> Option<Vec<Range<usize>>> {
    const PROGBITS: u64 = 1;
    const EXECUTABLE: u64 = 4;
    let number = |at: usize, len: usize| {
        let bytes = object.get(at..at.checked_add(len)?)?;
        let all = bytes.iter().rev().fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
        Some(all)
    };
    let place = |at: usize, len: usize| usize::try_from(number(at, len)?).ok();
    let (table, size, count) = (place(0x28, 8)?, place(0x3a, 2)?, place(0x3c, 2)?);
    let mut sections = Vec::new();
    for index in 0..count {
        let header = table.checked_add(index.checked_mul(size)?)?;
        if number(header + 4, 4)? == PROGBITS && number(header + 8, 8)? & EXECUTABLE != 0 {
            let (begin, len) = (place(header + 0x18, 8)?, place(header + 0x20, 8)?);
            sections.push(begin..begin.checked_add(len)?);
        }
    }
    Some(sections)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An object with one section of these slots; `flags` of the section.
    pub(in crate::kernel) fn object(slots: &[[u8; 8]], flags: u8) -> Vec<u8> {
        let mut out = vec![0; 64];
        (out[0x28], out[0x3a], out[0x3c]) = (64, 64, 1);
        let mut header = vec![0; 64];
        (header[4], header[8], header[0x18], header[0x20]) = (1, flags, 128, 8 * slots.len() as u8);
        out.extend(header);
        out.extend(slots.concat());
        out
    }

    /// Instructions of two slots are one, and only code has any; a damaged object has what can be read of it.
    #[test]
    fn instructions_are_found() {
        let slots = [[1; 8], [LOAD_IMM64, 1, 0, 0, 0, 0, 0, 0], [2; 8], [3; 8]];
        let whole = object(&slots, 6);
        assert_eq!(instructions(&whole), [128, 136, 152]);
        assert_eq!(immediate(&whole, 152), 0x0303_0303);
        assert_eq!(instructions(&object(&slots, 2)), [0; 0], "no code");
        for len in 0..whole.len() {
            assert!(instructions(&whole[..len]).iter().all(|at| at + SLOT <= len));
        }
        let mut far = whole;
        far[64 + 0x18..64 + 0x20].fill(0xff);
        assert_eq!(instructions(&far), [0; 0]);
    }
}
