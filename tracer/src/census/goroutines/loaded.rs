//! Where a process has its executable: the difference between addresses in memory and in the file.
//!
//! The kernel tells the start address of the program in the auxiliary vector. Reading that takes no lock of the
//! process, which reading its list of mappings would. It is checked: the runtime's `moduledata` begins with the address
//! of the function table, in the file and in memory.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::error::GoroutineError;
use super::header::word;
use super::program::Program;
use crate::census::memory::Memory;

/// `AT_ENTRY` (include/uapi/linux/auxvec.h): start address of the program.
const AT_ENTRY: u64 = 9;
/// The kernel keeps 26 pairs at most on the processors we know.
const MAX_AUXV: u64 = 4096;

/// What process `pid` adds to every address of the file.
///
/// # Errors
///
/// It cannot be read, or is not where it should be.
pub(super) fn bias(pid: u32, program: &Program, memory: &dyn Memory) -> Result<u64, GoroutineError> {
    let wrong = |why| GoroutineError::NotLoaded { pid, why };
    let bias = if program.functions.is_pie() {
        let entry = entry(&auxv(pid)?).ok_or(wrong("its auxiliary vector has no start address"))?;
        entry.wrapping_sub(program.functions.entry_point())
    } else {
        0
    };
    if bias % 4096 != 0 {
        return Err(wrong("the distance to the addresses of the file is not whole pages"));
    }
    let mut bytes = [0; 8];
    let at = bias.wrapping_add(program.moduledata);
    let read = memory.read_one(at, &mut bytes).map_err(|why| GoroutineError::memory(pid, why))?;
    if !read || word(&bytes, 0) != Some(bias.wrapping_add(program.table)) {
        return Err(wrong("the runtime's moduledata is not there"));
    }
    Ok(bias)
}

fn auxv(pid: u32) -> Result<Vec<u8>, GoroutineError> {
    let path = Path::new("/proc").join(pid.to_string()).join("auxv");
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_AUXV).read_to_end(&mut bytes));
    read.map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => GoroutineError::Denied(pid),
        _ => GoroutineError::Gone(pid),
    })?;
    Ok(bytes)
}

/// The start address in an auxiliary vector: pairs of type and value.
fn entry(auxv: &[u8]) -> Option<u64> {
    let mut pairs = auxv.chunks_exact(16).filter_map(|pair| Some((word(pair, 0)?, word(pair, 8)?)));
    pairs.find(|(kind, _)| *kind == AT_ENTRY).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our own start address, and vectors without one.
    #[test]
    fn auxiliary_vectors() {
        // SAFETY: reads a number that the kernel gave us.
        let own = unsafe { libc::getauxval(libc::AT_ENTRY) };
        assert_eq!(entry(&auxv(std::process::id()).unwrap()), Some(own));
        assert_eq!(entry(&[9, 0, 0, 0, 0, 0, 0, 0, 1]), None);
        assert_eq!(entry(&[]), None);
        assert!(matches!(auxv(4_194_305), Err(GoroutineError::Gone(_))));
    }
}
