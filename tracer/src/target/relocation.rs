//! Dynamic relocations of a position-independent executable: what the words in its file become when it is loaded.
//!
//! Three encodings matter. RELA keeps the value in the relocation (lld then leaves zero in the word itself); RELR
//! keeps it in the word, so reading the word is enough; TPOFF64 fills a GOT slot with the offset of a thread-local
//! variable. Tables are found through PT_DYNAMIC, which survives stripping, and are streamed in one pass: a hostile
//! table costs at most the time to read the file once.

use object::elf::{
    DT_NULL, DT_RELA, DT_RELASZ, Dyn64, R_AARCH64_RELATIVE, R_AARCH64_TLS_TPREL, R_X86_64_RELATIVE,
    R_X86_64_TPOFF64, Rela64,
};
use object::{LittleEndian, pod};

use super::elf::{Elf, LE, Machine};
use super::error::RefuseReason;
use super::source::Block;

/// A dynamic section has about thirty entries.
const MAX_DYNAMIC: u64 = 64 << 10;
/// Entries streamed at once.
const CHUNK: u64 = 24 * 4096;

/// What one relocation writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// This address (plus the load bias).
    Address(u64),
    /// This offset in the thread-local block of the executable.
    ThreadLocal(i64),
}

/// Where the RELA table is in memory: address and size in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct RelaTable {
    vaddr: u64,
    size: u64,
}

impl Elf {
    /// Calls `visit(slot, written)` for each relocation we understand; returns at once without a RELA table.
    pub(crate) fn for_each_relocation(
        &self,
        mut visit: impl FnMut(u64, Written),
    ) -> Result<(), RefuseReason> {
        let table = self.rela_table()?;
        let mut at = 0;
        while at < table.size {
            let len = CHUNK.min(table.size - at);
            let block = self.read_vaddr(table.vaddr.wrapping_add(at), len, "the relocation table")?;
            let (entries, _) = pod::slice_from_bytes::<Rela64<LittleEndian>>(&block, block.len() / 24)
                .map_err(|()| RefuseReason::Malformed("relocation table"))?;
            for entry in entries {
                if let Some(written) = meaning(self.machine, entry) {
                    visit(entry.r_offset.get(LE), written);
                }
            }
            at += CHUNK;
        }
        Ok(())
    }

    /// `len` bytes at `vaddr` with the addresses that relocation writes into them.
    pub(crate) fn read_relocated(
        &self,
        vaddr: u64,
        len: u64,
        what: &'static str,
    ) -> Result<Block, RefuseReason> {
        let mut block = self.read_vaddr(vaddr, len, what)?;
        self.relocate(vaddr, &mut block)?;
        Ok(block)
    }

    /// Applies RELATIVE relocations to `block`, which was read at `vaddr`.
    pub(crate) fn relocate(&self, vaddr: u64, block: &mut Block) -> Result<(), RefuseReason> {
        if !self.pie {
            return Ok(());
        }
        let bytes = block.bytes_mut();
        self.for_each_relocation(|slot, written| {
            let at = usize::try_from(slot.wrapping_sub(vaddr)).unwrap_or(usize::MAX);
            let word = at.checked_add(8).and_then(|end| bytes.get_mut(at..end));
            if let (Some(word), Written::Address(value)) = (word, written) {
                word.copy_from_slice(&value.to_le_bytes());
            }
        })
    }

    /// The offset from the thread pointer that the loader writes into the GOT slot at `vaddr`.
    ///
    /// amd64 (variant II): the block of the executable ends at the thread pointer. arm64 (variant I): it begins 16
    /// bytes behind it.
    pub(crate) fn tls_offset_in_slot(&self, vaddr: u64) -> Option<i64> {
        let mut in_block = None;
        self.for_each_relocation(|slot, written| {
            if let (true, Written::ThreadLocal(offset)) = (slot == vaddr, written) {
                in_block = Some(offset);
            }
        })
        .ok()?;
        let Some(in_block) = in_block else {
            // A static executable: the linker has already written the final value.
            let block = self.read_vaddr(vaddr, 8, "a GOT slot").ok()?;
            let value = i64::from_le_bytes(block[..8].try_into().ok()?);
            return (value != 0).then_some(value);
        };
        let tls = self.tls?;
        let align = i64::try_from(tls.align.max(1)).ok()?;
        match self.machine {
            Machine::X86_64 => {
                let size = i64::try_from(tls.memsz).ok()?.checked_add(align - 1)? / align * align;
                in_block.checked_sub(size)
            }
            Machine::Aarch64 => in_block.checked_add(16i64.checked_add(align - 1)? / align * align),
        }
    }

    fn rela_table(&self) -> Result<RelaTable, RefuseReason> {
        let Some(dynamic) = self.dynamic else { return Ok(RelaTable::default()) };
        let size = dynamic.filesz.min(MAX_DYNAMIC);
        let block = self.source.read(dynamic.offset, size, "the dynamic section")?;
        let (entries, _) = pod::slice_from_bytes::<Dyn64<LittleEndian>>(&block, block.len() / 16)
            .map_err(|()| RefuseReason::Malformed("dynamic section"))?;
        let mut table = RelaTable::default();
        for entry in entries {
            match entry.d_tag.get(LE) {
                DT_NULL => break,
                DT_RELA => table.vaddr = entry.d_val.get(LE),
                DT_RELASZ => table.size = entry.d_val.get(LE),
                _ => {}
            }
        }
        table.size -= table.size % 24;
        if table.size > 0 && self.load_at(table.vaddr, table.size).is_none() {
            return Err(RefuseReason::Malformed("relocation table lies in no segment"));
        }
        Ok(table)
    }
}

fn meaning(machine: Machine, entry: &Rela64<LittleEndian>) -> Option<Written> {
    let info = entry.r_info.get(LE);
    let (kind, symbol) = (info as u32, info >> 32);
    let addend = entry.r_addend.get(LE);
    let (relative, thread_local) = match machine {
        Machine::X86_64 => (R_X86_64_RELATIVE, R_X86_64_TPOFF64),
        Machine::Aarch64 => (R_AARCH64_RELATIVE, R_AARCH64_TLS_TPREL),
    };
    if kind == relative {
        Some(Written::Address(addend.cast_unsigned()))
    } else if kind == thread_local && symbol == 0 {
        Some(Written::ThreadLocal(addend))
    } else {
        None
    }
}
