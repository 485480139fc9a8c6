//! Where a field lies in a struct of a Go program, by the type descriptors that the program carries for itself.
//!
//! A struct that changes from release to release cannot be read by a table of offsets, and packages of distributions do not
//! say which release of a library they have. But what a program ever converts to an interface, and all that hangs on it,
//! has its type described in the file: name, size, and the name, type and offset of each field.
//!
//! Sources: internal/abi/type.go; before Go 1.21 runtime/type.go; the names: cmd/compile/internal/reflectdata/reflect.go.
//! What differs: before 1.17 a name has two bytes of length, then a varint; before 1.19 the offset of a field is doubled, and
//! its lowest bit says that it is embedded, since then a bit of its name does.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memmem;

use super::{
    elf::{Elf, Segment},
    error::RefuseReason,
    go_type::{
        self, EXTRA_STAR, FLAGS_AT, KIND_AT, KIND_MASK, KIND_POINTER, KIND_STRUCT, KIND_UINT32, MAX_TYPES,
        MODULEDATA, NAME_AT, NAMED,
    },
    moduledata::Moduledata,
    source::{Block, u32_at, u64_at},
    version::GoVersion,
};

/// `abi.StructType`: the name of the package, then the slice of fields.
const STRUCT: usize = go_type::LEN + 24;
/// `abi.StructField`: name, type, offset.
const FIELD: u64 = 24;
/// The largest struct of a kubelet has about a hundred.
const MAX_FIELDS: u64 = 256;
/// A name: a byte of flags, its length, the text.
const NAME_EMBEDDED: u8 = 1 << 3;
const NAME_FLAGS: u8 = 15;
const MAX_NAME: usize = 255;
/// Places where the text of a name is found; most are names of other things that end alike.
const MAX_NAMES: usize = 64;
/// Types that have this name; packages of one name are told apart by their path.
const MAX_TYPES_FOUND: usize = 16;
const SCAN_CHUNK: u64 = 1 << 20;
/// What embeds what embeds it.
const MAX_DEPTH: usize = 3;

/// The way from the address of a struct to a field in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath {
    /// Bytes from the beginning of the struct.
    pub offset: u16,
    /// The field is in a struct that is embedded by pointer: the pointer is at `offset`, and the field so many bytes behind
    /// where it points to.
    pub then: Option<u16>,
}

impl FieldPath {
    fn inside(self, outer: u16) -> Option<Self> {
        Some(Self { offset: self.offset.checked_add(outer)?, ..self })
    }

    fn behind(self, pointer: u16) -> Option<Self> {
        self.then.is_none().then_some(Self { offset: pointer, then: Some(self.offset) })
    }
}

/// The types of one program.
pub(super) struct Types<'a> {
    elf: &'a Elf,
    version: GoVersion,
    /// Words of moduledata: one of them is where names are counted from.
    words: Vec<u64>,
}

/// A field of a struct.
struct Field {
    name: Vec<u8>,
    kind: u64,
    offset: u16,
    embedded: bool,
}

impl<'a> Types<'a> {
    pub(super) fn new(elf: &'a Elf, module: &Moduledata, version: GoVersion) -> Result<Self, RefuseReason> {
        let len = (MODULEDATA as u64).min(elf.extent_at(module.vaddr));
        let block = elf.read_relocated(module.vaddr, len, "moduledata")?;
        let words = block.chunks_exact(8).filter_map(|word| u64_at(word, 0)).collect();
        Ok(Self { elf, version, words })
    }

    /// The ways to the `uint32` of this name in each struct `package.name`, or in what it embeds. `None` when the type is
    /// not described, and when two of the name disagree.
    ///
    /// All structs are looked for at once: each look goes through all data of the program, 60 MB of a kubelet.
    pub(super) fn uint32(
        &self,
        package: &str,
        names: &[&str],
        field: &str,
    ) -> Result<Vec<Option<FieldPath>>, RefuseReason> {
        let short = package.rsplit('/').next().unwrap_or(package);
        let texts: Vec<String> = names.iter().map(|name| format!("*{short}.{name}")).collect();
        let found = self.structs(&self.names(&texts)?)?;
        found.iter().map(|structs| self.agreed(structs, package, field)).collect()
    }

