//! arm64: the same two questions, answered by looking at fixed 32-bit words. Not proved on a running arm64 node yet.
//!
//! Stack check (`stacksplit` in cmd/internal/obj/arm64/obj7.go): a load of `[x28, #16]`, a compare with the stack
//! pointer (or with what the frame leaves of it), and a conditional branch, `b.ls` or `b.lo`. The kernel simulates
//! branches, `ret` among them (arch/arm64/kernel/probes/decode-insn.c), so both kinds of site are cheap. `g` is in X28
//! in every Go version.

use super::{Code, RawSite};
use crate::target::error::SiteRefusal;
use crate::target::site::{GSource, Price};

/// Huge frames take nine instructions up to the branch.
const LOOK_AHEAD: usize = 12;

/// The site where a call begins.
pub(crate) fn start(code: Code<'_>) -> Result<RawSite, SiteRefusal> {
    let mut guard_loaded = false;
    for (vaddr, word) in words(code).take(LOOK_AHEAD) {
        if loads_guard(word) {
            guard_loaded = true;
        } else if let Some((condition, to)) = conditional_branch(vaddr, word) {
            // LS and LO end the check; the huge form also has LO (borrow) and EQ before its last branch.
            if guard_loaded && condition == LS && to > vaddr && code.contains(to) {
                return Ok(site(vaddr, Price::Emulated));
            }
        } else if is_branch(word) {
            break;
        }
    }
    if code.bytes.len() < 4 {
        return Err(SiteRefusal::Undecodable(code.entry));
    }
    Ok(site(code.entry, Price::SingleStep))
}

/// Addresses of all `ret` instructions.
pub(crate) fn returns(code: Code<'_>, leaves_to: &dyn Fn(u64) -> bool) -> Result<Vec<RawSite>, SiteRefusal> {
    let mut sites = Vec::new();
    for (at, word) in words(code) {
        if word == 0xd65f_0bff || word == 0xd65f_0fff {
            // RETAA, RETAB: Go does not emit them.
            return Err(SiteRefusal::ReturnForm(at));
        }
        if word & !(0x1f << 5) == 0xd65f_0000 {
            sites.push(site(at, Price::Emulated));
        }
        let to = jump(at, word).or_else(|| conditional_branch(at, word).map(|(_, to)| to));
        if let Some(to) = to.filter(|to| !code.contains(*to) && !leaves_to(*to)) {
            return Err(SiteRefusal::TailJump { at, to });
        }
    }
    Ok(sites)
}

/// `adrp` with the `add`, `ldr` or `str` (64 bit) that completes the address.
pub(crate) fn references(code: Code<'_>) -> Vec<u64> {
    let mut pages: [Option<u64>; 32] = [None; 32];
    let mut found = Vec::new();
    for (at, word) in words(code) {
        let (to, from) = ((word & 0x1f) as usize, (word >> 5 & 0x1f) as usize);
        let immediate = u64::from(word >> 10 & 0xfff);
        if word & 0x9f00_0000 == 0x9000_0000 {
            let offset = (word >> 5 & 0x7ffff) << 2 | word >> 29 & 3;
            let pages_away = i64::from((offset << 11).cast_signed() >> 11);
            pages[to] = Some((at & !0xfff).wrapping_add_signed(pages_away << 12));
        } else if word & 0xffc0_0000 == 0x9100_0000 {
            // add xD, xN, #imm
            found.extend(pages[from].map(|page| page.wrapping_add(immediate)));
            pages[to] = None;
        } else if word & 0xff80_0000 == 0xf900_0000 {
            // str or ldr xT, [xN, #imm]
            found.extend(pages[from].map(|page| page.wrapping_add(8 * immediate)));
            if word & 0x0040_0000 != 0 {
                pages[to] = None;
            }
        }
    }
    found
}

/// Condition code of `b.ls`: unsigned lower or same.
const LS: u32 = 9;

fn words(code: Code<'_>) -> impl Iterator<Item = (u64, u32)> {
    code.bytes.chunks_exact(4).enumerate().map(move |(index, word)| {
        (code.entry + 4 * index as u64, u32::from_le_bytes(word.try_into().expect("chunks of four")))
    })
}

/// `ldr xN, [x28, #16]` (or #24, the guard of the system stack).
fn loads_guard(word: u32) -> bool {
    let base = word >> 5 & 0x1f;
    let offset = (word >> 10 & 0xfff) * 8;
    word & 0xffc0_0000 == 0xf940_0000 && base == 28 && matches!(offset, 16 | 24)
}

