//! [`Program`]: what an executable says about where its goroutines are. One analysis serves all processes that run it.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::code::Known;
use super::error::GoroutineError;
use super::receivers::RELISTS;
use super::relist_time::CLOCK_USER;
use crate::target::{FileId, Functions, GcOffsets, GoBinary, RefuseReason, exe_link};

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

/// Who writes down when a collection ended.
const GC_WRITER: &str = "runtime.gcMarkTermination";
/// Who switches from one goroutine to another without the scheduler; only in programs that use it.
const COROUTINES: &str = "runtime.coroswitch_m";

/// An analysed executable.
#[derive(Debug)]
pub struct Program {
    pub(super) functions: Functions,
    pub(super) go_version: String,
    /// Address of the runtime's `moduledata` in the file, and of the function table.
    pub(super) moduledata: u64,
    pub(super) table: u64,
    /// Where the list of goroutines may be, the likeliest group first.
    pub(super) lists: Vec<Vec<u64>>,
    /// Where the words for wait reasons may be.
    pub(super) reasons: Vec<u64>,
    /// Address of `memstats.last_gc_unix`, and what is behind it; `None` when that is not certain, or says nothing.
    pub(super) gc: Option<(u64, GcOffsets)>,
    /// Where the method values of a relist begin; none in what is no kubelet.
    pub(super) relists: Vec<u64>,
    /// Where the start of the clock may be.
    pub(super) clocks: Vec<u64>,
    /// What was looked up of its functions so far.
    known: Mutex<Known>,
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
            Ok(binary) => Ok(Self::new(&binary)),
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

    /// From an executable that was analysed for something else. Of its function table little is kept.
    #[must_use]
    pub fn new(binary: &GoBinary) -> Self {
        let references = |names: &[&str]| {
            let mut found: Vec<u64> = names.iter().flat_map(|name| binary.data_references(name)).collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        Self {
            lists: LIST_USERS.iter().map(|names| references(names)).collect(),
            reasons: references(REASON_USERS),
            gc: gc(binary),
            relists: entries(binary, &RELISTS),
            clocks: references(&[CLOCK_USER]),
            go_version: binary.build_info().go_version.clone(),
            moduledata: binary.moduledata(),
            table: binary.table(),
            functions: binary.kept(),
            known: Mutex::default(),
        }
    }

    /// Identity of the file.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.functions.id()
    }

    /// Is it what a process runs, and unchanged? By number and times of the file behind its link.
    #[must_use]
    pub fn is_run_by(&self, pid: u32) -> bool {
        let id = self.id();
        let metadata = std::fs::metadata(exe_link(pid));
        let same = metadata.is_ok_and(|found| (found.dev(), found.ino()) == (id.dev, id.ino));
        same && self.functions.is_unchanged().is_ok_and(|same| same)
    }

    /// What earlier readings looked up; one reading at a time.
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where these functions begin.
fn entries(binary: &GoBinary, names: &[&str]) -> Vec<u64> {
    names.iter().flat_map(|name| binary.functions_named(name)).map(|function| function.entry).collect()
}

/// Where the ends of collections are: the one place from which all that the writer refers to is where it should be.
fn gc(binary: &GoBinary) -> Option<(u64, GcOffsets)> {
    let gc = binary.abi().gc?;
    let coroutines = binary.functions_named(COROUTINES).next().is_some();
    let found: HashSet<u64> = binary.data_references(GC_WRITER).into_iter().collect();
    let behind = |at: u64, offset: u32| at.checked_add(offset.into()).is_some_and(|at| found.contains(&at));
    let is_whole = |at: &u64| {
        let all = [gc.pause_ns, gc.pause_end, gc.last_gc_nanotime];
        all.into_iter().all(|offset| behind(*at, offset))
    };
    let mut places = found.iter().copied().filter(is_whole);
    let place = places.next().filter(|_| !coroutines && places.next().is_none())?;
    Some((place, gc))
}
