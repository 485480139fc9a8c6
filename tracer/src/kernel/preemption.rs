//! Calls of `bpf_preempt_disable` and `bpf_preempt_enable` in the programs, where the kernel has them.
//!
//! See tracer-ebpf/src/preemption.rs for what they are needed for. aya cannot call functions of the kernel, so the programs call
//! helpers of numbers that do not exist, and here they become what the kernel takes: a call by the id of the function in its
//! type information, or an assignment that does nothing.

use std::{ffi::CString, sync::OnceLock};

use aya_obj::generated::{bpf_insn, bpf_prog_type};
use plegtrace_common::preemption::{PREEMPTION_OFF, PREEMPTION_ON};

use super::{
    code::{self, SLOT},
    sys::{self, Code},
};

/// `BPF_JMP | BPF_CALL`, and `BPF_PSEUDO_KFUNC_CALL` as its source register (include/uapi/linux/bpf.h).
const CALL: u8 = 0x85;
const KFUNC: u8 = 2;
/// `r0 = 0`: what a call may do to registers includes it.
const NOTHING: [u8; SLOT] = [0xb7, 0, 0, 0, 0, 0, 0, 0];

/// Makes the object one that this kernel takes. `functions` are the ids of the two functions, if the kernel has them.
pub(super) fn for_this_kernel(object: &mut [u8], functions: Option<[u32; 2]>) {
    static USABLE: OnceLock<bool> = OnceLock::new();
    let functions =
        functions.filter(|functions| *USABLE.get_or_init(|| can_switch_preemption_off(*functions)));
    replace(object, functions);
}

fn replace(object: &mut [u8], functions: Option<[u32; 2]>) {
    for at in code::instructions(object) {
        let imm = code::immediate(object, at).cast_unsigned();
        let is_helper = object[at] == CALL && object[at + 1] == 0;
        let Some(which) = [PREEMPTION_OFF, PREEMPTION_ON].iter().position(|id| is_helper && *id == imm)
        else {
            continue;
        };
        match functions {
            Some(functions) => {
                object[at + 1] = KFUNC << 4;
                object[at + 4..at + SLOT].copy_from_slice(&functions[which].to_le_bytes());
            }
            None => object[at..at + SLOT].copy_from_slice(&NOTHING),
        }
    }
}

/// Does the kernel let programs of both types call `bpf_preempt_disable` and `bpf_preempt_enable`, which have these ids?
/// Found out by trying.
#[must_use]
pub fn can_switch_preemption_off(functions: [u32; 2]) -> bool {
    let insn = |code: u8, src: u8, imm: u32| bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(0, src),
        off: 0,
        imm: imm.cast_signed(),
    };
    let [off, on] = functions.map(|id| insn(CALL, KFUNC, id));
    let program = [off, on, insn(0xb7, 0, 0), insn(0x95, 0, 0)];
    let license = CString::new("GPL").expect("no zero inside");
    [bpf_prog_type::BPF_PROG_TYPE_KPROBE, bpf_prog_type::BPF_PROG_TYPE_RAW_TRACEPOINT]
        .into_iter()
        .all(|kind| sys::verifier_log(&Code::plain(kind, &license, &program)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::code::tests::object;

    fn call(src: u8, id: u32) -> [u8; 8] {
        let [a, b, c, d] = id.to_le_bytes();
        [CALL, src << 4, 0, 0, a, b, c, d]
    }

    fn replaced(functions: Option<[u32; 2]>) -> Vec<u8> {
        let slots = [
            call(0, PREEMPTION_OFF),
            call(0, 14),
            call(1, PREEMPTION_ON),
            [0xb7, 0, 0, 0, 1, 0, 0x50, 0x70],
            call(0, PREEMPTION_ON),
        ];
        let mut object = object(&slots, 6);
        replace(&mut object, functions);
        object.split_off(128)
    }

    /// The two become what they stand for; other helpers, calls of functions and constants stay.
    #[test]
    fn calls_are_replaced() {
        let kept = [call(0, 14), call(1, PREEMPTION_ON), [0xb7, 0, 0, 0, 1, 0, 0x50, 0x70]].concat();
        let with = replaced(Some([300, 301]));
        assert_eq!(with, [&call(2, 300)[..], &kept, &call(2, 301)].concat());
        assert_eq!(replaced(None), [&NOTHING[..], &kept, &NOTHING].concat());
    }

    /// Every program switches preemption off once and on at each of its ends; none of the two is left in the object.
    #[test]
    fn the_real_object() {
        let mut object = crate::kernel::object::bytes().to_vec();
        if object.is_empty() {
            return;
        }
        let count = |object: &[u8], src: u8, id: u32| {
            let is_it = |at: &usize| object[*at..*at + SLOT] == call(src, id);
            code::instructions(object).iter().filter(|at| is_it(at)).count()
        };
        let (off, on) = (count(&object, 0, PREEMPTION_OFF), count(&object, 0, PREEMPTION_ON));
        assert!(off == 7 && on >= off, "{off} off, {on} on");
        replace(&mut object, Some([300, 301]));
        assert_eq!([0, 2].map(|src| count(&object, src, PREEMPTION_OFF)), [0, 0]);
        assert_eq!((count(&object, 2, 300), count(&object, 2, 301)), (off, on));
    }
}
