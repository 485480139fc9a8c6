//! amd64: the probe site at the start of a function.
//!
//! Go's stack check (`stacksplit` in cmd/internal/obj/x86/obj6.go) comes in three sizes, for a `g` in R14 (register
//! ABI) or freshly loaded into RCX (stack ABI):
//!
//! ```text
//! small   cmp rsp, [g+16]                                jbe
//! large   lea r12|rax, [rsp-N];  cmp r12|rax, [g+16]     jbe
//! huge    mov r12, rsp; sub r12, N; jb; cmp r12, [g+16]; jbe
//!         (≤ 1.16: mov rsi, [g+16]; cmp rsi, M; je; lea rax, [rsp+K]; sub rax, rsi; cmp rax, L; jbe)
//! ```
//!
//! At the `jbe` all arguments are still where the caller put them, and the kernel emulates it
//! (`branch_setup_xol_ops` in arch/x86/kernel/uprobes.c: nop, jmp, jcc, call). From Go 1.21 on `push rbp` follows
//! directly; it is emulated too (`push_setup_xol_ops`) and is not passed a second time when the stack grows, so it is
//! preferred.

use iced_x86::{Code as Opcode, Instruction, Mnemonic, OpKind, Register};

use super::x86_64::decode;
use super::{Code, RawSite, TlsAccess};
use crate::target::abi::Convention;
use crate::target::error::SiteRefusal;
use crate::target::site::{GSource, Price};

/// A stack check has at most nine instructions (huge frame, `g` loaded in two steps).
const LOOK_AHEAD: usize = 10;

/// The site where a call begins.
pub(crate) fn start(code: Code<'_>) -> Result<RawSite, SiteRefusal> {
    let first: Vec<Instruction> = decode(code).take(LOOK_AHEAD + 1).collect();
    let Some(entry) = first.first().filter(|entry| !entry.is_invalid()) else {
        return Err(SiteRefusal::Undecodable(code.entry));
    };
    if let Some((index, g)) = stack_check(code, &first) {
        let after = first.get(index + 1).filter(|next| is_push_rbp(next));
        return Ok(site(after.unwrap_or(&first[index]), Price::Emulated, Some(g)));
    }
    let g = match code.convention {
        Convention::Registers => Some(GSource::Register),
        Convention::Stack => None,
    };
    let price = if is_push_rbp(entry) { Price::Emulated } else { Price::SingleStep };
    if entry.mnemonic() == Mnemonic::Nop && entry.len() == 5 {
        return Err(SiteRefusal::FiveByteNop(code.entry));
    }
    Ok(site(entry, price, g))
}

/// How the first instructions load `g`: `mov rcx, fs:[disp]`, or the displacement in RCX first.
pub(crate) fn tls_access(code: Code<'_>) -> Option<TlsAccess> {
    let mut in_register: Option<(Register, TlsAccess)> = None;
    for instruction in decode(code).take(LOOK_AHEAD) {
        if instruction.mnemonic() != Mnemonic::Mov || instruction.op0_kind() != OpKind::Register {
            if in_register.is_some() || instruction.is_invalid() {
                return None;
            }
            continue;
        }
        let target = instruction.op0_register();
        if instruction.op1_kind() != OpKind::Memory {
            let immediate = matches!(instruction.op1_kind(), OpKind::Immediate32to64 | OpKind::Immediate64);
            if immediate {
                let value = i64::from_ne_bytes(instruction.immediate(1).to_ne_bytes());
                in_register = Some((target, TlsAccess::Offset(i32::try_from(value).ok()?)));
            }
            continue;
        }
        if instruction.segment_prefix() == Register::FS {
            let displacement = i32::try_from(instruction.memory_displacement64().cast_signed()).ok()?;
            return match (instruction.memory_base(), in_register) {
                (Register::None, _) => Some(TlsAccess::Offset(displacement)),
                (base, Some((held, access))) if base == held && displacement == 0 => Some(access),
                _ => None,
            };
        }
        if instruction.is_ip_rel_memory_operand() {
            in_register = Some((target, TlsAccess::Slot(instruction.ip_rel_memory_address())));
        }
    }
    None
}

