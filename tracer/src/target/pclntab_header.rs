//! Finds Go's function table (pclntab) in an ELF file and reads its header.
//!
//! The linker names its section `.gopclntab` or `.data.rel.ro.gopclntab`; external linking merges it into
//! `.data.rel.ro` and stripping may take the section table away, so without a name the segments are searched for the
//! eight bytes with which every header begins. A hit is a candidate only; what makes it the table is the moduledata
//! that points to it.
//!
//! Layouts: Go's `debug/gosym/pclntab.go`, `runtime/symtab.go` (`pcHeader`), Go 1.13 to 1.27.

use super::elf::Elf;
use super::error::RefuseReason;
use super::source::{u32_at, u64_at};

/// Largest number of functions; kubelet 1.20 has 139,166.
pub(crate) const MAX_FUNCTIONS: u64 = 1_000_000;
/// Largest offset inside a table; a kubelet's table has about 40 MB.
pub(crate) const MAX_TABLE: u64 = 128 << 20;
const NAMES: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
const HEADER_BYTES: u64 = 72;
/// More headers than this in one file are somebody's joke.
const MAX_CANDIDATES: usize = 16;
const SCAN_CHUNK: u64 = 1 << 20;

/// Generation of the table's layout, named after the Go release that introduced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Go 1.2 to 1.15: one blob, absolute addresses.
    V12,
    /// Go 1.16 and 1.17: separate name table, absolute addresses.
    V116,
    /// Go 1.18 and 1.19: addresses relative to the text base.
    V118,
    /// Go 1.20 and later: the same with another magic.
    V120,
}

impl Layout {
    const ALL: [Self; 4] = [Self::V12, Self::V116, Self::V118, Self::V120];

    /// First word of the table.
    #[must_use]
    pub const fn magic(self) -> u32 {
        match self {
            Self::V12 => 0xffff_fffb,
            Self::V116 => 0xffff_fffa,
            Self::V118 => 0xffff_fff0,
            Self::V120 => 0xffff_fff1,
        }
    }

    fn of_magic(magic: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.magic() == magic)
    }

    /// Function addresses are pairs of u32 relative to the text base (else pairs of absolute u64).
    pub(crate) const fn relative(self) -> bool {
        matches!(self, Self::V118 | Self::V120)
    }
}

/// The header of a table.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// Address of the table.
    pub(crate) vaddr: u64,
    /// Bytes from there to the end of its section or segment.
    pub(crate) extent: u64,
    pub(crate) layout: Layout,
    pub(crate) nfunc: u64,
    /// Text base as the header has it: only for relative layouts, 0 from Go 1.26 on and where a relocation fills it.
    pub(crate) text_start: u64,
    /// Offset of the name table; 0 for V12, whose name offsets count from the table.
    pub(crate) names: u64,
    /// Offset of what follows the name table; the extent for V12.
    pub(crate) names_end: u64,
    /// Offset of the tables of values by address, from which their offsets count; 0 for V12.
    pub(crate) pctab: u64,
    /// Offset of what follows them; the extent for V12.
    pub(crate) pctab_end: u64,
    /// Offset of the function list, from which function offsets count; for V12 these count from the table.
    pub(crate) pcln: u64,
}

impl Header {
    /// Offset of the function list inside the block that starts at [`pcln`](Self::pcln).
    pub(crate) fn functab_in_pcln(&self) -> u64 {
        if self.layout == Layout::V12 { 16 } else { 0 }
    }

    /// Bytes of one entry of the function list.
    pub(crate) fn entry_size(&self) -> u64 {
        if self.layout.relative() { 8 } else { 16 }
    }

    /// Bytes of the function list with the end sentinel.
    pub(crate) fn functab_size(&self) -> u64 {
        self.nfunc * self.entry_size() + self.entry_size() / 2
    }
}

/// Every table header in the file, the likeliest first.
pub(crate) fn locate(elf: &Elf) -> Result<Vec<Header>, RefuseReason> {
    for name in NAMES {
        if let Some(section) = elf.section(name) {
            return Ok(vec![parse(elf, section.vaddr, section.size)?]);
        }
    }
    scan(elf)
}

