//! The eBPF object → how much stack its deepest chain of calls takes.
//!
//! Linux before 6.13 refuses a program when the frames of a chain of calls, each rounded up to 32 bytes, take more than 512 bytes
//! together (kernel/bpf/verifier.c, `check_max_stack_depth`); newer ones with a JIT may give each program a stack of its own.
//! So a kernel that builds here says nothing about those that matter.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SymbolKind};

/// Bytes of stack for a chain of calls: include/linux/filter.h, `MAX_BPF_STACK`.
const MOST: u32 = 512;
/// What a frame is rounded up to.
const STEP: u32 = 32;
/// The register with the address where the frame ends.
const FRAME: u8 = 10;

/// Where a function begins: number of the section, place in it.
type Place = (usize, u64);

/// A function of the object.
#[derive(Debug, Default)]
struct Function {
    name: String,
    /// Bytes of its frame.
    frame: u32,
    calls: Vec<Place>,
}

/// Chains of calls that take too much stack.
///
/// # Errors
/// When the object cannot be read, or its functions call themselves.
pub(super) fn faults(file: &object::File<'_>) -> Result<Vec<String>> {
    let functions = functions(file)?;
    let mut faults = Vec::new();
    for (place, function) in &functions {
        let chain = deepest(&functions, *place, 0)?;
        if chain.bytes > MOST && !functions.values().any(|other| other.calls.contains(place)) {
            faults.push(format!(
                "{} needs {} bytes of stack, {MOST} are allowed: {}",
                function.name,
                chain.bytes,
                chain.names.join(" → ")
            ));
        }
    }
    Ok(faults)
}

fn functions(file: &object::File<'_>) -> Result<BTreeMap<Place, Function>> {
    let mut functions = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
        let index = symbol.section_index().context("a function without a section")?;
        let section = file.section_by_index(index)?;
        let code = section.data_range(symbol.address(), symbol.size())?.context("a function without code")?;
        let mut function =
            Function { name: symbol.name()?.to_owned(), frame: frame(code), calls: Vec::new() };
        let inside = |at: &u64| (symbol.address()..symbol.address() + symbol.size()).contains(at);
        let targets: BTreeMap<u64, RelocationTarget> =
            section.relocations().filter(|(at, _)| inside(at)).map(|(at, it)| (at, it.target())).collect();
        for (at, step) in calls(code) {
            let at = symbol.address() + at;
            function.calls.push(match targets.get(&at) {
                Some(RelocationTarget::Symbol(target)) => {
                    let target = file.symbol_by_index(*target)?;
                    let of = target.section_index().context("a call of something that is not here")?;
                    // A section as target: the instruction says how far into it.
                    let into = if target.kind() == SymbolKind::Section { offset(0, step)? } else { 0 };
                    (of.0, target.address() + into)
                }
                _ => (index.0, offset(at, step)?),
            });
        }
        functions.insert((index.0, symbol.address()), function);
    }
    Ok(functions)
}

/// What a call with this step, at `at`, calls.
fn offset(at: u64, step: i32) -> Result<u64> {
    at.checked_add_signed((i64::from(step) + 1) * 8).context("a call of what is before the code")
}

/// An instruction: operation, registers (destination and source), offset, immediate. Documentation/bpf/standardization/
/// instruction-set.rst.
fn parts(insn: &[u8]) -> (u8, u8, u8, i16, i32) {
    let offset = i16::from_le_bytes([insn[2], insn[3]]);
    let immediate = i32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
    (insn[0], insn[1] & 15, insn[1] >> 4, offset, immediate)
}

/// Calls of functions, as opposed to helpers: where, and by how many instructions.
fn calls(code: &[u8]) -> impl Iterator<Item = (u64, i32)> {
    let call = |(number, insn): (usize, &[u8])| {
        let (operation, _, source, _, step) = parts(insn);
        (operation == super::object::CALL && source == 1).then_some((number as u64 * 8, step))
    };
    code.chunks_exact(8).enumerate().filter_map(call)
}