/// Index of the stack check's `jbe` among the first instructions, and where `g` is there.
fn stack_check(code: Code<'_>, first: &[Instruction]) -> Option<(usize, GSource)> {
    let mut guard: Option<GSource> = None;
    for (index, instruction) in first.iter().enumerate().take(LOOK_AHEAD) {
        match instruction.mnemonic() {
            Mnemonic::Jbe => {
                let forward = instruction.near_branch_target() > instruction.ip();
                let inside = forward && code.contains(instruction.near_branch_target());
                return guard.filter(|_| inside).map(|g| (index, g));
            }
            Mnemonic::Cmp | Mnemonic::Mov if reads_guard(instruction).is_some() => {
                guard = reads_guard(instruction);
            }
            // The branches of the huge form go to the same place as the last one.
            Mnemonic::Jb | Mnemonic::Je | Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Sub | Mnemonic::Cmp => {}
            _ => return None,
        }
        if writes_stack_pointer(instruction) {
            return None;
        }
    }
    None
}

/// `[g+16]` (or 24, the guard of the system stack) as an operand: where `g` is.
fn reads_guard(instruction: &Instruction) -> Option<GSource> {
    let has_memory = (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory);
    let plain = has_memory
        && instruction.segment_prefix() == Register::None
        && instruction.memory_index() == Register::None
        && matches!(instruction.memory_displacement64(), 16 | 24);
    match instruction.memory_base() {
        Register::R14 if plain => Some(GSource::Register),
        Register::RCX if plain => Some(GSource::Rcx),
        _ => None,
    }
}

fn writes_stack_pointer(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::RSP
        && instruction.mnemonic() != Mnemonic::Cmp
}

fn is_push_rbp(instruction: &Instruction) -> bool {
    instruction.code() == Opcode::Push_r64
        && instruction.op0_register() == Register::RBP
        && instruction.len() == 1
}

