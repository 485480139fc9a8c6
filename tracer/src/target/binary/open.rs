//! Proves the whole chain of an executable once: ELF, build info, function table, moduledata, Go version.

use std::sync::Arc;

use super::{GoBinary, MAX_CODE};
use crate::target::{
    abi::Abi,
    arch::{self, Code, TlsAccess},
    buildinfo::{self, BuildInfo},
    elf::Elf,
    error::RefuseReason,
    identity::FileId,
    moduledata::{self, Moduledata},
    pclntab::Pclntab,
    pclntab_header::{self, Header, Layout},
    source::ByteSource,
    version::GoVersion,
};

impl GoBinary {
    pub(super) fn from_source(source: Arc<ByteSource>) -> Result<Self, RefuseReason> {
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
            abi: Abi::new(version, elf.machine, &info),
            id: FileId::read(&elf.source, table_offset)?,
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
