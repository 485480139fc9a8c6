//! The child protects the node from itself: it does not outlive its parent, takes the processor last, memory within a
//! bound, and holds nothing open.

use std::{fs, io};

use rustix::process::{
    Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setpriority_process, setrlimit,
};

/// Address space: what is read is bounded everywhere, this is for what was forgotten. Mapped executables count.
const MAX_ADDRESS_SPACE: u64 = 2 << 30;
/// Priority below everything that serves the node.
const NICE: i32 = 5;
/// Blocks of this size and more have mappings of their own, which go back to the kernel when they are freed.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: libc::c_int = 256 << 10;

/// Everything at once; `parent` is who must still be there.
///
/// # Errors
///
/// The parent is gone.
pub(super) fn protect(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before the line above.
    let own = getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if own != Some(parent) {
        return Err(io::Error::other("the parent is gone"));
    }
    close_inherited();
    let _ = setpriority_process(None, NICE);
    limit(Resource::As, MAX_ADDRESS_SPACE);
    limit(Resource::Core, 0);
    // When memory runs out, the reader goes first. Raising it is always allowed.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    // Function tables are large and read once: the allocator must not keep their memory.
    // SAFETY: mallopt has no preconditions.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING);
    }
    Ok(())
}

fn limit(what: Resource, most: u64) {
    let _ = setrlimit(what, Rlimit { current: Some(most), maximum: Some(most) });
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