    /// The way on which the structs of this package agree.
    fn agreed(
        &self,
        structs: &BTreeSet<u64>,
        package: &str,
        field: &str,
    ) -> Result<Option<FieldPath>, RefuseReason> {
        let mut paths = BTreeSet::new();
        for &vaddr in structs {
            if self.is_of(vaddr, package)? {
                paths.insert(self.path(vaddr, field.as_bytes(), MAX_DEPTH)?);
            }
        }
        let mut paths = paths.into_iter();
        Ok(paths.next().flatten().filter(|_| paths.next().is_none()))
    }

    /// Calls `look` for each piece of what is no code, with the address of its first byte; pieces overlap by `overlap`.
    fn scan(&self, overlap: u64, mut look: impl FnMut(u64, &[u8])) -> Result<(), RefuseReason> {
        let mut budget = self.elf.source.len();
        let mut piece = Block::default();
        for Segment { vaddr, offset, filesz, .. } in self.elf.loads.iter().filter(|load| !load.executable) {
            let Some(left) = budget.checked_sub(*filesz) else { break };
            budget = left;
            let mut at = 0;
            while at < *filesz {
                let len = (SCAN_CHUNK + overlap).min(filesz - at);
                self.elf.source.read_again(offset + at, len, "a data segment", &mut piece)?;
                look(vaddr + at, &piece);
                at += SCAN_CHUNK;
            }
        }
        Ok(())
    }

    /// Addresses of names with each of these texts.
    fn names(&self, texts: &[String]) -> Result<Vec<Vec<u64>>, RefuseReason> {
        let wanted: Vec<Vec<u8>> = texts
            .iter()
            .map(|text| self.length(text.len()).into_iter().chain(text.bytes()).collect())
            .collect();
        let finders: Vec<memmem::Finder<'_>> = wanted.iter().map(memmem::Finder::new).collect();
        let mut found = vec![Vec::new(); texts.len()];
        let longest = wanted.iter().map(Vec::len).max().unwrap_or(0);
        self.scan((1 + longest) as u64, |vaddr, block| {
            for (finder, found) in finders.iter().zip(&mut found) {
                for at in finder.find_iter(block).filter_map(|at| at.checked_sub(1)) {
                    let name = vaddr + at as u64;
                    if block[at] & !NAME_FLAGS == 0 && found.len() < MAX_NAMES && !found.contains(&name) {
                        found.push(name);
                    }
                }
            }
        })?;
        Ok(found)
    }

    /// The bytes that say how long a name is.
    fn length(&self, len: usize) -> Vec<u8> {
        let len = len.min(MAX_NAME);
        let low = u8::try_from(len).unwrap_or(u8::MAX);
        match () {
            () if self.version.minor < 17 => vec![0, low],
            () if len < 128 => vec![low],
            () => vec![low | 128, 1],
        }
    }

    /// Addresses of structs, by which of these lists has their name.
    fn structs(&self, names: &[Vec<u64>]) -> Result<Vec<BTreeSet<u64>>, RefuseReason> {
        let mut lists: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
        for (list, name) in
            names.iter().enumerate().flat_map(|(list, all)| all.iter().map(move |it| (list, *it)))
        {
            let offsets = self.words.iter().filter_map(|base| offset_from(*base, name));
            for offset in offsets {
                lists.entry(offset).or_default().insert(list);
            }
        }
        let mut found = vec![BTreeSet::new(); names.len()];
        if lists.is_empty() {
            return Ok(found);
        }
        self.scan(go_type::LEN as u64, |vaddr, block| {
            let skew = (vaddr.next_multiple_of(8) - vaddr) as usize;
            for at in (skew..block.len().saturating_sub(go_type::LEN - 1)).step_by(8) {
                let is_struct = block[at + KIND_AT] & KIND_MASK == KIND_STRUCT
                    && block[at + FLAGS_AT] & (EXTRA_STAR | NAMED) == EXTRA_STAR | NAMED;
                if !is_struct {
                    continue;
                }
                let lists = u32_at(block, at + NAME_AT).and_then(|name| lists.get(&name));
                for &list in lists.into_iter().flatten() {
                    if found[list].len() < MAX_TYPES_FOUND {
                        found[list].insert(vaddr + at as u64);
                    }
                }
            }
        })?;
        Ok(found)
    }