/// `b.cond`: condition and target.
fn conditional_branch(at: u64, word: u32) -> Option<(u32, u64)> {
    let is = word & 0xff00_0010 == 0x5400_0000;
    is.then(|| (word & 0xf, target(at, word >> 5 & 0x7ffff, 19)))
}

/// `b`: target.
fn jump(at: u64, word: u32) -> Option<u64> {
    (word & 0xfc00_0000 == 0x1400_0000).then(|| target(at, word & 0x03ff_ffff, 26))
}

/// Any instruction after which the next word may not run.
fn is_branch(word: u32) -> bool {
    // b, bl; cbz, cbnz, tbz, tbnz; br, blr, ret.
    word & 0x7c00_0000 == 0x1400_0000
        || word & 0x7c00_0000 == 0x3400_0000
        || word & 0xfe00_0000 == 0xd600_0000
}

/// A signed word offset of `bits` bits from `at`.
fn target(at: u64, offset: u32, bits: u32) -> u64 {
    let shift = 32 - bits;
    let words = i64::from((offset << shift).cast_signed() >> shift);
    at.wrapping_add_signed(words * 4)
}

fn site(vaddr: u64, price: Price) -> RawSite {
    RawSite { vaddr, len: 4, price, g: Some(GSource::Register) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::abi::Convention;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn code(bytes: &[u8]) -> Code<'_> {
        Code { entry: 0x1000, bytes, convention: Convention::Registers }
    }

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;

    /// The small check: ldr x16,[x28,#16]; cmp sp,x16; b.ls.
    #[test]
    fn small_check() {
        let body = bytes(&[0xf940_0b90, 0xeb30_63ff, 0x5400_0089, NOP, RET, NOP, RET]);
        let found = start(code(&body)).unwrap();
        assert_eq!((found.vaddr, found.price), (0x1008, Price::Emulated));
    }

    /// The huge check has a b.lo before the b.ls.
    #[test]
    fn huge_check() {
        // ldr x16; subs x17,sp,x27; b.lo; cmp x17,x16; b.ls
        let body = bytes(&[0xf940_0b90, 0xeb3b_63f1, 0x5400_00a3, 0xeb10_023f, 0x5400_0069, NOP, NOP, RET]);
        assert_eq!(start(code(&body)).unwrap().vaddr, 0x1010);
    }

    /// Without a check the first word is the site, at full price.
    #[test]
    fn no_check() {
        let body = bytes(&[NOP, RET]);
        let found = start(code(&body)).unwrap();
        assert_eq!((found.vaddr, found.price), (0x1000, Price::SingleStep));
        // A b.ls without a guard load is an ordinary branch.
        let body = bytes(&[0xeb30_63ff, 0x5400_0029, RET]);
        assert_eq!(start(code(&body)).unwrap().vaddr, 0x1000);
        assert!(start(code(&[1, 2])).is_err());
    }

    /// A page and what completes it; another register, or one that was overwritten, completes nothing.
    #[test]
    fn data_references() {
        // adrp x1, +2 pages; ldr x2,[x1,#16]; add x3,x1,#8; str x2,[x4,#8]; adrp x5, -1 page; ldr x5,[x5]; ldr x6,[x5]
        let body = bytes(&[
            0xd000_0001,
            0xf940_0822,
            0x9100_2023,
            0xf900_0482,
            0xf0ff_ffe5,
            0xf940_00a5,
            0xf940_00a6,
        ]);
        assert_eq!(references(code(&body)), [0x3010, 0x3008, 0]);
    }

    /// `ret` through any register; jumps out of the function are refused, calls are not jumps.
    #[test]
    fn returns_and_tail_jumps() {
        let no = |_: u64| false;
        let body = bytes(&[0x9400_0400, RET, 0xd65f_0080]);
        let found: Vec<u64> = returns(code(&body), &no).unwrap().iter().map(|s| s.vaddr).collect();
        assert_eq!(found, [0x1004, 0x1008]);
        let out = bytes(&[0x1400_0400, RET]);
        assert_eq!(returns(code(&out), &no), Err(SiteRefusal::TailJump { at: 0x1000, to: 0x2000 }));
        assert!(returns(code(&out), &|to| to == 0x2000).is_ok());
        let back = bytes(&[RET, 0x17ff_ffff]);
        assert_eq!(returns(code(&back), &no).unwrap().len(), 1);
        assert!(matches!(returns(code(&bytes(&[0xd65f_0bff])), &no), Err(SiteRefusal::ReturnForm(_))));
    }
}
