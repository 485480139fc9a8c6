//! The functions of a Go binary: names and addresses out of the pclntab, without copying names.
//!
//! Only two pieces are kept in memory: the name table and the function list with its records. For a kubelet of 105 MB
//! that is about 25 MB. Everything is checked once when the table is loaded (addresses ascending and inside the
//! text), so that lookups cannot leave it. Addresses are those of the file; a running position-independent process
//! adds its load bias.

use std::ops::Range;
use std::sync::Arc;

use super::elf::{Elf, text_at};
use super::error::RefuseReason;
use super::functions::{Parts, Row};
use super::moduledata::Moduledata;
use super::pclntab_header::{Header, Layout};
use super::source::{Block, u32_at, u64_at};

/// Longest name that is looked at. The longest wanted one has about 120 bytes; a bound keeps a table whose names
/// never end from costing quadratic time.
pub(crate) const MAX_NAME: usize = 2048;
/// A `_func` record is read up to the offset of its stack table: 24 bytes at most. Every record is longer.
const RECORD: u64 = 24;
/// Bytes behind the last record among which the last name is expected (V12).
const NAME_SLACK: u64 = 256 << 10;

/// One function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Full Go name, as the linker wrote it.
    pub name: &'a str,
    /// Address of the first instruction.
    pub entry: u64,
    /// Distance to the next function in bytes; contains padding.
    pub size: u64,
}

/// A loaded table.
#[derive(Debug)]
pub(crate) struct Pclntab {
    layout: Layout,
    nfunc: usize,
    text: Range<u64>,
    /// Function list and records; function offsets count from its start.
    pcln: Arc<Block>,
    functab: usize,
    /// Name offsets count from its start.
    names: Arc<Block>,
    /// Addresses of the tables of values by address in the file.
    pctab: Range<u64>,
    /// Addresses of the names in the file.
    names_at: Range<u64>,
}

impl Pclntab {
    /// Loads the table that this moduledata belongs to.
    pub(crate) fn load(elf: &Elf, header: &Header, module: &Moduledata) -> Result<Self, RefuseReason> {
        let functab_end = header.functab_in_pcln() + header.functab_size();
        let start = header.vaddr + header.pcln;
        let list = elf.read_vaddr(start, functab_end, "the function list")?;
        let mut probe = Self::over(header, module.text.clone(), Arc::new(list), Arc::default());
        let last = probe.record_offsets().max().unwrap_or(0);
        let len = last.saturating_add(RECORD).max(functab_end);
        let available = header.extent - header.pcln;
        if len > available {
            return Err(RefuseReason::BadPclntab("a function record lies behind its end"));
        }
        // In the oldest layout names lie between the records, so that one read usually gets both.
        let slack = if header.layout == Layout::V12 { NAME_SLACK } else { 0 };
        let len = len.saturating_add(slack).min(available);
        probe.pcln = Arc::default();
        let mut pcln = elf.read_vaddr(start, len, "the function records")?;
        if !header.layout.relative() {
            elf.relocate(start, &mut pcln)?;
        }
        probe.pcln = Arc::new(pcln);
        probe.names = probe.load_names(elf, header)?;
        probe.check(&module.functions)?;
        Ok(probe)
    }

    fn over(header: &Header, text: Range<u64>, pcln: Arc<Block>, names: Arc<Block>) -> Self {
        Self {
            layout: header.layout,
            nfunc: usize::try_from(header.nfunc).expect("at most a million functions"),
            text,
            pcln,
            functab: usize::try_from(header.functab_in_pcln()).expect("16 at most"),
            names,
            pctab: header.vaddr + header.pctab..header.vaddr + header.pctab_end,
            names_at: header.vaddr + header.names..header.vaddr + header.names_end,
        }
    }

    fn load_names(&self, elf: &Elf, header: &Header) -> Result<Arc<Block>, RefuseReason> {
        let len = if header.layout == Layout::V12 {
            let last = (0..self.nfunc).filter_map(|index| self.name_offset(index)).max().unwrap_or(0) as u64;
            if last + MAX_NAME as u64 <= self.pcln.len() as u64 || self.pcln.len() as u64 == header.extent {
                return Ok(Arc::clone(&self.pcln));
            }
            (last + MAX_NAME as u64).min(header.extent)
        } else {
            header.names_end - header.names
        };
        Ok(Arc::new(elf.read_vaddr(header.vaddr + header.names, len, "the function names")?))
    }

    /// Addresses ascend inside the text, and the first and the last are those that moduledata names.
    ///
    /// The runtime checks the same at start (`moduledataverify1` in runtime/symtab.go), so a wrong text base, a
    /// wrong layout or a wrong table cannot pass.
    fn check(&self, functions: &Range<u64>) -> Result<(), RefuseReason> {
        if self.address(0) != Some(functions.start) || self.address(self.nfunc) != Some(functions.end) {
            return Err(RefuseReason::BadModuledata("its functions are not those of the function table"));
        }
        let mut before = self.text.start;
        for index in 0..=self.nfunc {
            let pc = self.address(index).ok_or(RefuseReason::BadPclntab("function list is cut off"))?;
            if pc < before || pc > self.text.end {
                return Err(RefuseReason::BadPclntab("function addresses are not ascending inside the text"));
            }
            before = pc;
        }
        Ok(())
    }

