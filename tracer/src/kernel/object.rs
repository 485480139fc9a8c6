//! The embedded eBPF object.

use super::{atomics, preemption};

/// An aligned copy, as the ELF reader wants it.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/plegtrace.bpf.o"));

/// The object's bytes; empty when this binary was built without it.
pub(super) fn bytes() -> &'static [u8] {
    OBJECT
}

/// The object as this kernel takes it. `preemption`: see [`LoadOptions`](super::LoadOptions).
pub(super) fn for_this_kernel(object: &[u8], preemption: Option<[u32; 2]>) -> Vec<u8> {
    let mut object = object.to_vec();
    atomics::for_this_kernel(&mut object);
    preemption::for_this_kernel(&mut object, preemption);
    object
}

/// Was this binary built without its eBPF programs (plain `cargo build`)?
#[must_use]
pub fn is_stub() -> bool {
    OBJECT.is_empty()
}

#[cfg(test)]
mod tests {
    use aya_obj::{Object, ProgramSection, generated::bpf_insn};

    use super::bytes;

    /// `BPF_FUNC_tail_call` (include/uapi/linux/bpf.h).
    const TAIL_CALL: i32 = 12;

    fn is_tail_call(insn: &bpf_insn) -> bool {
        const CALL: u8 = 0x85;
        insn.code == CALL && insn.src_reg() == 0 && insn.imm == TAIL_CALL
    }

    /// Without one the kernel runs it on a stack that another task may write over (tracer-ebpf/src/stack.rs).
    #[test]
    fn every_uprobe_program_has_a_tail_call() {
        if bytes().is_empty() {
            return;
        }
        let object = Object::parse(bytes()).unwrap();
        let uprobes: Vec<_> = object
            .programs
            .iter()
            .filter(|(_, program)| matches!(program.section, ProgramSection::UProbe { .. }))
            .collect();
        assert!(uprobes.len() >= 4, "{} uprobe programs", uprobes.len());
        for (name, program) in uprobes {
            let function = &object.functions[&program.function_key()];
            assert!(function.instructions.iter().any(is_tail_call), "{name}");
        }
    }
}
