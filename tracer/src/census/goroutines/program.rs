//! [`Program`]: what an executable says about where its goroutines are. One analysis serves all processes that run it.

use std::path::Path;

use super::error::GoroutineError;
use crate::target::{FileId, GoBinary, RefuseReason};

/// Who refers to `runtime.allgs`: first the one that appends to it (Go 1.13 to 1.27), then the others, for the case that
/// it was inlined. Read from Go's runtime/proc.go, mgcmark.go, mgc.go, traceback.go of these releases.
const LIST_USERS: &[&[&str]] = &[
    &["runtime.allgadd"],
    &[
        "runtime.forEachG",
        "runtime.gcMarkRootPrepare",
        "runtime.gcPrepareMarkRoots",
        "runtime.allGsSnapshotSortedForGC",
        "runtime.tracebackothers",
        "runtime.checkdead",
        "runtime.gcResetMarkState",
        "runtime.schedtrace",
    ],
];
/// Who refers to the words for wait reasons.
const REASON_USERS: &[&str] = &["runtime.waitReason.String", "runtime.goroutineheader"];

/// An analysed executable.
#[derive(Debug)]
pub struct Program {
    pub(super) binary: GoBinary,
    /// Where the list of goroutines may be, the likeliest group first.
    pub(super) lists: Vec<Vec<u64>>,
    /// Where the words for wait reasons may be.
    pub(super) reasons: Vec<u64>,
}

impl Program {
    /// Analyses the executable of a process.
    ///
    /// # Errors
    ///
    /// The process cannot be looked at, or what it runs is not Go of a known version.
    pub fn of_process(pid: u32) -> Result<Self, GoroutineError> {
        let dir = Path::new("/proc").join(pid.to_string());
        match GoBinary::open(&dir.join("exe")) {
            Ok(binary) => Ok(Self::new(binary)),
            Err(RefuseReason::Io(error)) => Err(match error.kind() {
                std::io::ErrorKind::PermissionDenied => GoroutineError::Denied(pid),
                std::io::ErrorKind::NotFound if !dir.exists() => GoroutineError::NoSuchProcess(pid),
                std::io::ErrorKind::NotFound => GoroutineError::NoProgram(pid),
                _ if error.raw_os_error() == Some(libc::ESRCH) => GoroutineError::Gone(pid),
                _ => GoroutineError::Program { pid, why: RefuseReason::Io(error) },
            }),
            Err(why) => Err(GoroutineError::Program { pid, why }),
        }
    }

    /// From an executable that was analysed for something else.
    #[must_use]
    pub fn new(binary: GoBinary) -> Self {
        let references = |names: &[&str]| {
            let mut found: Vec<u64> = names.iter().flat_map(|name| binary.data_references(name)).collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        let lists = LIST_USERS.iter().map(|names| references(names)).collect();
        let reasons = references(REASON_USERS);
        Self { lists, reasons, binary }
    }

    /// Identity of the file.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.binary.id()
    }

    /// The executable.
    #[must_use]
    pub fn binary(&self) -> &GoBinary {
        &self.binary
    }
}