    /// Address of function `index`; for `nfunc` the end of the last one.
    fn address(&self, index: usize) -> Option<u64> {
        if self.layout.relative() {
            let offset = u32_at(&self.pcln, self.functab + 8 * index)?;
            self.text.start.checked_add(offset.into())
        } else {
            u64_at(&self.pcln, self.functab + 16 * index)
        }
    }

    fn record_offset(&self, index: usize) -> Option<u64> {
        if self.layout.relative() {
            u32_at(&self.pcln, self.functab + 8 * index + 4).map(u64::from)
        } else {
            u64_at(&self.pcln, self.functab + 16 * index + 8)
        }
    }

    fn record_offsets(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.nfunc).filter_map(|index| self.record_offset(index))
    }

    fn name_offset(&self, index: usize) -> Option<usize> {
        let record = usize::try_from(self.record_offset(index)?).ok()?;
        // `_func` begins with the entry: u32 relative to the text base, or an absolute u64; then comes the name.
        let skip = if self.layout.relative() { 4 } else { 8 };
        usize::try_from(u32_at(&self.pcln, record.checked_add(skip)?)?).ok()
    }

    /// Number of functions.
    pub(crate) fn len(&self) -> usize {
        self.nfunc
    }

    /// Function `index`; `None` when its name cannot be read.
    pub(crate) fn function(&self, index: usize) -> Option<Function<'_>> {
        if index >= self.nfunc {
            return None;
        }
        let entry = self.address(index)?;
        let size = self.address(index + 1)? - entry;
        let name = text_at(&self.names, self.name_offset(index)?, MAX_NAME)?;
        Some(Function { name, entry, size })
    }

    /// All functions with a readable name, by address.
    pub(crate) fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        (0..self.nfunc).filter_map(|index| self.function(index))
    }

    /// Functions of this name, by address. Names are compared where they are: reading each one takes ten times as long.
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Function<'a>> {
        let is_named = move |index: &usize| {
            let at = self.name_offset(*index).and_then(|at| self.names.get(at..));
            let behind = at.and_then(|text| text.strip_prefix(name.as_bytes()));
            behind.is_some_and(|rest| rest.first() == Some(&0))
        };
        (0..self.nfunc).filter(is_named).filter_map(|index| self.function(index))
    }

    /// The function that contains `pc`.
    pub(crate) fn function_at(&self, pc: u64) -> Option<Function<'_>> {
        self.function(self.index_at(pc)?)
    }

    /// Index of the function that contains `pc`.
    pub(crate) fn index_at(&self, pc: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.nfunc);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.address(middle)? <= pc { low = middle + 1 } else { high = middle }
        }
        let index = low.checked_sub(1)?;
        (pc < self.address(index + 1)?).then_some(index)
    }

    /// Addresses of what the table of stack depths of function `index` may cover, from its start; `None` without one.
    ///
    /// `_func.pcsp` (Go's runtime/runtime2.go): entry (4 or 8 bytes), name, args, deferreturn, then pcsp; 1.13 to 1.27.
    pub(crate) fn stack_table(&self, index: usize) -> Option<Range<u64>> {
        let record = usize::try_from(self.record_offset(index)?).ok()?;
        let skip = if self.layout.relative() { 16 } else { 20 };
        let offset = u32_at(&self.pcln, record.checked_add(skip)?)?;
        let start = self.pctab.start.checked_add(offset.into())?;
        (offset != 0 && start < self.pctab.end).then_some(start..self.pctab.end)
    }

    /// What is needed to find names and stack tables in the file later on.
    pub(crate) fn parts(&self) -> Parts {
        // Distances are checked to lie in the text, which is part of a file of 1 GiB at most.
        let distance = |index| self.address(index).map(|at| short(at - self.text.start));
        let row = |index| {
            let stack = self.stack_table(index).map_or(0, |table| short(table.start - self.pctab.start));
            // A name that lies nowhere has an offset that leads nowhere.
            let name = self.name_offset(index).map_or(u32::MAX, |offset| short(offset as u64));
            Row { start: distance(index).unwrap_or(u32::MAX), name, stack }
        };
        Parts {
            text: self.text.clone(),
            names: self.names_at.clone(),
            stacks: self.pctab.clone(),
            rows: (0..self.nfunc).map(row).collect(),
            end: distance(self.nfunc).unwrap_or(u32::MAX),
        }
    }
}

fn short(distance: u64) -> u32 {
    u32::try_from(distance).unwrap_or(u32::MAX)
}
