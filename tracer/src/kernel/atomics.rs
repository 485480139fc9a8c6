//! The programs for kernels without atomic compare-and-exchange.
//!
//! A maximum is raised by `BPF_CMPXCHG` (Linux 5.12). Older verifiers refuse a program that contains it, even where it is
//! never reached. Their uprobe programs run with preemption off, so nothing comes between reading a value and writing it:
//! a plain store does the same, and leaves R0, which holds the expected value, as if the exchange had gone well.

use std::{borrow::Cow, ffi::CString, sync::OnceLock};

use aya_obj::generated::{bpf_insn, bpf_prog_type};

use super::sys;

/// `BPF_STX | BPF_ATOMIC | BPF_DW` and `BPF_STX | BPF_MEM | BPF_DW` (include/uapi/linux/bpf.h).
const ATOMIC: u8 = 0xdb;
const STORE: u8 = 0x7b;
/// `BPF_CMPXCHG`.
const CMPXCHG: i32 = 0xf1;
/// `BPF_LD | BPF_IMM | BPF_DW`, the only instruction of two slots.
const LOAD_IMM64: u8 = 0x18;
const SLOT: usize = 8;

/// The object as this kernel takes it.
pub(super) fn for_this_kernel(object: &[u8]) -> Cow<'_, [u8]> {
    static EXCHANGES: OnceLock<bool> = OnceLock::new();
    if *EXCHANGES.get_or_init(can_exchange) { Cow::Borrowed(object) } else { Cow::Owned(without(object)) }
}

/// Tries it.
fn can_exchange() -> bool {
    let insn = |code: u8, dst: u8, off: i16, imm: i32| bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(dst, 0),
        off,
        imm,
    };
    // r0 = 0; *(u64 *)(r10 - 8) = r0; r0 = cmpxchg(r10 - 8, r0, r0); r0 = 0; exit
    let program = [
        insn(0xb7, 0, 0, 0),
        insn(STORE, 10, -8, 0),
        insn(ATOMIC, 10, -8, CMPXCHG),
        insn(0xb7, 0, 0, 0),
        insn(0x95, 0, 0, 0),
    ];
    let license = CString::new("GPL").expect("no zero inside");
    sys::verifier_log(bpf_prog_type::BPF_PROG_TYPE_KPROBE, &license, &program, None).is_ok()
}

/// The object with stores in the place of exchanges.
fn without(object: &[u8]) -> Vec<u8> {
    let mut out = object.to_vec();
    for at in exchanges(object) {
        out[at] = STORE;
        out[at + 4..at + SLOT].fill(0);
    }
    out
}

/// Where the exchanges are in the object.
fn exchanges(object: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    for section in code_sections(object).unwrap_or_default() {
        let (mut at, end) = (section.start, section.end.min(object.len()));
        while at + SLOT <= end {
            let imm = i32::from_le_bytes([object[at + 4], object[at + 5], object[at + 6], object[at + 7]]);
            if object[at] == ATOMIC && imm == CMPXCHG {
                found.push(at);
            }
            at += if object[at] == LOAD_IMM64 { 2 * SLOT } else { SLOT };
        }
    }
    found
}

/// The sections with instructions of an ELF object of 64 bits, little endian, as offsets in it.
fn code_sections(object: &[u8]) -> Option<Vec<std::ops::Range<usize>>> {
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
mod tests {
    use super::*;

    const EXCHANGE: [u8; 8] = [ATOMIC, 0x21, 8, 0, 0xf1, 0, 0, 0];
    const ADD: [u8; 8] = [ATOMIC, 0x21, 8, 0, 0, 0, 0, 0];

    /// An object with one section of these slots; `flags` of the section.
    fn object(slots: &[[u8; 8]], flags: u8) -> Vec<u8> {
        let mut out = vec![0; 64];
        (out[0x28], out[0x3a], out[0x3c]) = (64, 64, 1);
        let mut header = vec![0; 64];
        (header[4], header[8], header[0x18], header[0x20]) = (1, flags, 128, 8 * slots.len() as u8);
        out.extend(header);
        out.extend(slots.concat());
        out
    }

    /// An exchange becomes a store to the same place; additions, other sections and constants that look like one stay.
    #[test]
    fn exchanges_become_stores() {
        let slots = [ADD, EXCHANGE, [LOAD_IMM64, 1, 0, 0, 0, 0, 0, 0], EXCHANGE, EXCHANGE];
        let patched = without(&object(&slots, 6));
        let store = [STORE, 0x21, 8, 0, 0, 0, 0, 0];
        assert_eq!(patched[128..], [ADD, store, slots[2], EXCHANGE, store].concat());
        assert_eq!(without(&object(&slots, 2)), object(&slots, 2), "no code");
    }

    /// What is no object is left alone.
    #[test]
    fn damaged_objects() {
        let whole = object(&[EXCHANGE], 4);
        for len in 0..whole.len() {
            assert_eq!(without(&whole[..len]), whole[..len]);
        }
        let mut far = whole;
        far[64 + 0x18..64 + 0x20].fill(0xff);
        assert_eq!(exchanges(&far), [0; 0]);
    }

    /// The programs have exchanges, and none is left for an old kernel.
    #[test]
    fn the_real_object() {
        let object = crate::kernel::object::bytes();
        if object.is_empty() {
            return;
        }
        assert!(!exchanges(object).is_empty());
        assert_eq!(exchanges(&without(object)), [0; 0]);
    }
}
