//! amd64: does a function keep an argument where its caller left room for it?
//!
//! In the register ABI the caller leaves a word above the return address for every argument in a register, in their
//! order ("spill area", <https://go.dev/s/regabi>). The compiler lets an argument that is needed across calls live
//! there, and stores it right behind the stack check. In the stack ABI arguments are in these words from the start.
//! So both have argument `n` at `return address + 8 + 8 * n`; in the register ABI only where the store is seen.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::Code;
use super::x86_64::decode;
use crate::target::abi::Convention;

/// Integer arguments in the order of the register ABI.
const ARGUMENTS: [Register; 4] = [Register::RAX, Register::RBX, Register::RCX, Register::RDI];
/// Stack check, frame, and the stores of all arguments and empty results.
const LOOK_AHEAD: usize = 40;

/// Is the function's integer argument `n` in its home from the beginning on, on every path?
pub(crate) fn keeps(code: Code<'_>, n: usize) -> bool {
    let Some(argument) = ARGUMENTS.get(n) else { return false };
    if code.convention == Convention::Stack {
        return true;
    }
    let home = 8 + 8 * n as u64;
    let mut info = InstructionInfoFactory::new();
    let mut depth = 0;
    for instruction in decode(code).take(LOOK_AHEAD) {
        if stores(&instruction, *argument) && instruction.memory_displacement64() == depth + home {
            return true;
        }
        let used = info.info(&instruction).used_registers();
        let writes = |register| {
            used.iter().any(|one| one.register().full_register() == register && written(one.access()))
        };
        // Only the stack check may branch: whoever comes back from there begins again.
        let straight = match instruction.flow_control() {
            FlowControl::Next => true,
            FlowControl::ConditionalBranch => depth == 0,
            _ => false,
        };
        if instruction.is_invalid() || writes(*argument) || !straight {
            return false;
        }
        match grows(&instruction) {
            Some(bytes) => depth += bytes,
            None if writes(Register::RSP) => return false,
            None => {}
        }
    }
    false
}

fn written(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
}

/// `mov [rsp+N], register`.
fn stores(instruction: &Instruction, register: Register) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && (instruction.memory_base(), instruction.memory_index()) == (Register::RSP, Register::None)
        && instruction.op1_kind() == OpKind::Register
        && instruction.op1_register() == register
}

/// Bytes by which the stack grows: `push`, `sub rsp, N`, `add rsp, -N`.
fn grows(instruction: &Instruction) -> Option<u64> {
    let on_stack = || {
        (instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP)
            .then(|| instruction.try_immediate(1).ok())
            .flatten()
    };
    match instruction.mnemonic() {
        Mnemonic::Push => Some(8),
        Mnemonic::Sub => on_stack().filter(|bytes| *bytes < 1 << 31),
        Mnemonic::Add => on_stack().map(u64::wrapping_neg).filter(|bytes| *bytes < 1 << 31),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps_of(parts: &[&[u8]]) -> bool {
        let bytes = [&parts.concat()[..], &[0xcc; 64]].concat();
        keeps(Code { entry: 0x1000, bytes: &bytes, convention: Convention::Registers }, 3)
    }

    /// lea r12,[rsp-0x80]; cmp r12,[r14+16]; jbe
    const CHECK: &[u8] = b"\x4c\x8d\x64\x24\x80\x4d\x3b\x66\x10\x76\x40";
    /// push rbp; mov rbp,rsp
    const PUSH: &[u8] = b"\x55\x48\x89\xe5";
    /// sub rsp,0xf8
    const SUB: &[u8] = b"\x48\x81\xec\xf8\x00\x00\x00";
    /// mov [rsp+0x108],rax
    const RECEIVER: &[u8] = b"\x48\x89\x84\x24\x08\x01\x00\x00";
    /// mov [rsp+0x120],rdi
    const REQUEST: &[u8] = b"\x48\x89\xbc\x24\x20\x01\x00\x00";
    /// mov [rsp+0x118],rdi
    const WITHOUT_PUSH: &[u8] = b"\x48\x89\xbc\x24\x18\x01\x00\x00";

    /// Go 1.21 and later push the frame pointer; before, it is saved inside the frame. A frame of 128 bytes is made by
    /// adding -128.
    #[test]
    fn stored_behind_the_stack_check() {
        assert!(keeps_of(&[CHECK, PUSH, SUB, RECEIVER, REQUEST]));
        assert!(keeps_of(&[CHECK, SUB, RECEIVER, WITHOUT_PUSH]));
        // add rsp,-0x80; mov [rsp+0xa0],rdi
        assert!(keeps_of(&[CHECK, b"\x48\x83\xc4\x80", b"\x48\x89\xbc\x24\xa0\x00\x00\x00"]));
    }

    /// Another place, another register, a changed register, a call, a branch or an unknown stack before the store.
    #[test]
    fn doubt_is_no() {
        assert!(!keeps_of(&[CHECK, PUSH, SUB, RECEIVER, WITHOUT_PUSH]));
        assert!(!keeps_of(&[CHECK, SUB, RECEIVER, REQUEST]));
        // mov [rsp+0x120],rsi
        assert!(!keeps_of(&[CHECK, PUSH, SUB, b"\x48\x89\xb4\x24\x20\x01\x00\x00"]));
        // mov rdi,rax; xor edi,edi; call +0; je +2; and rsp,-16; pop rbp; jmp +0; ret; undecodable
        let before: [&[u8]; 9] = [
            b"\x48\x89\xc7",
            b"\x31\xff",
            b"\xe8\x00\x00\x00\x00",
            b"\x74\x02",
            b"\x48\x83\xe4\xf0",
            b"\x5d",
            b"\xeb\x00",
            b"\xc3",
            b"\x06",
        ];
        for bytes in before {
            assert!(!keeps_of(&[CHECK, PUSH, SUB, bytes, REQUEST]), "{bytes:x?}");
        }
        assert!(!keeps_of(&[]));
        // nop, too often
        assert!(!keeps_of(&[CHECK, PUSH, SUB, &[0x90; 50], REQUEST]));
    }

    /// In the stack ABI nothing has to be stored; of later arguments nothing is known.
    #[test]
    fn stack_abi() {
        let code = Code { entry: 0x1000, bytes: &[], convention: Convention::Stack };
        assert!(keeps(code, 3));
        assert!(!keeps(code, 4));
    }
}
