//! Offsets of kernel structure members from the running kernel's BTF, for eBPF programs that have no CO-RE.
//!
//! A small reader of our own: one pass over the types that keeps four bytes per type, so that 150,000 kernel types
//! cost half a megabyte and a few milliseconds. A structure is looked up by name *and* kind, because names are shared
//! with functions and typedefs. Members inside anonymous structures and unions count as members of the outer one.
//! Format: Documentation/bpf/btf.rst; headers longer than known (kernel ≥ 7.1) are skipped by `hdr_len`.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::elf::text_at;
use super::source::u32_at;

/// A kernel's BTF has 5 to 15 MB.
const MAX_BTF: u64 = 64 << 20;
const MAGIC: u32 = 0xeb9f;
const MAX_NAME: usize = 256;
/// Anonymous members and typedefs nest a few levels.
const MAX_DEPTH: usize = 16;

/// Why offsets are not known.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// No BTF, or no permission.
    #[error(
        "cannot read the kernel's type information {path}: this needs a kernel with CONFIG_DEBUG_INFO_BTF"
    )]
    Io {
        /// The file.
        path: String,
        /// What happened.
        #[source]
        source: std::io::Error,
    },
    /// Not what it should be.
    #[error("kernel type information is malformed: {0}")]
    Malformed(&'static str),
    /// This kernel keeps it elsewhere, or not at all.
    #[error("this kernel has no member {0}")]
    Missing(&'static str),
}

/// Parsed type information.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    /// Start of the type with id `index + 1`, from the start of the file.
    types: Vec<u32>,
    strings: usize,
}

/// One type record.
#[derive(Clone, Copy)]
struct Type {
    at: usize,
    name: u32,
    kind: u32,
    vlen: usize,
    kind_flag: bool,
    /// Size, or the type referred to.
    refers: u32,
}

const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNCTION: u32 = 12;

impl Btf {
    /// Reads a BTF file, usually `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    /// When it cannot be read or is not BTF.
    pub fn load(path: &Path) -> Result<Self, BtfError> {
        let failed = |source| BtfError::Io { path: path.display().to_string(), source };
        let mut bytes = Vec::new();
        File::open(path).and_then(|file| file.take(MAX_BTF).read_to_end(&mut bytes)).map_err(failed)?;
        Self::parse(bytes)
    }

    /// Indexes the types of a BTF file in memory.
    ///
    /// # Errors
    /// When it is not BTF.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        let word = |at: usize| u32_at(&bytes, at).map(|word| word as usize);
        let header = || Some((word(4)?, word(8)?, word(12)?, word(16)?));
        let (header_len, type_off, type_len, str_off) =
            header().ok_or(BtfError::Malformed("header is cut off"))?;
        if word(0).is_none_or(|first| first as u32 & 0xffff != MAGIC) {
            return Err(BtfError::Malformed("wrong magic"));
        }
        let first = header_len.saturating_add(type_off);
        let end = first.saturating_add(type_len).min(bytes.len());
        let mut btf = Self { types: Vec::new(), strings: header_len.saturating_add(str_off), bytes };
        let mut at = first;
        while at < end {
            let record = btf.record(at).ok_or(BtfError::Malformed("type is cut off"))?;
            // A kind we do not know has an unknown length: what came before it is still good.
            let Some(extra) = extra_bytes(record.kind, record.vlen) else { break };
            btf.types.push(u32::try_from(at).map_err(|_| BtfError::Malformed("too large"))?);
            at += 12 + extra;
        }
        Ok(btf)
    }

    /// Offset in bytes of a member given as `struct.member[.member…]`.
    ///
    /// # Errors
    /// [`BtfError::Missing`] with the path.
    pub fn offset_of(&self, path: &'static str) -> Result<u32, BtfError> {
        self.find_path(path).ok_or(BtfError::Missing(path))
    }

    fn find_path(&self, path: &str) -> Option<u32> {
        let mut parts = path.split('.');
        let mut current = self.structure(parts.next()?)?;
        let mut offset = 0u32;
        for part in parts {
            let (bits, member_type) = self.member(current, part, MAX_DEPTH)?;
            offset = offset.checked_add(bits / 8).filter(|_| bits % 8 == 0)?;
            current = self.resolve(member_type).unwrap_or(current);
        }
        Some(offset)
    }

    /// Id of the kernel function with this name.
    pub(super) fn function(&self, name: &str) -> Option<u32> {
        let is_it = |at: &u32| {
            let record = self.record(*at as usize);
            record.is_some_and(|record| record.kind == FUNCTION && self.text(record.name) == Some(name))
        };
        u32::try_from(self.types.iter().position(is_it)?).ok()?.checked_add(1)
    }

    /// The structure with this name; the first one that has members.
    fn structure(&self, name: &str) -> Option<Type> {
        let records = self.types.iter().filter_map(|at| self.record(*at as usize));
        let mut named = records.filter(|record| record.kind == STRUCT && record.vlen > 0);
        named.find(|record| self.text(record.name) == Some(name))
    }

    /// Offset in bits and type of a member, looking into anonymous members.
    fn member(&self, of: Type, name: &str, depth: usize) -> Option<(u32, u32)> {
        if depth == 0 || !matches!(of.kind, STRUCT | UNION) {
            return None;
        }
        for index in 0..of.vlen {
            let at = of.at + 12 + 12 * index;
            let (member_name, member_type) = (u32_at(&self.bytes, at)?, u32_at(&self.bytes, at + 4)?);
            let raw = u32_at(&self.bytes, at + 8)?;
            let bits = if of.kind_flag { raw & 0x00ff_ffff } else { raw };
            if member_name != 0 {
                if self.text(member_name) == Some(name) {
                    return Some((bits, member_type));
                }
            } else if let Some(inner) = self.resolve(member_type)
                && let Some((more, found)) = self.member(inner, name, depth - 1)
            {
                return Some((bits.checked_add(more)?, found));
            }
        }
        None
    }

    /// Follows typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<Type> {
        for _ in 0..MAX_DEPTH {
            let at = *self.types.get((id as usize).checked_sub(1)?)?;
            let record = self.record(at as usize)?;
            match record.kind {
                // typedef, volatile, const, restrict, type tag
                8..=11 | 18 => id = record.refers,
                _ => return Some(record),
            }
        }
        None
    }

    fn record(&self, at: usize) -> Option<Type> {
        let (name, info, refers) =
            (u32_at(&self.bytes, at)?, u32_at(&self.bytes, at + 4)?, u32_at(&self.bytes, at + 8)?);
        Some(Type {
            at,
            name,
            kind: info >> 24 & 0x1f,
            vlen: (info & 0xffff) as usize,
            kind_flag: info >> 31 == 1,
            refers,
        })
    }

    fn text(&self, offset: u32) -> Option<&str> {
        text_at(&self.bytes, self.strings.checked_add(offset as usize)?, MAX_NAME)
    }
}

