//! The programs for kernels without atomic compare-and-exchange.
//!
//! A maximum is raised by `BPF_CMPXCHG` (Linux 5.12). Older verifiers refuse a program that contains it, even where it is
//! never reached. Their uprobe programs run with preemption off, so nothing comes between reading a value and writing it:
//! a plain store does the same, and leaves R0, which holds the expected value, as if the exchange had gone well.

use std::{ffi::CString, sync::OnceLock};

use aya_obj::generated::{bpf_insn, bpf_prog_type};

use super::{
    code::{self, SLOT},
    sys::{self, Code},
};

/// `BPF_STX | BPF_ATOMIC | BPF_DW` and `BPF_STX | BPF_MEM | BPF_DW` (include/uapi/linux/bpf.h).
const ATOMIC: u8 = 0xdb;
const STORE: u8 = 0x7b;
/// `BPF_CMPXCHG`.
const CMPXCHG: i32 = 0xf1;
/// The object as this kernel takes it.
pub(super) fn for_this_kernel(object: &mut [u8]) {
    static EXCHANGES: OnceLock<bool> = OnceLock::new();
    if !*EXCHANGES.get_or_init(can_exchange) {
        replace(object);
    }
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
    sys::verifier_log(&Code::plain(bpf_prog_type::BPF_PROG_TYPE_KPROBE, &license, &program)).is_ok()
}

/// Puts stores in the place of exchanges.
fn replace(object: &mut [u8]) {
    for at in exchanges(object) {
        object[at] = STORE;
        object[at + 4..at + SLOT].fill(0);
    }
}

/// Where the exchanges are in the object.
fn exchanges(object: &[u8]) -> Vec<usize> {
    let is_one = |at: &usize| object[*at] == ATOMIC && code::immediate(object, *at) == CMPXCHG;
    code::instructions(object).into_iter().filter(is_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::kernel::code::{LOAD_IMM64, tests::object};

    const EXCHANGE: [u8; 8] = [ATOMIC, 0x21, 8, 0, 0xf1, 0, 0, 0];
    const ADD: [u8; 8] = [ATOMIC, 0x21, 8, 0, 0, 0, 0, 0];

    fn without(object: &[u8]) -> Vec<u8> {
        let mut object = object.to_vec();
        replace(&mut object);
        object
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
