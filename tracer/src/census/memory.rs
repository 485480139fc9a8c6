//! Memory of other processes, read with `process_vm_readv`: many pieces in one call, nothing stopped, nothing signalled.
//!
//! The call takes the memory lock of the target, so it can block for as long as another task holds it, and cannot be killed
//! meanwhile (`mmap_read_lock` in mm/process_vm_access.c). Who must not block has a process of its own read, which can be
//! left behind; a thread would keep its process from ending, and with it whatever that has open.

use std::io;

/// Most pieces of one call (`UIO_MAXIOV` in include/uapi/linux/uio.h).
const MAX_PIECES: usize = 1024;

/// One piece to read.
#[derive(Debug)]
pub struct Piece<'a> {
    /// Address in the other process.
    pub addr: u64,
    /// Where it goes.
    pub into: &'a mut [u8],
    /// It was read whole. What `into` holds otherwise means nothing.
    pub whole: bool,
}

impl<'a> Piece<'a> {
    /// A piece that has not been read.
    #[must_use]
    pub fn new(addr: u64, into: &'a mut [u8]) -> Self {
        Self { addr, into, whole: false }
    }
}

/// Why nothing at all can be read.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// No such process any more.
    #[error("the process has ended")]
    Gone,
    /// Not allowed to.
    #[error("no permission to read its memory")]
    Denied,
    /// Something else.
    #[error("cannot read its memory")]
    Io(#[source] io::Error),
}

/// Memory that can be read in pieces.
pub trait Memory {
    /// Reads all pieces, and marks those that could be read whole.
    ///
    /// # Errors
    ///
    /// Nothing can be read from this process, now or later.
    fn read(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryError>;

    /// Reads one piece; `false` when it cannot be read whole.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    fn read_one(&self, addr: u64, into: &mut [u8]) -> Result<bool, MemoryError> {
        let mut piece = [Piece::new(addr, into)];
        self.read(&mut piece)?;
        Ok(piece[0].whole)
    }
}

/// Memory of a running process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    /// Process id.
    pub pid: u32,
}

impl Memory for ProcessMemory {
    fn read(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryError> {
        let mut rest = pieces;
        while !rest.is_empty() {
            let many = rest.len().min(MAX_PIECES);
            let (these, _) = rest.split_at_mut(many);
            let done = match read_pieces(self.pid, these) {
                // A piece that cannot be read ends the call; what comes after it is read by the next one.
                Ok(bytes) => mark(these, bytes) + 1,
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => 1,
                Err(error) => return Err(fatal(error)),
            };
            rest = &mut rest[done.min(many)..];
        }
        Ok(())
    }
}

/// Marks the pieces that the first `bytes` bytes fill; gives their number.
fn mark(pieces: &mut [Piece<'_>], bytes: usize) -> usize {
    let mut left = bytes;
    for (index, piece) in pieces.iter_mut().enumerate() {
        let Some(rest) = left.checked_sub(piece.into.len()) else { return index };
        (piece.whole, left) = (true, rest);
    }
    pieces.len()
}

fn fatal(error: io::Error) -> MemoryError {
    match error.raw_os_error() {
        Some(libc::ESRCH) => MemoryError::Gone,
        Some(libc::EPERM) => MemoryError::Denied,
        _ => MemoryError::Io(error),
    }
}

/// One `process_vm_readv`: bytes read, from the first piece on.
fn read_pieces(pid: u32, pieces: &mut [Piece<'_>]) -> io::Result<usize> {
    let len = |piece: &Piece<'_>| piece.into.len();
    let remote: Vec<libc::iovec> = pieces
        .iter()
        .map(|piece| libc::iovec { iov_base: piece.addr as *mut libc::c_void, iov_len: len(piece) })
        .collect();
    let local: Vec<libc::iovec> = pieces
        .iter_mut()
        .map(|piece| libc::iovec { iov_len: len(piece), iov_base: piece.into.as_mut_ptr().cast() })
        .collect();
    let count = libc::c_ulong::try_from(pieces.len()).unwrap_or(0);
    // SAFETY: the local buffers are ours and as long as said; the remote ones are checked by the kernel.
    let read = unsafe {
        libc::process_vm_readv(pid.cast_signed(), local.as_ptr(), count, remote.as_ptr(), count, 0)
    };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces that cannot be read are told from the others, wherever they stand.
    #[test]
    fn holes_are_found() {
        let me = ProcessMemory { pid: std::process::id() };
        let (a, b) = ([1u8; 16], [2u8; 3000]);
        let (mut x, mut y, mut z, mut w) = ([0; 16], [0; 8], [0; 3000], [0; 8]);
        let mut pieces = [
            Piece::new(a.as_ptr() as u64, &mut x),
            Piece::new(8, &mut y),
            Piece::new(b.as_ptr() as u64, &mut z),
            Piece::new(u64::MAX - 7, &mut w),
        ];
        me.read(&mut pieces).unwrap();
        assert_eq!(pieces.each_ref().map(|piece| piece.whole), [true, false, true, false]);
        assert_eq!((x, z), (a, b));
    }

    /// More pieces than one call takes.
    #[test]
    fn many_pieces() {
        let me = ProcessMemory { pid: std::process::id() };
        let source: Vec<u64> = (0..2500).collect();
        let mut into = vec![0u8; 8 * source.len()];
        let mut pieces: Vec<Piece<'_>> = source
            .iter()
            .zip(into.chunks_mut(8))
            .map(|(word, into)| Piece::new(&raw const *word as u64, into))
            .collect();
        me.read(&mut pieces).unwrap();
        assert!(pieces.iter().all(|piece| piece.whole));
        assert_eq!(into[8 * 2499..], 2499u64.to_le_bytes());
    }

    /// A process that does not exist is gone.
    #[test]
    fn nobody() {
        let nobody = ProcessMemory { pid: 4_194_305 };
        assert!(matches!(nobody.read_one(4096, &mut [0; 8]), Err(MemoryError::Gone)));
    }
}