/// Reads the header at `vaddr`.
fn parse(elf: &Elf, vaddr: u64, extent: u64) -> Result<Header, RefuseReason> {
    let extent = extent.min(elf.extent_at(vaddr)).min(MAX_TABLE);
    if extent < HEADER_BYTES {
        return Err(RefuseReason::BadPclntab("too small for a header"));
    }
    let block = elf.read_relocated(vaddr, HEADER_BYTES, "the pclntab header")?;
    let magic = u32_at(&block, 0).unwrap_or(0);
    let layout = Layout::of_magic(magic).ok_or(RefuseReason::UnknownMagic(magic))?;
    if block[4..8] != [0, 0, elf.machine.quantum(), 8] {
        return Err(RefuseReason::BadPclntab("instruction or pointer size is not this machine's"));
    }
    let word = |index: usize| u64_at(&block, 8 + 8 * index).unwrap_or(u64::MAX);
    let mut header = Header {
        vaddr,
        extent,
        layout,
        nfunc: word(0),
        text_start: 0,
        names: 0,
        names_end: extent,
        pctab: 0,
        pctab_end: extent,
        pcln: 0,
    };
    // Words: nfunc, nfiles, [textStart,] funcname, cu, filetab, pctab, pcln.
    let first = match layout {
        Layout::V12 => None,
        Layout::V116 => Some(2),
        Layout::V118 | Layout::V120 => {
            header.text_start = word(2);
            Some(3)
        }
    };
    if let Some(first) = first {
        let offsets: Vec<u64> = (first..first + 5).map(word).collect();
        if offsets[0] < 40 || !offsets.is_sorted() || offsets[4] >= extent {
            return Err(RefuseReason::BadPclntab("offsets of its parts are not in order"));
        }
        (header.names, header.names_end) = (offsets[0], offsets[1]);
        (header.pctab, header.pctab_end, header.pcln) = (offsets[3], offsets[4], offsets[4]);
    }
    check_count(&header)?;
    Ok(header)
}

fn check_count(header: &Header) -> Result<(), RefuseReason> {
    if header.nfunc == 0 {
        return Err(RefuseReason::BadPclntab("no function in it"));
    }
    if header.nfunc > MAX_FUNCTIONS {
        return Err(RefuseReason::TooLarge {
            what: "number of functions",
            size: header.nfunc,
            limit: MAX_FUNCTIONS,
        });
    }
    if header.pcln + header.functab_in_pcln() + header.functab_size() > header.extent {
        return Err(RefuseReason::BadPclntab("function list is longer than the table"));
    }
    Ok(())
}

/// Searches the segments for the first eight bytes of a header.
fn scan(elf: &Elf) -> Result<Vec<Header>, RefuseReason> {
    let signatures = Layout::ALL
        .map(|layout| u64::from(layout.magic()) | u64::from(elf.machine.quantum()) << 48 | 8 << 56);
    let mut found = Vec::new();
    let mut budget = elf.source.len();
    for load in &elf.loads {
        // Overlapping segments could make us read the file many times.
        let Some(left) = budget.checked_sub(load.filesz) else { break };
        budget = left;
        let mut at = 0;
        while at < load.filesz {
            let block = elf.source.read(load.offset + at, SCAN_CHUNK.min(load.filesz - at), "a segment")?;
            for (index, word) in block.chunks_exact(8).enumerate() {
                let word = u64::from_le_bytes(word.try_into().expect("chunks of eight"));
                if !signatures.contains(&word) {
                    continue;
                }
                let skip = at + 8 * index as u64;
                if let Ok(header) = parse(elf, load.vaddr + skip, load.filesz - skip) {
                    found.push(header);
                }
                if found.len() == MAX_CANDIDATES {
                    return Ok(found);
                }
            }
            at += SCAN_CHUNK;
        }
    }
    Ok(found)
}