/// Bytes of the frame: the farthest place below its end that is named.
fn frame(code: &[u8]) -> u32 {
    const MOVE: u8 = 0xbf;
    const ADD_IMMEDIATE: u8 = 0x07;
    const LOAD: u8 = 1;
    const STORE: [u8; 2] = [2, 3];
    let mut lowest = 0_i32;
    // Registers with addresses in the frame: how far from its end.
    let mut known: [Option<i32>; 16] = [None; 16];
    known[usize::from(FRAME)] = Some(0);
    for insn in code.chunks_exact(8) {
        let (operation, to, from, offset, immediate) = parts(insn);
        let (to, from) = (usize::from(to), usize::from(from));
        let class = operation & 7;
        let base = if class == LOAD { known[from] } else { known[to].filter(|_| STORE.contains(&class)) };
        if let Some(base) = base {
            lowest = lowest.min(base + i32::from(offset));
        }
        match operation {
            MOVE => known[to] = known[from],
            ADD_IMMEDIATE => known[to] = known[to].map(|base| base + immediate),
            _ if class != STORE[0] && class != STORE[1] => known[to] = None,
            _ => {}
        }
        known[usize::from(FRAME)] = Some(0);
        lowest = known.into_iter().flatten().fold(lowest, i32::min);
    }
    lowest.unsigned_abs()
}

/// A chain of calls.
struct Chain {
    bytes: u32,
    names: Vec<String>,
}

fn deepest(functions: &BTreeMap<Place, Function>, place: Place, depth: u32) -> Result<Chain> {
    // The kernel allows eight frames.
    ensure!(depth < 16, "functions of the object call themselves");
    let function = functions.get(&place).context("a call of what is no function")?;
    let mut below = Chain { bytes: 0, names: Vec::new() };
    for called in &function.calls {
        let chain = deepest(functions, *called, depth + 1)?;
        if chain.bytes > below.bytes {
            below = chain;
        }
    }
    let bytes = function.frame.max(1).next_multiple_of(STEP);
    below.names.insert(0, format!("{} {bytes}", function.name));
    Ok(Chain { bytes: bytes + below.bytes, ..below })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(operation: u8, to: u8, from: u8, offset: i16, immediate: i32) -> [u8; 8] {
        let ([a, b], [c, d, e, f]) = (offset.to_le_bytes(), immediate.to_le_bytes());
        [operation, from << 4 | to, a, b, c, d, e, f]
    }

    /// Stores, loads and addresses that are handed on count; places that other registers point to do not.
    #[test]
    fn frames() {
        let store = insn(0x7b, FRAME, 1, -40, 0);
        let load = insn(0x79, 1, FRAME, -48, 0);
        let elsewhere = insn(0x7b, 2, 1, -400, 0);
        let address = [insn(0xbf, 2, FRAME, 0, 0), insn(0x07, 2, 0, 0, -96)].concat();
        assert_eq!(frame(&[store, load, elsewhere].concat()), 48);
        assert_eq!(frame(&address), 96);
        let beyond = [address, insn(0x7b, 2, 1, -8, 0).to_vec()].concat();
        assert_eq!(frame(&beyond), 104, "below what the register points to");
        let reused = [insn(0xbf, 2, FRAME, 0, 0), insn(0xb7, 2, 0, 0, 1), insn(0x07, 2, 0, 0, -96)].concat();
        assert_eq!(frame(&reused), 0);
    }

    /// The frames of the deepest chain, each rounded up; a function without a frame takes one too.
    #[test]
    fn chains() {
        let place = |at: u64| (1, at);
        let function = |name: &str, frame, calls: &[u64]| Function {
            name: name.to_owned(),
            frame,
            calls: calls.iter().map(|at| place(*at)).collect(),
        };
        let all = BTreeMap::from([
            (place(0), function("a", 248, &[8, 16])),
            (place(8), function("b", 24, &[16])),
            (place(16), function("c", 0, &[])),
        ]);
        let chain = deepest(&all, place(0), 0).unwrap();
        assert_eq!((chain.bytes, chain.names.join(" ").as_str()), (320, "a 256 b 32 c 32"));
        let itself = BTreeMap::from([(place(0), function("a", 8, &[0]))]);
        assert!(deepest(&itself, place(0), 0).is_err());
    }

    /// A call of a function is told from one of a helper.
    #[test]
    fn calls_of_functions() {
        let code = [insn(0x85, 0, 0, 0, 6), insn(0x85, 0, 1, 0, 5)].concat();
        assert_eq!(calls(&code).collect::<Vec<_>>(), [(8, 5)]);
        assert_eq!((offset(8, 5).unwrap(), offset(0, -1).unwrap()), (56, 0));
    }
}