    /// Is the struct of this package, vendored or not?
    fn is_of(&self, vaddr: u64, package: &str) -> Result<bool, RefuseReason> {
        let Ok(block) = self.elf.read_relocated(vaddr, STRUCT as u64, "a type") else { return Ok(false) };
        let Some(path) = u64_at(&block, go_type::LEN).and_then(|name| self.name(name)) else {
            return Ok(false);
        };
        let before = path.1.strip_suffix(package.as_bytes());
        Ok(before.is_some_and(|before| before.is_empty() || before.ends_with(b"/")))
    }

    /// Flags and text of a name.
    fn name(&self, vaddr: u64) -> Option<(u8, Vec<u8>)> {
        let most = (MAX_NAME as u64 + 3).min(self.elf.extent_at(vaddr));
        let block = self.elf.read_vaddr(vaddr, most, "a name").ok()?;
        let (len, at): (usize, usize) = if self.version.minor < 17 {
            ((usize::from(*block.get(1)?) << 8) | usize::from(*block.get(2)?), 3)
        } else {
            match (*block.get(1)?, *block.get(2)?) {
                (low @ ..128, _) => (usize::from(low), 2),
                (low, high @ ..128) => (usize::from(low & 127) | (usize::from(high) << 7), 3),
                _ => return None,
            }
        };
        let text = block.get(at..at.checked_add(len)?)?;
        Some((block[0], text.to_vec()))
    }

    fn fields(&self, vaddr: u64) -> Result<Vec<Field>, RefuseReason> {
        let block = self.elf.read_relocated(vaddr, STRUCT as u64, "a type")?;
        let (Some(at), Some(count)) = (u64_at(&block, go_type::LEN + 8), u64_at(&block, go_type::LEN + 16))
        else {
            return Ok(Vec::new());
        };
        if count == 0 || count > MAX_FIELDS {
            return Ok(Vec::new());
        }
        let block = self.elf.read_relocated(at, count * FIELD, "the fields of a type")?;
        let field = |raw: &[u8]| {
            let (flags, name) = self.name(u64_at(raw, 0)?)?;
            let (kind, offset) = (u64_at(raw, 8)?, u64_at(raw, 16)?);
            let (offset, embedded) = if self.version.minor < 19 {
                (offset >> 1, offset & 1 != 0)
            } else {
                (offset, flags & NAME_EMBEDDED != 0)
            };
            Some(Field { name, kind, offset: u16::try_from(offset).ok()?, embedded })
        };
        Ok(block.chunks_exact(FIELD as usize).filter_map(field).collect())
    }

    /// The kind of a type, and what a pointer points to.
    fn kind(&self, vaddr: u64) -> Result<(u8, u64), RefuseReason> {
        let block = self.elf.read_relocated(vaddr, go_type::LEN as u64 + 8, "a type")?;
        Ok((block[KIND_AT] & KIND_MASK, u64_at(&block, go_type::LEN).unwrap_or(0)))
    }

    /// The way to a field of the struct at `vaddr`: its own, else that of what it embeds.
    fn path(&self, vaddr: u64, wanted: &[u8], depth: usize) -> Result<Option<FieldPath>, RefuseReason> {
        let fields = self.fields(vaddr)?;
        if let Some(field) = fields.iter().find(|field| field.name == wanted && !field.embedded) {
            let is_uint32 = self.kind(field.kind)?.0 == KIND_UINT32;
            return Ok(is_uint32.then_some(FieldPath { offset: field.offset, then: None }));
        }
        let mut paths = BTreeSet::new();
        for field in fields.iter().filter(|field| field.embedded && depth > 0) {
            let path = match self.kind(field.kind)? {
                (KIND_STRUCT, _) => {
                    self.path(field.kind, wanted, depth - 1)?.and_then(|path| path.inside(field.offset))
                }
                (KIND_POINTER, to) if self.kind(to)?.0 == KIND_STRUCT => {
                    self.path(to, wanted, depth - 1)?.and_then(|path| path.behind(field.offset))
                }
                _ => None,
            };
            paths.extend(path);
        }
        let mut paths = paths.into_iter();
        Ok(paths.next().filter(|_| paths.next().is_none()))
    }
}

/// How far a name lies behind where names may be counted from.
fn offset_from(base: u64, name: u64) -> Option<u32> {
    let offset = name.checked_sub(base).filter(|offset| base != 0 && *offset < MAX_TYPES)?;
    u32::try_from(offset).ok()
}
