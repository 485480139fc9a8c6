//! [`GoBinary`]: an executable in, probe sites out; or one sentence why not.
//!
//! Opening proves the whole chain once (ELF, function table, moduledata, Go version); afterwards every site is found
//! by decoding the one function that is wanted. Nothing here needs symbols, section names or root. The file stays
//! open, so that later reads see the file that was analysed even when its path is replaced.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::abi::Abi;
use super::arch::{self, Code, RawSite, TlsAccess};
use super::buildinfo::{self, BuildInfo};
use super::elf::{Elf, Machine};
use super::error::{RefuseReason, SiteRefusal};
use super::identity::{self, AnalysedFile, FileId};
use super::moduledata::{self, Moduledata};
use super::pattern::{Pattern, PatternSet};
use super::pclntab::{Function, Pclntab};
use super::pclntab_header::{self, Header, Layout};
use super::pcvalue;
use super::site::{GSource, Site};
use super::source::ByteSource;
use super::symtab::{self, Witness};
use super::version::GoVersion;

/// Largest function that is decoded; the largest of a kubelet has about 400 KB.
const MAX_CODE: u64 = 4 << 20;

/// A function that a pattern found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Index of the pattern in the list given to [`GoBinary::resolve`].
    pub pattern: usize,
    /// Full Go name.
    pub name: String,
    /// Address of its first instruction in the file.
    pub entry_vaddr: u64,
    /// Bytes up to the next function.
    pub size: u64,
    /// What the ELF symbol table says.
    pub witness: Witness,
}

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

    /// Analyses a file once more that was analysed before, whatever is at its path now.
    ///
    /// # Errors
    /// It cannot be read any more.
    pub fn again(file: &AnalysedFile) -> Result<Self, RefuseReason> {
        Self::from_source(Arc::clone(&file.source))
    }

    /// Analyses bytes in memory.
    ///
    /// # Errors
    /// Why nothing in it can be probed.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, RefuseReason> {
        Self::from_source(Arc::new(ByteSource::from_bytes(bytes)?))
    }

    fn from_source(source: Arc<ByteSource>) -> Result<Self, RefuseReason> {
        let elf = Elf::parse(source)?;
        let info = buildinfo::read(&elf)?;
        let headers = pclntab_header::locate(&elf)?;
        if headers.is_empty() {
            return Err(if info.is_some() { RefuseReason::NoPclntab } else { RefuseReason::NotGo });
        }
        let info = info.ok_or(RefuseReason::NoVersion)?;
        let version = supported_version(&info, &elf)?;
        let (header, module) = choose(&elf, &headers)?;
        check_layout(version, header.layout)?;
        let table = Pclntab::load(&elf, header, &module)?;
        let table_offset = elf.file_offset(header.vaddr, 1).unwrap_or(0);
        let mut binary = Self {
            layout: header.layout,
            abi: Abi::of(version, elf.machine, &info),
            id: FileId::of(&elf.source, table_offset)?,
            start_code: elf.start_code().ok_or(RefuseReason::Malformed("no executable segment"))?,
            tls_g: None,
            table,
            module,
            info,
            version,
            table_vaddr: header.vaddr,
            table_offset,
            elf,
        };
        binary.tls_g = binary.find_tls_g();
        Ok(binary)
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
        AnalysedFile { source: Arc::clone(&self.elf.source), id: self.id, table_offset: self.table_offset }
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

    /// Functions whose name ends with `suffix` at a path element or dot; see [`Pattern`].
    #[must_use]
    pub fn find_suffix(&self, suffix: &str) -> Vec<Match> {
        self.resolve(&[Pattern::new(suffix)])
    }

    /// Finds many patterns in one pass. Of functions with the same name the largest is kept: the other is the wrapper
    /// that translates between calling conventions. Ordered by pattern, then name.
    #[must_use]
    pub fn resolve(&self, patterns: &[Pattern]) -> Vec<Match> {
        let set = PatternSet::new(patterns);
        self.collect(|name| set.matching(name).collect())
    }

    /// Finds the functions whose full name `wanted` accepts, as [`resolve`](Self::resolve) does; `pattern` is 0.
    pub fn select(&self, mut wanted: impl FnMut(&str) -> bool) -> Vec<Match> {
        self.collect(|name| if wanted(name) { vec![0] } else { Vec::new() })
    }

    /// One pass over the table; `wants` names the patterns that a function matches.
    fn collect(&self, mut wants: impl FnMut(&str) -> Vec<usize>) -> Vec<Match> {
        let mut best: HashMap<(usize, &str), Function<'_>> = HashMap::new();
        for function in self.table.functions() {
            for pattern in wants(function.name) {
                let kept = best.entry((pattern, function.name)).or_insert(function);
                if function.size > kept.size {
                    *kept = function;
                }
            }
        }
        let symbols = symtab::addresses(&self.elf, best.keys().map(|(_, name)| *name));
        let mut matches: Vec<Match> = best
            .into_iter()
            .map(|((pattern, name), function)| Match {
                pattern,
                name: name.to_owned(),
                entry_vaddr: function.entry,
                size: function.size,
                witness: witness(symbols.get(name).map_or(&[], Vec::as_slice), function.entry),
            })
            .collect();
        self.forgive_twins(&mut matches, &symbols);
        matches.sort_by(|a, b| (a.pattern, &a.name).cmp(&(b.pattern, &b.name)));
        matches
    }

    /// The site where a call of the function begins.
    ///
    /// # Errors
    /// Why this function is not probed.
    pub fn start_site(&self, function: &Match) -> Result<Site, SiteRefusal> {
        let body = self.code(function)?;
        let raw = arch::start(self.elf.machine, self.as_code(function, &body))?;
        self.site(function, &body, raw)
    }

    /// Every site where the function returns.
    ///
    /// # Errors
    /// Why this function is not probed.
    pub fn ret_sites(&self, function: &Match) -> Result<Vec<Site>, SiteRefusal> {
        let body = self.code(function)?;
        let leaves_to = |to: u64| {
            self.table.function_at(to).is_some_and(|callee| callee.name.starts_with("runtime.morestack"))
        };
        let raw = arch::returns(self.elf.machine, self.as_code(function, &body), &leaves_to)?;
        raw.into_iter().map(|raw| self.site(function, &body, raw)).collect()
    }

    /// Every site where the function directly calls the function whose full name is `callee`.
    ///
    /// # Errors
    /// Why this function is not probed.
    pub fn call_sites(&self, function: &Match, callee: &str) -> Result<Vec<Site>, SiteRefusal> {
        let body = self.code(function)?;
        let to = |to: u64| self.table.function_at(to).is_some_and(|f| f.entry == to && f.name == callee);
        let raw = arch::calls(self.elf.machine, self.as_code(function, &body), &to)?;
        raw.into_iter().map(|raw| self.site(function, &body, raw)).collect()
    }

    /// Symbols of a doubled name may name the smaller twin; that is no contradiction.
    fn forgive_twins(&self, matches: &mut [Match], symbols: &HashMap<&str, Vec<u64>>) {
        for found in matches.iter_mut().filter(|found| matches!(found.witness, Witness::Disagrees(_))) {
            let places = symbols.get(found.name.as_str()).map_or(&[][..], Vec::as_slice);
            let named = |place: &u64| {
                self.table
                    .function_at(*place)
                    .is_some_and(|twin| twin.entry == *place && twin.name == found.name)
            };
            if places.iter().any(named) {
                found.witness = Witness::Agrees;
            }
        }
    }

    fn code(&self, function: &Match) -> Result<Vec<u8>, SiteRefusal> {
        let refused = SiteRefusal::NoCode { vaddr: function.entry_vaddr, size: function.size };
        if let Witness::Disagrees(symbol) = function.witness {
            return Err(SiteRefusal::SymbolDisagrees { symbol, function: function.entry_vaddr });
        }
        if function.size == 0 || function.size > MAX_CODE {
            return Err(refused);
        }
        let code = self.elf.read_vaddr(function.entry_vaddr, function.size, "code");
        code.map(|block| block.to_vec()).map_err(|_| refused)
    }

    fn as_code<'b>(&self, function: &Match, bytes: &'b [u8]) -> Code<'b> {
        Code { entry: function.entry_vaddr, bytes, convention: self.abi.convention }
    }

    fn site(&self, function: &Match, body: &[u8], raw: RawSite) -> Result<Site, SiteRefusal> {
        let refused = || SiteRefusal::NoCode { vaddr: raw.vaddr, size: raw.len as u64 };
        let at = usize::try_from(raw.vaddr - function.entry_vaddr).map_err(|_| refused())?;
        let bytes = body.get(at..at + raw.len).ok_or_else(refused)?.to_vec();
        Ok(Site {
            vaddr: raw.vaddr,
            file_offset: self.elf.file_offset(raw.vaddr, raw.len as u64).ok_or_else(refused)?,
            ip_minus_start_code: raw.vaddr.wrapping_sub(self.start_code),
            bytes,
            price: raw.price,
            g_source: raw.g.unwrap_or_else(|| self.tls_g.map_or(GSource::Unknown, GSource::Tls)),
        })
    }

    /// Decodes `runtime.stackcheck`, which loads `g` from thread-local storage in every Go version on amd64.
    fn find_tls_g(&self) -> Option<i32> {
        let function = self.find_exact("runtime.stackcheck")?;
        let body = self.elf.read_vaddr(function.entry, function.size.min(MAX_CODE), "code").ok()?;
        let code = Code { entry: function.entry, bytes: &body, convention: self.abi.convention };
        match arch::tls_access(self.elf.machine, code)? {
            TlsAccess::Offset(offset) => Some(offset),
            TlsAccess::Slot(slot) => i32::try_from(self.elf.tls_offset_in_slot(slot)?).ok(),
        }
    }

    fn find_exact(&self, name: &str) -> Option<Function<'_>> {
        self.table.functions().filter(|function| function.name == name).max_by_key(|function| function.size)
    }
}

