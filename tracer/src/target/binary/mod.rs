//! [`GoBinary`]: an executable in, probe sites out; or one sentence why not.
//!
//! Opening proves the whole chain once (ELF, function table, moduledata, Go version); afterwards every site is found
//! by decoding the one function that is wanted. Nothing here needs symbols, section names or root. The file stays
//! open, so that later reads see the file that was analysed even when its path is replaced.

mod find;
mod open;
mod sites;

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::abi::Abi;
use super::arch::{self, Code};
use super::buildinfo::BuildInfo;
use super::elf::{Elf, Machine};
use super::error::RefuseReason;
use super::fields::{FieldPath, Types};
use super::functions::Functions;
use super::identity::{self, AnalysedFile, FileId};
use super::moduledata::Moduledata;
use super::pclntab::{Function, Pclntab};
use super::pclntab_header::Layout;
use super::pcvalue;
use super::source::ByteSource;
use super::version::GoVersion;
pub use find::Match;

/// Largest function that is decoded; the largest of a kubelet has about 400 KB.
const MAX_CODE: u64 = 4 << 20;

/// An analysed Go executable.
#[derive(Debug)]
pub struct GoBinary {
    elf: Elf,
    layout: Layout,
    table: Pclntab,
    module: Moduledata,
    info: BuildInfo,
    version: GoVersion,
    abi: Abi,
    id: FileId,
    table_vaddr: u64,
    table_offset: u64,
    start_code: u64,
    tls_g: Option<i32>,
}

impl GoBinary {
    /// Analyses the file at `path` (usually `/proc/PID/exe`).
    ///
    /// # Errors
    /// Why nothing in it can be probed.
    pub fn open(path: &Path) -> Result<Self, RefuseReason> {
        Self::from_file(identity::open(path)?)
    }

    /// Analyses an open file.
    ///
    /// # Errors
    /// Why nothing in it can be probed.
    pub fn from_file(file: File) -> Result<Self, RefuseReason> {
        Self::from_source(Arc::new(ByteSource::from_file(file)?))
    }

    /// Analyses bytes in memory.
    ///
    /// # Errors
    /// Why nothing in it can be probed.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, RefuseReason> {
        Self::from_source(Arc::new(ByteSource::from_bytes(bytes)?))
    }

    /// The release that built it.
    #[must_use]
    pub fn version(&self) -> GoVersion {
        self.version
    }

    /// Versions of the program and its modules.
    #[must_use]
    pub fn build_info(&self) -> &BuildInfo {
        &self.info
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

    /// Generation of its function table.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Addresses of Go code in the file: `runtime.text..runtime.etext`.
    #[must_use]
    pub fn text(&self) -> Range<u64> {
        self.module.text.clone()
    }

    /// Address of the runtime's `moduledata` in the file.
    #[must_use]
    pub fn moduledata(&self) -> u64 {
        self.module.vaddr
    }

    /// Address of the function table in the file.
    #[must_use]
    pub fn table(&self) -> u64 {
        self.table_vaddr
    }

    /// Address where the kernel begins the program, as the ELF header has it.
    #[must_use]
    pub fn entry_point(&self) -> u64 {
        self.elf.entry
    }

    /// Position-independent: a process adds its load bias to every address here.
    #[must_use]
    pub fn is_pie(&self) -> bool {
        self.elf.pie
    }

    /// `mm->start_code` minus the load bias.
    #[must_use]
    pub fn start_code_offset(&self) -> u64 {
        self.start_code
    }

    /// Identity of the file as it was opened.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Offset from the thread pointer where `g` is kept, for code that has it in no register; `None` when unknown.
    #[must_use]
    pub fn tls_g_offset(&self) -> Option<i32> {
        self.tls_g
    }

    /// What is needed to look at the file once more, without the tables, which are megabytes.
    #[must_use]
    pub fn file(&self) -> AnalysedFile {
        AnalysedFile {
            source: Arc::clone(&self.elf.source),
            id: self.id,
            table_offset: self.table_offset,
            functions: Some(Arc::new(self.kept())),
        }
    }

    /// What is worth keeping of the function table when the rest is dropped: 1 MB instead of 25.
    #[must_use]
    pub fn kept(&self) -> Functions {
        let identity = (self.id, self.table_offset);
        Functions::new(self.elf.clone(), self.abi, identity, self.start_code, self.table.parts())
    }

    /// Number of functions in the table.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.table.len()
    }

    /// All functions, by address.
    pub fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        self.table.functions()
    }

    /// Functions with this full name: without symbols a wrapper has the name of what it wraps.
    pub fn functions_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Function<'a>> {
        self.table.named(name)
    }

    /// The function that contains this address of the file.
    #[must_use]
    pub fn function_at(&self, vaddr: u64) -> Option<Function<'_>> {
        self.table.function_at(vaddr)
    }

    /// Index of the function that contains this address of the file; at most a million.
    #[must_use]
    pub fn function_index_at(&self, vaddr: u64) -> Option<u32> {
        u32::try_from(self.table.index_at(vaddr)?).ok()
    }

    /// The function of this index.
    #[must_use]
    pub fn function_by_index(&self, index: u32) -> Option<Function<'_>> {
        self.table.function(usize::try_from(index).ok()?)
    }

    /// How many bytes the function has put on its stack when it is at this address of the file, without the return
    /// address on amd64, with it on arm64: what the runtime itself unwinds by. `None` when the table does not say.
    #[must_use]
    pub fn stack_depth_at(&self, vaddr: u64) -> Option<u32> {
        let index = self.table.index_at(vaddr)?;
        let entry = self.table.function(index)?.entry;
        let table = self.table.stack_table(index)?;
        pcvalue::stack_depth(&self.elf, table, entry, vaddr)
    }

    /// Addresses of the file that the code of the function with this full name refers to; none when it is not there.
    #[must_use]
    pub fn data_references(&self, name: &str) -> Vec<u64> {
        let references = |code: Code<'_>| arch::references(self.elf.machine, code);
        self.find_exact(name).and_then(|function| self.with_code(function, references)).unwrap_or_default()
    }

    /// The ways to the `uint32` field of this name in each of the structs of a package, or in what they embed; `None` when
    /// the program does not describe the type.
    #[must_use]
    pub fn uint32_fields(&self, package: &str, structs: &[&str], field: &str) -> Vec<Option<FieldPath>> {
        let types = Types::new(&self.elf, &self.module, self.version);
        let found = types.and_then(|types| types.uint32(package, structs, field));
        found.unwrap_or_else(|_| vec![None; structs.len()])
    }

    /// Is integer argument `n` of a function in the word above its return address that its caller has for it, at
    /// `8 + 8 * n`, as long as the function runs? False when that is not certain.
    #[must_use]
    pub fn keeps_argument(&self, function: u32, n: usize) -> bool {
        let keeps = |code: Code<'_>| arch::keeps(self.elf.machine, code, n);
        self.function_by_index(function).and_then(|function| self.with_code(function, keeps)).unwrap_or(false)
    }

    fn with_code<T>(&self, function: Function<'_>, look: impl FnOnce(Code<'_>) -> T) -> Option<T> {
        let size = function.size.min(MAX_CODE);
        let body = self.elf.read_vaddr(function.entry, size, "code").ok()?;
        Some(look(Code { entry: function.entry, bytes: &body, convention: self.abi.convention }))
    }

    fn find_exact<'a>(&'a self, name: &'a str) -> Option<Function<'a>> {
        self.table.named(name).max_by_key(|function| function.size)
    }
}
