//! What was found of the catalogue in one executable: the planner's input.

use std::path::PathBuf;

use crate::{input::Component, plan::row::Wanted};

/// A probe site as found in an executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSite {
    /// Offset in the file.
    pub file_offset: u64,
    /// Address minus `mm->start_code`.
    pub code_offset: u64,
    /// The instruction there.
    pub bytes: Vec<u8>,
    /// [`g_source`](plegtrace_common::site::g_source) at this site.
    pub g_source: u8,
    /// Offset of `g` from the thread pointer, where it is found that way.
    pub tls_offset: i32,
    /// One call can pass it twice, at its start.
    pub repeats: bool,
    /// Nanoseconds that a hit takes.
    pub ns_per_hit: u32,
}

/// A function that the catalogue wants, as found in an executable.
#[derive(Clone, Debug)]
pub struct FoundFunction {
    /// Full Go symbol.
    pub symbol: String,
    /// Its row.
    pub wanted: Wanted,
    /// Where calls begin, or why not.
    pub start: Result<FoundSite, String>,
    /// Where it finds the number of a stream: behind a pointer, and behind another one in some releases.
    pub stream: Option<(u16, Option<u16>)>,
    /// Its RETs, or why not; asked only for rows that end there.
    pub returns: Result<Vec<FoundSite>, String>,
}

/// One executable.
#[derive(Clone, Debug)]
pub struct BinaryFacts {
    /// What it is.
    pub component: Component,
    /// A process that runs it; 0: none does all the time.
    pub pid: u32,
    /// Path to attach to: that of the open file that was analysed.
    pub path: PathBuf,
    /// Path as the process sees it, for people.
    pub exe: String,
    /// Inode number.
    pub inode: u64,
    /// Device as the kernel encodes it.
    pub kernel_dev: u64,
    /// Register ABI (Go ≥ 1.17), not the stack ABI.
    pub register_abi: bool,
    /// Offset of `goid` in `runtime.g`.
    pub goid_offset: u32,
    /// What was found in it.
    pub functions: Vec<FoundFunction>,
}
