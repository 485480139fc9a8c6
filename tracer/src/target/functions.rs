//! [`Functions`]: what is kept of a function table after an executable was analysed, to name addresses and to walk stacks.
//!
//! The tables of a kubelet take 25 MB, and reading them takes tens of milliseconds. Three numbers of each function are
//! enough to find it (about 1 MB); its name and the table of its stack are read from the open file when they are asked
//! for, some hundred bytes each.

use std::ops::Range;

use super::arch::{self, Code};
use super::elf::{Elf, text_at};
use super::error::RefuseReason;
use super::identity::FileId;
use super::pclntab::MAX_NAME;
use super::{Abi, Machine, pcvalue};

/// Largest function that is decoded.
const MAX_CODE: u64 = 4 << 20;
/// Most names are shorter: the first read.
const SHORT_NAME: u64 = 192;

/// One function: distances from the start of the text, of the names and of the stack tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) start: u32,
    pub(crate) name: u32,
    /// 0: it has none.
    pub(crate) stack: u32,
}

/// Where the parts of a function table are, as addresses of the file.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) text: Range<u64>,
    pub(crate) names: Range<u64>,
    pub(crate) stacks: Range<u64>,
    /// By address.
    pub(crate) rows: Box<[Row]>,
    /// End of the last function, like its start.
    pub(crate) end: u32,
}

/// The functions of an analysed executable; its file stays open.
#[derive(Debug)]
pub struct Functions {
    elf: Elf,
    abi: Abi,
    id: FileId,
    table_offset: u64,
    start_code: u64,
    parts: Parts,
}

impl Functions {
    pub(crate) fn new(
        elf: Elf,
        abi: Abi,
        (id, table_offset): (FileId, u64),
        start_code: u64,
        parts: Parts,
    ) -> Self {
        Self { elf, abi, id, table_offset, start_code, parts }
    }

    /// Register or stack arguments, and offsets in `runtime.g`.
    #[must_use]
    pub fn abi(&self) -> &Abi {
        &self.abi
    }

    /// Its processor.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.elf.machine
    }

    /// Position-independent: a process adds its load bias to every address here.
    #[must_use]
    pub fn is_pie(&self) -> bool {
        self.elf.pie
    }

    /// Address where the kernel begins the program, as the ELF header has it.
    #[must_use]
    pub fn entry_point(&self) -> u64 {
        self.elf.entry
    }

    /// `mm->start_code` minus the load bias.
    #[must_use]
    pub fn start_code_offset(&self) -> u64 {
        self.start_code
    }

    /// Identity of the file when it was analysed.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Is the open file still as it was analysed? One that nobody runs can be written to.
    ///
    /// # Errors
    ///
    /// It cannot be read any more.
    pub fn is_unchanged(&self) -> Result<bool, RefuseReason> {
        Ok(FileId::read(&self.elf.source, self.table_offset)? == self.id)
    }

    /// Index of the function that contains this address of the file.
    #[must_use]
    pub fn index_at(&self, vaddr: u64) -> Option<u32> {
        let at = u32::try_from(vaddr.checked_sub(self.parts.text.start)?).ok()?;
        if at >= self.parts.end {
            return None;
        }
        let index = self.parts.rows.partition_point(|row| row.start <= at).checked_sub(1)?;
        u32::try_from(index).ok()
    }

    /// Full name of a function, read from the file.
    #[must_use]
    pub fn name(&self, index: u32) -> Option<String> {
        let at = self.parts.names.start.checked_add(self.row(index)?.name.into())?;
        let room = self.parts.names.end.checked_sub(at)?;
        [SHORT_NAME, MAX_NAME as u64 + 1].into_iter().find_map(|len| {
            let block = self.elf.read_vaddr(at, len.min(room), "a function name").ok()?;
            text_at(&block, 0, MAX_NAME).map(str::to_owned)
        })
    }

    /// As [`GoBinary::stack_depth_at`](super::GoBinary::stack_depth_at).
    #[must_use]
    pub fn stack_depth_at(&self, vaddr: u64) -> Option<u32> {
        let row = self.row(self.index_at(vaddr)?)?;
        let start = self.parts.stacks.start.checked_add(row.stack.into())?;
        let table = (row.stack != 0 && start < self.parts.stacks.end).then_some(start..self.parts.stacks.end);
        pcvalue::stack_depth(&self.elf, table?, self.parts.text.start + u64::from(row.start), vaddr)
    }

    /// As [`GoBinary::keeps_argument`](super::GoBinary::keeps_argument).
    #[must_use]
    pub fn keeps_argument(&self, index: u32, n: usize) -> bool {
        let keeps = || {
            let (entry, size) = self.extent(index)?;
            let body = self.elf.read_vaddr(entry, size.min(MAX_CODE), "code").ok()?;
            let code = Code { entry, bytes: &body, convention: self.abi.convention };
            Some(arch::keeps(self.elf.machine, code, n))
        };
        keeps().unwrap_or(false)
    }

    fn row(&self, index: u32) -> Option<Row> {
        self.parts.rows.get(usize::try_from(index).ok()?).copied()
    }

    /// Address and size.
    fn extent(&self, index: u32) -> Option<(u64, u64)> {
        let start = self.row(index)?.start;
        let end = self.row(index.checked_add(1)?).map_or(self.parts.end, |next| next.start);
        Some((self.parts.text.start + u64::from(start), u64::from(end.checked_sub(start)?)))
    }
}
