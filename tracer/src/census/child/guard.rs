//! The child protects the node from itself: it does not outlive its parent, takes the processor last, memory within a
//! bound, and holds nothing open.

use std::{fs, io};

/// Address space: what is read is bounded everywhere, this is for what was forgotten. Mapped executables count.
const MAX_ADDRESS_SPACE: libc::rlim_t = 2 << 30;
/// Priority below everything that serves the node.
const NICE: libc::c_int = 5;

/// Everything at once; `parent` is who must still be there.
///
/// # Errors
///
/// The parent is gone.
pub(super) fn protect(parent: u32) -> io::Result<()> {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // It may have died before the line above.
    if std::os::unix::process::parent_id() != parent {
        return Err(io::Error::other("the parent is gone"));
    }
    close_inherited();
    // SAFETY: plain numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    limit(libc::RLIMIT_AS, MAX_ADDRESS_SPACE);
    limit(libc::RLIMIT_CORE, 0);
    // When memory runs out, the reader goes first. Raising it is always allowed.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

fn limit(what: libc::__rlimit_resource_t, most: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a valid structure that outlives the call.
    unsafe { libc::setrlimit(what, &raw const limit) };
}

/// What the parent had open without `O_CLOEXEC`, and whatever its own parent left to it.
fn close_inherited() {
    // SAFETY: nothing in this process uses descriptors above 2 yet. `close_range` exists since Linux 5.9.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } == 0 {
        return;
    }
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: as above; the listing itself is closed, and closing it twice is harmless.
        unsafe { libc::close(fd) };
    }
}
