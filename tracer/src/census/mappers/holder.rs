//! What was read of a thread → may it hold the memory lock of its process for long? Pure.

use std::fmt;

use crate::census::text::Position;

/// What was read of one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) comm: String,
    pub(super) state: char,
    /// Kernel functions, innermost first; `None` when they cannot be read.
    pub(super) stack: Option<Vec<String>>,
    /// Where it is, as far as that can be read.
    pub(super) at: Option<Position>,
    /// How often it went to sleep so far.
    pub(super) sleeps: u64,
}

/// Where a thread is that may hold the memory lock of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// A page fault, of its own code or in the middle of a system call.
    Fault,
    /// `mmap`, `munmap`, `mprotect`, `brk` and the like.
    Mapping,
    /// An `execve` that is exchanging the memory of the process.
    Exec,
    /// It sleeps in a way that nothing interrupts, and its kernel stack cannot be read.
    Unknown,
}

/// A thread that may hold the memory lock of its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name: hostile text.
    pub comm: String,
    /// Where it is.
    pub inside: Inside,
    /// The kernel function in which it waits, if that can be read.
    pub function: Option<String>,
    sleeps: u64,
}

/// The memory lock was dropped before what is further in, or whatever it was held for is over. `handle_userfault` drops
/// it (fs/userfaultfd.c); a signal is handled on the way out to user space, and that is where threads stop and freeze.
const DROPPED: &[&str] = &["handle_userfault", "get_signal", "do_notify_resume", "exit_to_user_mode_loop"];
/// Page faults: x86, arm64, and those of a system call that reads or writes memory.
const FAULT: &[&str] = &[
    "handle_mm_fault",
    "__handle_mm_fault",
    "do_user_addr_fault",
    "do_page_fault",
    "exc_page_fault",
    "asm_exc_page_fault",
    "do_mem_abort",
    "el0_da",
    "el0_ia",
    "faultin_page",
    "__get_user_pages",
    "fixup_user_fault",
];
/// Changes of the memory map (mm/mmap.c, mm/util.c, mm/vma.c, mm/mprotect.c, mm/mremap.c, mm/madvise.c, mm/mlock.c,
/// kernel/fork.c): each takes the memory lock for all that it does.
const MAPPING: &[&str] = &[
    "vm_mmap_pgoff",
    "do_mmap",
    "mmap_region",
    "__mm_populate",
    "__vm_munmap",
    "__do_munmap",
    "do_munmap",
    "do_vmi_munmap",
    "do_vmi_align_munmap",
    "do_mprotect_pkey",
    "mprotect_fixup",
    "__do_sys_brk",
    "__x64_sys_brk",
    "__arm64_sys_brk",
    "do_brk_flags",
    "vm_brk_flags",
    "__do_sys_mremap",
    "__x64_sys_mremap",
    "__arm64_sys_mremap",
    "do_madvise",
    "do_mlock",
    "dup_mmap",
];
/// `execve` while it exchanges the memory (fs/exec.c). One that still opens its file holds nothing.
const EXEC: &[&str] = &["exec_mmap", "begin_new_exec", "flush_old_exec", "setup_arg_pages"];

/// Calls that change the memory map, for threads whose stack cannot be read.
const MAPPING_CALLS: &[libc::c_long] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock,
];

/// The thread as a holder, if it may be one.
pub(super) fn holder(thread: &Thread) -> Option<Holder> {
    // Running, ended: neither waits.
    if matches!(thread.state, 'R' | 'Z' | 'X') {
        return None;
    }
    let inside = match &thread.stack {
        Some(stack) => by_stack(stack),
        None if thread.state == 'D' => Some(by_call(thread.at)),
        None => None,
    }?;
    Some(Holder {
        pid: thread.pid,
        tid: thread.tid,
        comm: thread.comm.clone(),
        inside,
        function: thread.stack.as_ref().and_then(|stack| stack.first().cloned()),
        sleeps: thread.sleeps,
    })
}

/// The first function from the inside that decides. A page fault of a FUSE file that does not answer waits like any other
/// call to it, in state S: so the state does not matter.
fn by_stack(stack: &[String]) -> Option<Inside> {
    let decisive = |function: &String| {
        let is_in = |list: &[&str]| list.contains(&function.as_str());
        match () {
            () if is_in(DROPPED) => Some(None),
            () if is_in(FAULT) => Some(Some(Inside::Fault)),
            () if is_in(MAPPING) => Some(Some(Inside::Mapping)),
            () if is_in(EXEC) => Some(Some(Inside::Exec)),
            () => None,
        }
    };
    stack.iter().find_map(decisive).flatten()
}

fn by_call(at: Option<Position>) -> Inside {
    match at {
        Some(Position::Outside { .. }) => Inside::Fault,
        Some(Position::Inside { nr, .. }) if MAPPING_CALLS.contains(&nr) => Inside::Mapping,
        Some(Position::Inside { nr, .. }) if nr == libc::SYS_execve => Inside::Exec,
        _ => Inside::Unknown,
    }
}

/// Those that have not moved from one look to the other: faults come and go all the time, and who waits for one of those
/// waits for a moment.
pub(super) fn unmoved(before: &[Holder], now: &[Holder]) -> Vec<Holder> {
    let same = |holder: &&Holder| {
        before.iter().any(|old| {
            (old.pid, old.tid, old.inside, old.sleeps)
                == (holder.pid, holder.tid, holder.inside, holder.sleeps)
        })
    };
    now.iter().filter(same).cloned().collect()
}

/// Raw text: "thread 12 of containerd (11) has been stuck in a page fault (folio_wait_bit_common)".
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside = match self.inside {
            Inside::Fault => "is stuck in a page fault",
            Inside::Mapping => "is stuck while it changes its memory map",
            Inside::Exec => "is stuck in an execve",
            Inside::Unknown => "does not move, and its kernel stack cannot be read",
        };
        write!(f, "thread {} of {} ({}) {inside}", self.tid, self.comm, self.pid)?;
        self.function.iter().try_for_each(|function| write!(f, ", in {function}"))
    }
}

#[cfg(test)]
#[path = "holder_tests.rs"]
mod tests;