fn site(instruction: &Instruction, price: Price, g: Option<GSource>) -> RawSite {
    RawSite { vaddr: instruction.ip(), len: instruction.len(), price, g }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: [u8; 64] = [0xcc; 64];

    /// (offset of the site, price, g) for a function that begins with these bytes.
    fn start_of(bytes: &[u8], convention: Convention) -> (u64, Price, Option<GSource>) {
        let body = [bytes, &TAIL].concat();
        let site = start(Code { entry: 0x1000, bytes: &body, convention }).unwrap();
        (site.vaddr - 0x1000, site.price, site.g)
    }

    fn registers(bytes: &[u8]) -> (u64, Price, Option<GSource>) {
        start_of(bytes, Convention::Registers)
    }

    fn stack(bytes: &[u8]) -> (u64, Price, Option<GSource>) {
        start_of(bytes, Convention::Stack)
    }

    /// The three sizes of the check in the register ABI, with and without a push behind them.
    #[test]
    fn register_abi_checks() {
        let g = Some(GSource::Register);
        // cmp rsp,[r14+16]; jbe +32; sub rsp,24
        assert_eq!(registers(b"\x49\x3b\x66\x10\x76\x20\x48\x83\xec\x18"), (4, Price::Emulated, g));
        // cmp rsp,[r14+16]; jbe rel32 +32; push rbp
        assert_eq!(registers(b"\x49\x3b\x66\x10\x0f\x86\x20\x00\x00\x00\x55"), (10, Price::Emulated, g));
        // lea r12,[rsp-0x80]; cmp r12,[r14+16]; jbe; push rbp
        assert_eq!(registers(b"\x4c\x8d\x64\x24\x80\x4d\x3b\x66\x10\x76\x20\x55"), (11, Price::Emulated, g));
        // mov r12,rsp; sub r12,0x10000; jb; cmp r12,[r14+16]; jbe
        let huge = b"\x49\x89\xe4\x49\x81\xec\x00\x00\x01\x00\x72\x28\x4d\x3b\x66\x10\x76\x20\x90";
        assert_eq!(registers(huge), (16, Price::Emulated, g));
    }

    /// The check of the stack ABI, g loaded directly, through an immediate and through the GOT.
    #[test]
    fn stack_abi_checks() {
        let g = Some(GSource::Rcx);
        let direct = b"\x64\x48\x8b\x0c\x25\xf8\xff\xff\xff\x48\x3b\x61\x10\x76\x20\x48\x83\xec\x18";
        assert_eq!(stack(direct), (13, Price::Emulated, g));
        // mov rcx,-8; mov rcx,fs:[rcx]; lea rax,[rsp-0x80]; cmp rax,[rcx+16]; jbe rel32
        let immediate = b"\x48\xc7\xc1\xf8\xff\xff\xff\x64\x48\x8b\x09\x48\x8d\x44\x24\x80\x48\x3b\x41\x10\
            \x0f\x86\x20\x00\x00\x00";
        assert_eq!(stack(immediate), (20, Price::Emulated, g));
        // mov rcx,fs:-8; mov rsi,[rcx+16]; cmp rsi,-0x522; je; lea rax,[rsp+0x370]; sub rax,rsi; cmp rax,N; jbe
        let huge =
            b"\x64\x48\x8b\x0c\x25\xf8\xff\xff\xff\x48\x8b\x71\x10\x48\x81\xfe\xde\xfa\xff\xff\x74\x30\
            \x48\x8d\x84\x24\x70\x03\x00\x00\x48\x29\xf0\x48\x3d\x00\x00\x02\x00\x76\x20";
        assert_eq!(stack(huge), (39, Price::Emulated, g));
    }

    /// Without a check: `push rbp` if it is first, else the first instruction at full price.
    #[test]
    fn functions_without_check() {
        assert_eq!(registers(b"\x55\x48\x89\xe5"), (0, Price::Emulated, Some(GSource::Register)));
        assert_eq!(registers(b"\x48\x83\xec\x18\x76\x02"), (0, Price::SingleStep, Some(GSource::Register)));
        assert_eq!(stack(b"\x48\x83\xec\x18"), (0, Price::SingleStep, None));
        // A jbe that compares something else is no stack check.
        assert_eq!(registers(b"\x48\x39\xd8\x76\x02").0, 0);
    }

    /// A five-byte nop is never a site, and an undecodable start is refused.
    #[test]
    fn refused_starts() {
        let refused = |bytes: &[u8]| {
            start(Code { entry: 0x1000, bytes, convention: Convention::Registers }).unwrap_err()
        };
        assert_eq!(refused(b"\x0f\x1f\x44\x00\x00\xc3"), SiteRefusal::FiveByteNop(0x1000));
        assert_eq!(refused(b"\x06"), SiteRefusal::Undecodable(0x1000));
        assert_eq!(refused(b""), SiteRefusal::Undecodable(0x1000));
    }

    /// The three encodings of a thread-local load.
    #[test]
    fn tls_encodings() {
        let tls = |bytes: &[u8]| tls_access(Code { entry: 0x1000, bytes, convention: Convention::Stack });
        assert_eq!(tls(b"\x64\x48\x8b\x0c\x25\xf8\xff\xff\xff"), Some(TlsAccess::Offset(-8)));
        assert_eq!(tls(b"\x48\xc7\xc1\xb0\xff\xff\xff\x64\x48\x8b\x09"), Some(TlsAccess::Offset(-80)));
        assert_eq!(tls(b"\x48\x8b\x0d\x00\x01\x00\x00\x64\x48\x8b\x09"), Some(TlsAccess::Slot(0x1107)));
        assert_eq!(tls(b"\x49\x3b\x66\x10\x76\x20\xc3"), None);
    }
}
