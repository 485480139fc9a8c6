//! [`Plan`]: binaries, their probe sites, and what is left out.

use std::path::PathBuf;

use plegtrace_common::site::SiteConf;

use crate::input::{Component, HookFact, RefusedFact};

/// One probe site to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSite {
    /// Index in the kernel's site table; the cookie of the uprobe.
    pub index: u32,
    /// What a hit means.
    pub conf: SiteConf,
    /// Offset in the file.
    pub file_offset: u64,
    /// Address minus `mm->start_code`, for kernels without cookies.
    pub code_offset: u64,
    /// The instruction that must be there.
    pub expected: Vec<u8>,
    /// Nanoseconds that a hit takes.
    pub ns_per_hit: u32,
}

/// One executable and its sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBinary {
    /// What it is.
    pub component: Component,
    /// A process that runs it; 0: none does all the time.
    pub pid: u32,
    /// Path to attach to: that of the open file that was analysed, which stays open as long as probes are on.
    pub path: PathBuf,
    /// Inode number.
    pub inode: u64,
    /// Device as the kernel encodes it (`major << 20 | minor`).
    pub kernel_dev: u64,
    /// Sites where calls begin.
    pub starts: Vec<PlannedSite>,
    /// Sites where calls end, reply or show their result.
    pub ends: Vec<PlannedSite>,
    /// Where goroutines park; none when parks are not followed.
    pub parks: Vec<PlannedSite>,
    /// Where the scheduler runs them again; none exactly when `parks` is empty.
    pub resumes: Vec<PlannedSite>,
}

impl PlannedBinary {
    /// Number of sites.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.every_site().count()
    }

    /// Every site, in the order in which they are attached.
    pub fn every_site(&self) -> impl Iterator<Item = &PlannedSite> {
        self.resumes.iter().chain(&self.parks).chain(&self.ends).chain(&self.starts)
    }
}

/// Everything to attach, and everything that cannot be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Per executable.
    pub binaries: Vec<PlannedBinary>,
    /// The hook table; place = `index`.
    pub hooks: Vec<HookFact>,
    /// What is left out, and why.
    pub refused: Vec<RefusedFact>,
}

impl Plan {
    /// Number of sites.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.binaries.iter().map(PlannedBinary::sites).sum()
    }
}
