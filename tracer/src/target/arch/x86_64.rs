//! amd64: the returns of a function, by decoding it from its first to its last instruction.
//!
//! A linear sweep is right for what Go's compiler emits: no data between instructions, padding of `int3`. Whatever
//! does not fit (an undecodable byte, a jump to another function) makes the function unusable instead of doubtful.

use iced_x86::{Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction};

use super::{Code, RawSite};
use crate::target::abi::Convention;
use crate::target::error::SiteRefusal;
use crate::target::site::{GSource, Price};

/// Instructions of the function in order; stops behind an undecodable one.
pub(super) fn decode(code: Code<'_>) -> impl Iterator<Item = Instruction> {
    let mut decoder = Decoder::with_ip(64, code.bytes, code.entry, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}

/// Addresses of all `ret` instructions.
pub(crate) fn returns(code: Code<'_>, leaves_to: &dyn Fn(u64) -> bool) -> Result<Vec<RawSite>, SiteRefusal> {
    let mut sites = Vec::new();
    for instruction in decode(code) {
        if instruction.is_invalid() {
            return Err(SiteRefusal::Undecodable(instruction.ip()));
        }
        match instruction.flow_control() {
            FlowControl::Return => sites.push(ret(code, &instruction)?),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let to = instruction.near_branch_target();
                if !code.contains(to) && !leaves_to(to) {
                    return Err(SiteRefusal::TailJump { at: instruction.ip(), to });
                }
            }
            _ => {}
        }
    }
    Ok(sites)
}

/// Direct calls of a function that `to` accepts. The kernel emulates `call rel32`, so these are cheap sites in the middle
/// of a function, where the callee is about to begin.
pub(crate) fn calls(code: Code<'_>, to: &dyn Fn(u64) -> bool) -> Result<Vec<RawSite>, SiteRefusal> {
    let mut sites = Vec::new();
    for instruction in decode(code) {
        if instruction.is_invalid() {
            return Err(SiteRefusal::Undecodable(instruction.ip()));
        }
        let direct = instruction.code() == Opcode::Call_rel32_64 && instruction.len() == 5;
        if direct && to(instruction.near_branch_target()) {
            let g = match code.convention {
                Convention::Registers => Some(GSource::Register),
                Convention::Stack => None,
            };
            sites.push(RawSite { vaddr: instruction.ip(), len: 5, price: Price::Emulated, g });
        }
    }
    Ok(sites)
}

/// Operands relative to the instruction pointer, up to an undecodable instruction.
pub(crate) fn references(code: Code<'_>) -> Vec<u64> {
    decode(code)
        .take_while(|instruction| !instruction.is_invalid())
        .filter(Instruction::is_ip_rel_memory_operand)
        .map(|instruction| instruction.ip_rel_memory_address())
        .collect()
}

fn ret(code: Code<'_>, instruction: &Instruction) -> Result<RawSite, SiteRefusal> {
    let at = usize::try_from(instruction.ip() - code.entry).unwrap_or(usize::MAX);
    let plain =
        instruction.code() == Opcode::Retnq && instruction.len() == 1 && code.bytes.get(at) == Some(&0xc3);
    if !plain {
        return Err(SiteRefusal::ReturnForm(instruction.ip()));
    }
    let g = match code.convention {
        Convention::Registers => Some(GSource::Register),
        Convention::Stack => None,
    };
    Ok(RawSite { vaddr: instruction.ip(), len: 1, price: Price::SingleStep, g })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> Code<'_> {
        Code { entry: 0x1000, bytes, convention: Convention::Registers }
    }

    fn ret_offsets(bytes: &[u8]) -> Result<Vec<u64>, SiteRefusal> {
        let sites =
            super::super::returns(crate::target::elf::Machine::X86_64, code(bytes), &|to| to == 0x9000)?;
        Ok(sites.iter().map(|site| site.vaddr - 0x1000).collect())
    }

    /// A 0xC3 inside another instruction is no return; padding is fine.
    #[test]
    fn returns_are_decoded() {
        // mov eax, 0xc3c3c3c3; ret; endbr64; ret; int3 padding
        let bytes = b"\xb8\xc3\xc3\xc3\xc3\xc3\xf3\x0f\x1e\xfa\xc3\xcc\xcc\xcc";
        assert_eq!(ret_offsets(bytes), Ok(vec![5, 10]));
    }

    /// What cannot be understood whole is refused.
    #[test]
    fn doubt_is_refused() {
        assert_eq!(ret_offsets(b"\xcc\xcc"), Err(SiteRefusal::NoReturn));
        assert_eq!(ret_offsets(b"\x90\x06\xc3"), Err(SiteRefusal::Undecodable(0x1001)));
        assert_eq!(ret_offsets(b"\xc2\x08\x00"), Err(SiteRefusal::ReturnForm(0x1000)));
        assert_eq!(ret_offsets(b"\xf3\xc3"), Err(SiteRefusal::ReturnForm(0x1000)));
        // A last instruction that is cut off.
        assert_eq!(ret_offsets(b"\xc3\xb8\x00"), Err(SiteRefusal::Undecodable(0x1001)));
    }

    /// A direct call is found by where it goes, whatever lies around it.
    #[test]
    fn direct_calls() {
        // call 0x2000; call rax; call 0x3000; ret
        let bytes = b"\xe8\xfb\x0f\x00\x00\xff\xd0\xe8\xf4\x1f\x00\x00\xc3";
        let sites = calls(code(bytes), &|to| to == 0x3000).unwrap();
        assert_eq!(sites.iter().map(|site| (site.vaddr, site.len)).collect::<Vec<_>>(), [(0x1007, 5)]);
        assert!(calls(code(b"\x06"), &|_| true).is_err());
    }

    /// Loads, stores and addresses relative to the instruction pointer are references; jumps and the stack are not.
    #[test]
    fn data_references() {
        // mov rax,[rip+0x100]; lea rcx,[rip-0x10]; mov [rsp+8],rax; jmp +0x100; mov rax,[rip+0x100] again
        let bytes = b"\x48\x8b\x05\x00\x01\x00\x00\x48\x8d\x0d\xf0\xff\xff\xff\x48\x89\x44\x24\x08\
            \xe9\x00\x01\x00\x00\x48\x8b\x05\xe8\x00\x00\x00";
        let found = super::super::references(crate::target::elf::Machine::X86_64, code(bytes));
        assert_eq!(found, [0xffe, 0x1107]);
        assert!(references(code(b"\x06\x48\x8b\x05\x00\x01\x00\x00")).is_empty());
    }

    /// A jump out of the function is a tail call, unless it goes where the caller allows.
    #[test]
    fn tail_jumps() {
        // jmp +0x100; ret
        let out = b"\xe9\x00\x01\x00\x00\xc3";
        assert_eq!(ret_offsets(out), Err(SiteRefusal::TailJump { at: 0x1000, to: 0x1105 }));
        // je +0x100; ret
        let conditional = b"\x0f\x84\x00\x01\x00\x00\xc3";
        assert!(matches!(ret_offsets(conditional), Err(SiteRefusal::TailJump { .. })));
        // jmp 0x9000 (allowed); jmp back to the start; ret
        let allowed = b"\xe9\xfb\x7f\x00\x00\xeb\xf9\xc3";
        assert_eq!(ret_offsets(allowed), Ok(vec![7]));
    }
}
