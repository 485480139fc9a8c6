//! A file, or bytes in memory, as something that can only be read in bounded pieces.
//!
//! Executables are read with `pread`, never mapped: a mapped file that is truncated by its owner while we look kills
//! the reader with SIGBUS, and reading a 100 MB kubelet whole would cost its size in memory. Everything that parses
//! goes through [`ByteSource::read`], which checks the range against the file *before* it allocates.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;

use object::pod;

use super::error::RefuseReason;

/// Largest executable we look at. The largest Kubernetes binaries with all debug information have about 250 MB.
pub(crate) const MAX_FILE: u64 = 1 << 30;
/// Largest piece read at once.
pub(crate) const MAX_READ: u64 = 64 << 20;

/// Bytes aligned to 8, so that `object`'s ELF structures can be laid over them.
#[derive(Default)]
pub(crate) struct Block {
    words: Vec<u64>,
    len: usize,
}

impl Block {
    fn resize(&mut self, len: usize) {
        let words = len.div_ceil(8);
        if self.words.is_empty() {
            // Zeroed by the kernel, which has not to be paid for where it is written to right after.
            self.words = vec![0; words];
        }
        self.words.resize(words, 0);
        self.len = len;
    }

    /// The bytes, writable (relocations are applied in place).
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut pod::bytes_of_slice_mut(&mut self.words)[..self.len]
    }
}

/// The length only: a block can have megabytes.
impl fmt::Debug for Block {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Block({} bytes)", self.len)
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &pod::bytes_of_slice(&self.words)[..self.len]
    }
}

enum Inner {
    File(File),
    Bytes(Vec<u8>),
}

/// Where the bytes of an executable come from.
pub(crate) struct ByteSource {
    inner: Inner,
    len: u64,
}

impl fmt::Debug for ByteSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ByteSource({} bytes)", self.len)
    }
}

impl ByteSource {
    /// A regular file of a bearable size.
    pub(crate) fn from_file(file: File) -> Result<Self, RefuseReason> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(RefuseReason::NotRegular);
        }
        check_size(meta.len())?;
        Ok(Self { len: meta.len(), inner: Inner::File(file) })
    }

    /// Bytes in memory.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<Self, RefuseReason> {
        let len = bytes.len() as u64;
        check_size(len)?;
        Ok(Self { inner: Inner::Bytes(bytes), len })
    }

    /// Size in bytes when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The open file, when it is one.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.inner {
            Inner::File(file) => Some(file),
            Inner::Bytes(_) => None,
        }
    }

    /// Exactly `len` bytes at `offset`; `what` names them in the error.
    pub(crate) fn read(&self, offset: u64, len: u64, what: &'static str) -> Result<Block, RefuseReason> {
        let mut block = Block::default();
        self.read_again(offset, len, what, &mut block)?;
        Ok(block)
    }

    /// As [`read`](Self::read), into a block that was read before: who reads many pieces needs memory for one.
    pub(crate) fn read_again(
        &self,
        offset: u64,
        len: u64,
        what: &'static str,
        block: &mut Block,
    ) -> Result<(), RefuseReason> {
        if len > MAX_READ {
            return Err(RefuseReason::TooLarge { what, size: len, limit: MAX_READ });
        }
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(RefuseReason::Truncated(what));
        }
        block.resize(usize::try_from(len).expect("MAX_READ fits in usize"));
        self.fill(offset, block.bytes_mut(), what)
    }

    /// Up to `len` bytes at `offset`, fewer at the end of the file.
    pub(crate) fn read_up_to(
        &self,
        offset: u64,
        len: u64,
        what: &'static str,
    ) -> Result<Block, RefuseReason> {
        let offset = offset.min(self.len);
        self.read(offset, len.min(self.len - offset), what)
    }

    fn fill(&self, offset: u64, buf: &mut [u8], what: &'static str) -> Result<(), RefuseReason> {
        match &self.inner {
            Inner::File(file) => file.read_exact_at(buf, offset).map_err(|error| match error.kind() {
                // The file has shrunk since it was opened.
                io::ErrorKind::UnexpectedEof => RefuseReason::Truncated(what),
                _ => RefuseReason::Io(error),
            }),
            Inner::Bytes(bytes) => {
                let at = usize::try_from(offset).map_err(|_| RefuseReason::Truncated(what))?;
                let from = bytes.get(at..at + buf.len()).ok_or(RefuseReason::Truncated(what))?;
                buf.copy_from_slice(from);
                Ok(())
            }
        }
    }
}

fn check_size(size: u64) -> Result<(), RefuseReason> {
    if size > MAX_FILE {
        return Err(RefuseReason::TooLarge { what: "executable", size, limit: MAX_FILE });
    }
    Ok(())
}

/// The little-endian u32 at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

/// The little-endian u64 at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read outside the file is refused before anything is allocated for it.
    #[test]
    fn reads_are_checked_against_the_file() {
        let source = ByteSource::from_bytes(vec![7; 20]).unwrap();
        assert_eq!(&*source.read(4, 16, "x").unwrap(), &[7; 16]);
        assert!(matches!(source.read(5, 16, "x"), Err(RefuseReason::Truncated("x"))));
        assert!(matches!(source.read(u64::MAX, 2, "x"), Err(RefuseReason::Truncated("x"))));
        assert!(matches!(source.read(0, MAX_READ + 1, "x"), Err(RefuseReason::TooLarge { .. })));
        assert_eq!(source.read_up_to(16, 100, "x").unwrap().len(), 4);
        assert_eq!(source.read_up_to(99, 100, "x").unwrap().len(), 0);
    }

    /// A directory or pipe is not an executable.
    #[test]
    fn only_regular_files() {
        let dir = File::open("/").unwrap();
        assert!(matches!(ByteSource::from_file(dir), Err(RefuseReason::NotRegular)));
    }

    /// Words are read only where they are whole.
    #[test]
    fn words_at_the_edge() {
        assert_eq!(u32_at(&[1, 0, 0, 0], 0), Some(1));
        assert_eq!(u32_at(&[1, 0, 0, 0], 1), None);
        assert_eq!(u64_at(&[0; 8], usize::MAX), None);
    }
}
