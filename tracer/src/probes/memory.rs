//! What reading function tables must not do to the allocator.

/// Blocks of this size and more have mappings of their own, which go back to the kernel when they are freed.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: libc::c_int = 256 << 10;

/// Keeps the allocator from moving large blocks into its arenas: glibc raises the size from which they have mappings of
/// their own with the first large one that is freed, and a thread's arena is never given back from its top.
pub(super) fn keep_large_blocks_apart() {
    // SAFETY: mallopt has no preconditions.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING);
    }
}

/// Reading function tables takes tens of megabytes for a moment; the allocator would keep them.
pub(crate) fn give_memory_back() {
    // SAFETY: malloc_trim has no preconditions.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
