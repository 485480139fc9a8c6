//! The text base of a Go binary, from the runtime's own `moduledata`, never from the `.text` section.
//!
//! With external linking `.text` begins with C start-up code and Go's text 0x100 to 0x580 bytes later; from Go 1.26 on
//! the pclntab no longer says where. `moduledata` begins with a pointer to the pclntab, so it is found by searching
//! that pointer: first in its own section (`.go.module`, Go 1.26), then in writable segments, and among the RELA
//! addends where a linker leaves the word itself zero. A hit counts only if its fields describe executable memory.
//!
//! Layouts: `type moduledata` in Go's runtime/symtab.go. Up to 1.15 it begins with the slice `pclntable`; from 1.16 on
//! with the pointer `pcHeader` and five slices. Fields behind `etext` moved in many releases and are not used.

use std::ops::Range;

use super::elf::{Elf, Segment};
use super::error::RefuseReason;
use super::pclntab_header::{Header, Layout};
use super::relocation::Written;
use super::source::u64_at;

const SCAN_CHUNK: u64 = 1 << 20;
/// A pclntab address is found a handful of times in real binaries.
const MAX_HITS: usize = 64;
/// Bytes of moduledata that are read: to the end of `etext` in the newer layout.
const READ: u64 = 192;

/// What moduledata says about the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moduledata {
    /// Its own address.
    pub(crate) vaddr: u64,
    /// `text..etext`.
    pub(crate) text: Range<u64>,
    /// `minpc..maxpc`: the runtime itself insists that these are the first address and the end of the function list.
    pub(crate) functions: Range<u64>,
}

impl Moduledata {
    fn same_code(&self, other: &Self) -> bool {
        self.text == other.text && self.functions == other.functions
    }
}

/// The moduledata of the table with this header.
pub(crate) fn find(elf: &Elf, header: &Header) -> Result<Moduledata, RefuseReason> {
    let mut wrong = None;
    let mut found: Option<Moduledata> = None;
    for hit in hits(elf, header.vaddr)? {
        match read(elf, header, hit) {
            Ok(module) if found.as_ref().is_some_and(|other| !other.same_code(&module)) => {
                return Err(RefuseReason::BadModuledata("two of them disagree about the text"));
            }
            Ok(module) => found = found.or(Some(module)),
            Err(reason) => wrong = Some(reason),
        }
    }
    found.ok_or_else(|| wrong.unwrap_or(RefuseReason::NoModuledata))
}

/// Addresses of words that hold `value` after relocation.
fn hits(elf: &Elf, value: u64) -> Result<Vec<u64>, RefuseReason> {
    let mut hits = Vec::new();
    if let Some(section) = elf.section(".go.module") {
        scan(elf, section.vaddr, section.offset, section.size, value, &mut hits)?;
    }
    if hits.is_empty() {
        let mut budget = elf.source.len();
        for Segment { vaddr, offset, filesz, .. } in elf.loads.iter().filter(|load| load.writable) {
            let Some(left) = budget.checked_sub(*filesz) else { break };
            budget = left;
            scan(elf, *vaddr, *offset, *filesz, value, &mut hits)?;
        }
    }
    if elf.pie {
        elf.for_each_relocation(|slot, written| {
            if written == Written::Address(value) && !hits.contains(&slot) && hits.len() < MAX_HITS {
                hits.push(slot);
            }
        })?;
    }
    Ok(hits)
}

fn scan(
    elf: &Elf,
    vaddr: u64,
    offset: u64,
    size: u64,
    value: u64,
    hits: &mut Vec<u64>,
) -> Result<(), RefuseReason> {
    // Words are aligned in memory, which need not be the alignment of the segment.
    let skew = vaddr.next_multiple_of(8) - vaddr;
    let mut at = skew;
    while at < size {
        let block = elf.source.read(offset + at, SCAN_CHUNK.min(size - at), "a data segment")?;
        for (index, word) in block.chunks_exact(8).enumerate() {
            if word == value.to_le_bytes() && hits.len() < MAX_HITS {
                hits.push(vaddr + at + 8 * index as u64);
            }
        }
        at += SCAN_CHUNK;
    }
    Ok(())
}

/// Reads and validates the moduledata that would begin at `vaddr`.
fn read(elf: &Elf, header: &Header, vaddr: u64) -> Result<Moduledata, RefuseReason> {
    let block = elf.read_relocated(vaddr, READ, "moduledata")?;
    let word = |at: usize| u64_at(&block, at).unwrap_or(0);
    // Offsets: table pointer, (pclntable.ptr), minpc; maxpc, text and etext follow minpc.
    let (pclntable, minpc_at) = match header.layout {
        Layout::V12 => (word(0), 80),
        Layout::V116 | Layout::V118 | Layout::V120 => (word(104), 160),
    };
    let (minpc, maxpc, text, etext) =
        (word(minpc_at), word(minpc_at + 8), word(minpc_at + 16), word(minpc_at + 24));
    if word(0) != header.vaddr || pclntable != header.vaddr + header.pcln {
        return Err(RefuseReason::BadModuledata("it does not belong to the function table"));
    }
    let executable = text < etext && elf.load_at(text, etext - text).is_some_and(|load| load.executable);
    if !executable {
        return Err(RefuseReason::BadModuledata("its text is not inside an executable segment"));
    }
    if !(text <= minpc && minpc < maxpc && maxpc <= etext) {
        return Err(RefuseReason::BadModuledata("its functions are not inside its text"));
    }
    if header.text_start != 0 && header.text_start != text {
        return Err(RefuseReason::BadModuledata("its text is not where the function table says"));
    }
    Ok(Moduledata { vaddr, text: text..etext, functions: minpc..maxpc })
}
