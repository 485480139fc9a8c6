//! An ELF64 file as segments, sections and address arithmetic, nothing trusted.
//!
//! The program headers are the truth, because the kernel uses them. Section headers are a convenience that stripped
//! or hostile files may lack or fake: a broken section table counts as none, and no address is ever taken from a
//! section without its segment agreeing. Bytes are read through [`ByteSource`] only.

use std::sync::Arc;

use object::elf::{
    EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PF_W, PF_X, PT_DYNAMIC, PT_LOAD, PT_TLS,
    ProgramHeader64, SHT_NOBITS, SectionHeader64,
};
use object::{LittleEndian, pod};

use super::error::RefuseReason;
use super::source::{Block, ByteSource};

/// Byte order of everything we read.
pub(crate) const LE: LittleEndian = LittleEndian;
/// Linkers write about ten program headers.
const MAX_SEGMENTS: u16 = 128;
/// Go binaries have about forty sections.
const MAX_SECTIONS: u16 = 1024;
const MAX_SECTION_NAMES: u64 = 1 << 20;

/// Processor of an executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// amd64.
    X86_64,
    /// arm64.
    Aarch64,
}

impl Machine {
    /// What Go calls it (`GOARCH`).
    #[must_use]
    pub const fn goarch(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Smallest instruction in bytes: the `quantum` byte of a pclntab header.
    pub(crate) const fn quantum(self) -> u8 {
        match self {
            Self::X86_64 => 1,
            Self::Aarch64 => 4,
        }
    }
}

/// One PT_LOAD, PT_DYNAMIC or PT_TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) vaddr: u64,
    pub(crate) offset: u64,
    pub(crate) filesz: u64,
    pub(crate) memsz: u64,
    pub(crate) align: u64,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
}

/// A section with contents in the file.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) vaddr: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// Index of an associated section (the string table of a symbol table).
    pub(crate) link: usize,
}

/// The headers of an ELF file.
#[derive(Clone, Debug)]
pub(crate) struct Elf {
    pub(crate) source: Arc<ByteSource>,
    pub(crate) machine: Machine,
    /// Position-independent: addresses in the file are relative to a load bias.
    pub(crate) pie: bool,
    /// Address of the first instruction.
    pub(crate) entry: u64,
    pub(crate) loads: Vec<Segment>,
    pub(crate) dynamic: Option<Segment>,
    pub(crate) tls: Option<Segment>,
    /// By section index; empty when there is no usable section table.
    pub(crate) sections: Vec<Section>,
}

impl Elf {
    /// Reads and checks the headers.
    pub(crate) fn parse(source: Arc<ByteSource>) -> Result<Self, RefuseReason> {
        let header = read_header(&source)?;
        let machine = match header.e_machine.get(LE) {
            EM_X86_64 => Machine::X86_64,
            EM_AARCH64 => Machine::Aarch64,
            other => return Err(RefuseReason::Machine(other)),
        };
        let mut elf = Self {
            machine,
            pie: header.e_type.get(LE) == ET_DYN,
            entry: header.e_entry.get(LE),
            loads: Vec::new(),
            dynamic: None,
            tls: None,
            sections: Vec::new(),
            source,
        };
        elf.read_segments(&header)?;
        elf.sections = read_sections(&elf.source, &header).unwrap_or_default();
        Ok(elf)
    }

    fn read_segments(&mut self, header: &FileHeader64<LittleEndian>) -> Result<(), RefuseReason> {
        let count = header.e_phnum.get(LE);
        if count > MAX_SEGMENTS {
            return Err(RefuseReason::Malformed("too many program headers"));
        }
        if usize::from(header.e_phentsize.get(LE)) != size_of::<ProgramHeader64<LittleEndian>>() {
            return Err(RefuseReason::Malformed("odd size of a program header"));
        }
        let size = u64::from(count) * size_of::<ProgramHeader64<LittleEndian>>() as u64;
        let block = self.source.read(header.e_phoff.get(LE), size, "the program header table")?;
        let (headers, _) = pod::slice_from_bytes::<ProgramHeader64<LittleEndian>>(&block, count.into())
            .map_err(|()| RefuseReason::Malformed("program header table"))?;
        for raw in headers {
            let segment = self.segment(raw)?;
            match raw.p_type.get(LE) {
                PT_LOAD => self.loads.push(segment),
                PT_DYNAMIC => self.dynamic = Some(segment),
                PT_TLS => self.tls = Some(segment),
                _ => {}
            }
        }
        if self.loads.is_empty() {
            return Err(RefuseReason::Malformed("no loadable segment"));
        }
        Ok(())
    }

    fn segment(&self, raw: &ProgramHeader64<LittleEndian>) -> Result<Segment, RefuseReason> {
        let segment = Segment {
            vaddr: raw.p_vaddr.get(LE),
            offset: raw.p_offset.get(LE),
            filesz: raw.p_filesz.get(LE),
            memsz: raw.p_memsz.get(LE),
            align: raw.p_align.get(LE),
            writable: raw.p_flags.get(LE) & PF_W != 0,
            executable: raw.p_flags.get(LE) & PF_X != 0,
        };
        if !matches!(raw.p_type.get(LE), PT_LOAD | PT_DYNAMIC | PT_TLS) {
            return Ok(segment);
        }
        if segment.offset.checked_add(segment.filesz).is_none_or(|end| end > self.source.len()) {
            return Err(RefuseReason::Truncated("a loadable segment"));
        }
        if segment.vaddr.checked_add(segment.memsz).is_none() || segment.filesz > segment.memsz {
            return Err(RefuseReason::Malformed("impossible size of a segment"));
        }
        Ok(segment)
    }

