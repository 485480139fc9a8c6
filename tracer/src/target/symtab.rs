//! The ELF symbol tables as a second witness: where they have a function of exactly the wanted name.
//!
//! Most binaries on a node are stripped, and then there is no witness. Where there is one and it contradicts the
//! pclntab, our arithmetic is wrong and the function is refused. Symbols are streamed; only the string table is held.

use std::collections::HashMap;

use object::elf::{SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, Sym64};
use object::{LittleEndian, pod};

use super::elf::{Elf, LE, Section, text_at};
use super::error::RefuseReason;
use super::source::{Block, MAX_READ};

const SYMBOL: u64 = 24;
const CHUNK: u64 = SYMBOL * 8192;
/// Longest symbol name compared.
const MAX_NAME: usize = 2048;

/// What the symbol tables say about one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// No symbol of that name.
    Absent,
    /// A symbol of that name at that address.
    Agrees,
    /// Symbols of that name, all of them elsewhere; one of their addresses.
    Disagrees(u64),
}

/// Addresses of the function symbols with one of these names.
pub(crate) fn addresses<'n>(elf: &Elf, names: impl Iterator<Item = &'n str>) -> HashMap<&'n str, Vec<u64>> {
    let mut found: HashMap<&str, Vec<u64>> = names.map(|name| (name, Vec::new())).collect();
    for section in elf.sections.iter().filter(|section| matches!(section.kind, SHT_SYMTAB | SHT_DYNSYM)) {
        // A broken table is no witness; it does not make the pclntab wrong.
        let _unreadable = collect(elf, section, &mut found);
    }
    found
}

fn collect(elf: &Elf, section: &Section, found: &mut HashMap<&str, Vec<u64>>) -> Result<(), RefuseReason> {
    let Some(strings) = elf.sections.get(section.link) else { return Ok(()) };
    if strings.size > MAX_READ {
        return Ok(());
    }
    let strings = elf.source.read(strings.offset, strings.size, "symbol names")?;
    let size = section.size - section.size % SYMBOL;
    let mut at = 0;
    while at < size {
        let block = elf.source.read(section.offset + at, CHUNK.min(size - at), "the symbol table")?;
        collect_chunk(&block, &strings, found);
        at += CHUNK;
    }
    Ok(())
}

fn collect_chunk(block: &Block, strings: &[u8], found: &mut HashMap<&str, Vec<u64>>) {
    let count = block.len() / size_of::<Sym64<LittleEndian>>();
    let Ok((symbols, _)) = pod::slice_from_bytes::<Sym64<LittleEndian>>(block, count) else { return };
    for symbol in symbols {
        let defined = symbol.st_shndx.get(LE) != 0 && symbol.st_info & 0xf == STT_FUNC;
        let name = text_at(strings, symbol.st_name.get(LE) as usize, MAX_NAME);
        if let (true, Some(places)) = (defined, name.and_then(|name| found.get_mut(name))) {
            places.push(symbol.st_value.get(LE));
        }
    }
}