/// Bytes behind the 12 common ones; `None` for a kind that is not known.
fn extra_bytes(kind: u32, vlen: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,
        2 | 7..=12 | 16 | 18 => 0,
        3 => 12,
        4 | 5 | 15 | 19 => 12 * vlen,
        6 | 13 => 8 * vlen,
        _ => return None,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Type records and strings as a BTF file whose header is `header_len` bytes long.
    fn btf_file(header_len: u32, types: &[u32], strings: &[u8]) -> Vec<u8> {
        let type_len = 4 * types.len() as u32;
        let words = [0x0001_eb9f, header_len, 0, type_len, type_len, strings.len() as u32];
        let mut file: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.resize(header_len as usize, 0);
        file.extend(types.iter().flat_map(|word| word.to_le_bytes()));
        file.extend_from_slice(strings);
        file
    }

    const STRINGS: &[u8] = b"\0mm_struct\0start_code\0exe_file\0inner\0flag\0";

    /// ids: 1 int; 2 func named mm_struct; 3 anonymous struct {start_code; inner: 1}; 4 struct mm_struct {exe_file;
    /// anonymous: 5}; 5 typedef of 3.
    fn types() -> Vec<u32> {
        let info = |kind: u32, vlen: u32| kind << 24 | vlen;
        [
            vec![0, info(1, 0), 8, 64],
            vec![1, info(12, 0), 1],
            vec![0, info(4, 2), 16, 11, 1, 0, 31, 1, 64],
            vec![1, info(4, 2), 32, 22, 1, 0, 0, 5, 128],
            vec![0, info(8, 0), 3],
        ]
        .concat()
    }

    /// Members of anonymous structures are found through typedefs; a function of the same name is not a structure.
    #[test]
    fn anonymous_members() {
        for header_len in [24, 40] {
            let btf = Btf::parse(btf_file(header_len, &types(), STRINGS)).unwrap();
            assert_eq!(btf.offset_of("mm_struct.exe_file").unwrap(), 0);
            assert_eq!(btf.offset_of("mm_struct.start_code").unwrap(), 16);
            assert_eq!(btf.offset_of("mm_struct.inner").unwrap(), 24);
        }
    }

    /// A function has the number of its record; a structure of that name is none.
    #[test]
    fn functions() {
        let btf = Btf::parse(btf_file(24, &types(), STRINGS)).unwrap();
        assert_eq!(
            (btf.function("mm_struct"), btf.function("start_code"), btf.function("")),
            (Some(2), None, None)
        );
    }

    /// What is missing is an error, also below a member that is no structure.
    #[test]
    fn missing_members_are_named() {
        let btf = Btf::parse(btf_file(24, &types(), STRINGS)).unwrap();
        let error = btf.offset_of("task_struct.mm").unwrap_err();
        assert_eq!(error.to_string(), "this kernel has no member task_struct.mm");
        assert!(btf.offset_of("mm_struct.exe_file.deeper").is_err());
    }

    /// Type information with these structures: in each, the members in order, of a word each. A member can be a structure
    /// itself: `"name:structure"`.
    pub(in crate::target) fn forged(structures: &[(&str, Vec<&str>)]) -> Btf {
        let (mut types, mut strings) = (vec![0, 1 << 24, 8, 64], vec![0_u8]);
        let mut text = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at
        };
        for (name, members) in structures {
            types.extend([text(name), 4 << 24 | members.len() as u32, 8 * members.len() as u32]);
            for (place, member) in members.iter().enumerate() {
                let (member, of) = member.split_once(':').unwrap_or((member, ""));
                let structure = structures.iter().position(|(name, _)| *name == of);
                types.extend([text(member), structure.map_or(1, |at| at as u32 + 2), 64 * place as u32]);
            }
        }
        Btf::parse(btf_file(24, &types, &strings)).unwrap()
    }

    /// Garbage and cut-off files are errors, a kind of the future ends the list.
    #[test]
    fn hostile_files() {
        assert!(Btf::parse(vec![]).is_err());
        assert!(Btf::parse(vec![0; 64]).is_err());
        let good = btf_file(24, &types(), STRINGS);
        for len in 0..good.len() {
            let _may_fail =
                Btf::parse(good[..len].to_vec()).map(|btf| btf.offset_of("mm_struct.inner").is_ok());
        }
        let future = [types(), vec![0, 31 << 24, 0]].concat();
        assert!(Btf::parse(btf_file(24, &future, STRINGS)).unwrap().offset_of("mm_struct.inner").is_ok());
    }
}