fn witness(symbols: &[u64], entry: u64) -> Witness {
    match symbols.first() {
        None => Witness::Absent,
        Some(_) if symbols.contains(&entry) => Witness::Agrees,
        Some(other) => Witness::Disagrees(*other),
    }
}

fn supported_version(info: &BuildInfo, elf: &Elf) -> Result<GoVersion, RefuseReason> {
    let version = GoVersion::parse(&info.go_version).ok_or(RefuseReason::NoVersion)?;
    if !version.is_supported() {
        return Err(RefuseReason::Version(version.to_string()));
    }
    if !info.matches_machine(elf.machine) {
        return Err(RefuseReason::Malformed("build info names another processor than the ELF header"));
    }
    Ok(version)
}

/// The one header that a moduledata points to.
fn choose<'h>(elf: &Elf, headers: &'h [Header]) -> Result<(&'h Header, Moduledata), RefuseReason> {
    let mut reason = RefuseReason::NoModuledata;
    let mut chosen = None;
    for header in headers {
        match moduledata::find(elf, header) {
            Ok(_) if chosen.is_some() => return Err(RefuseReason::BadModuledata("there is more than one")),
            Ok(module) => chosen = Some((header, module)),
            Err(why @ RefuseReason::BadModuledata(_)) => reason = why,
            Err(RefuseReason::NoModuledata) => {}
            Err(why) => return Err(why),
        }
    }
    chosen.ok_or(reason)
}

fn check_layout(version: GoVersion, layout: Layout) -> Result<(), RefuseReason> {
    let want = match version.minor {
        ..=15 => Layout::V12,
        16..=17 => Layout::V116,
        18..=19 => Layout::V118,
        _ => Layout::V120,
    };
    if layout == want {
        return Ok(());
    }
    Err(RefuseReason::VersionMagic { version: version.to_string(), magic: layout.magic() })
}