    /// The segment whose file contents hold `len` bytes at `vaddr`.
    pub(crate) fn load_at(&self, vaddr: u64, len: u64) -> Option<&Segment> {
        self.loads.iter().find(|load| {
            vaddr
                .checked_sub(load.vaddr)
                .and_then(|skip| skip.checked_add(len))
                .is_some_and(|end| end <= load.filesz)
        })
    }

    /// File offset of `len` bytes at `vaddr`: `vaddr - p_vaddr + p_offset`, as the kernel maps it.
    pub(crate) fn file_offset(&self, vaddr: u64, len: u64) -> Option<u64> {
        self.load_at(vaddr, len).map(|load| vaddr - load.vaddr + load.offset)
    }

    /// Bytes that the file has from `vaddr` to the end of its segment; 0 when it is in none.
    pub(crate) fn extent_at(&self, vaddr: u64) -> u64 {
        self.load_at(vaddr, 1).map_or(0, |load| load.filesz - (vaddr - load.vaddr))
    }

    /// `len` bytes at `vaddr` as they are in the file, before relocation.
    pub(crate) fn read_vaddr(&self, vaddr: u64, len: u64, what: &'static str) -> Result<Block, RefuseReason> {
        let offset = self.file_offset(vaddr, len).ok_or(RefuseReason::Truncated(what))?;
        self.source.read(offset, len, what)
    }

    /// The first section with this name that lies in a segment.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| {
            section.name == name && self.file_offset(section.vaddr, section.size) == Some(section.offset)
        })
    }

    /// Lowest address of an executable segment: the kernel's `mm->start_code` minus the load bias.
    ///
    /// Source: `load_elf_binary` in fs/binfmt_elf.c: the minimum of `p_vaddr` over the executable PT_LOADs (very
    /// old kernels took all PT_LOADs; every kernel ≥ 5.10 looks at PF_X).
    pub(crate) fn start_code(&self) -> Option<u64> {
        self.loads.iter().filter(|load| load.executable).map(|load| load.vaddr).min()
    }
}

fn read_header(source: &ByteSource) -> Result<FileHeader64<LittleEndian>, RefuseReason> {
    let size = size_of::<FileHeader64<LittleEndian>>() as u64;
    let block = source.read_up_to(0, size, "the ELF header")?;
    if !block.starts_with(&object::elf::ELFMAG) {
        return Err(RefuseReason::NotElf);
    }
    let (header, _) = pod::from_bytes::<FileHeader64<LittleEndian>>(&block)
        .map_err(|()| RefuseReason::Truncated("the ELF header"))?;
    let kind = header.e_type.get(LE);
    let ours = header.e_ident.class == object::elf::ELFCLASS64
        && header.e_ident.data == object::elf::ELFDATA2LSB
        && (kind == ET_EXEC || kind == ET_DYN);
    if ours { Ok(*header) } else { Err(RefuseReason::NotExecutable) }
}

/// The section table; `None` when any part of it is unusable.
fn read_sections(source: &ByteSource, header: &FileHeader64<LittleEndian>) -> Option<Vec<Section>> {
    let count = header.e_shnum.get(LE);
    let entry = size_of::<SectionHeader64<LittleEndian>>();
    if count == 0 || count > MAX_SECTIONS || usize::from(header.e_shentsize.get(LE)) != entry {
        return None;
    }
    let block =
        source.read(header.e_shoff.get(LE), u64::from(count) * entry as u64, "section headers").ok()?;
    let (headers, _) = pod::slice_from_bytes::<SectionHeader64<LittleEndian>>(&block, count.into()).ok()?;
    let strings = headers.get(usize::from(header.e_shstrndx.get(LE)))?;
    if strings.sh_size.get(LE) > MAX_SECTION_NAMES {
        return None;
    }
    let names = source.read(strings.sh_offset.get(LE), strings.sh_size.get(LE), "section names").ok()?;
    Some(headers.iter().map(|raw| section(source, raw, &names)).collect())
}

fn section(source: &ByteSource, raw: &SectionHeader64<LittleEndian>, names: &[u8]) -> Section {
    let offset = raw.sh_offset.get(LE);
    let size = raw.sh_size.get(LE);
    let kind = raw.sh_type.get(LE);
    let in_file = kind != SHT_NOBITS && offset.checked_add(size).is_some_and(|end| end <= source.len());
    Section {
        name: text_at(names, raw.sh_name.get(LE) as usize, 64).unwrap_or_default().to_owned(),
        kind,
        vaddr: raw.sh_addr.get(LE),
        offset,
        size: if in_file { size } else { 0 },
        link: raw.sh_link.get(LE) as usize,
    }
}

/// The zero-terminated UTF-8 text at `at`, if it has at most `max` bytes.
pub(crate) fn text_at(bytes: &[u8], at: usize, max: usize) -> Option<&str> {
    let tail = bytes.get(at..)?;
    let tail = &tail[..tail.len().min(max + 1)];
    std::str::from_utf8(&tail[..memchr::memchr(0, tail)?]).ok()
}
