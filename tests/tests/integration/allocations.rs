//! The allocator of this program: the system's, with a count of what each thread has, and of the largest piece that anybody has asked for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let held = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        held.get()
    });
    // A thread that ends has no count any more.
    if let Ok(held) = held {
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held)));
    }
}

fn taken(bytes: usize) {
    LARGEST.fetch_max(bytes, Ordering::Relaxed);
    count(bytes.cast_signed());
}

// SAFETY: every call is handed to the system's allocator unchanged, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(-layout.size().cast_signed());
        taken(size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The largest piece so far, of all threads, bytes.
pub(crate) fn largest() -> usize {
    LARGEST.load(Ordering::Relaxed)
}

/// What this makes, what that holds, and what this thread had at most meanwhile, bytes.
pub(crate) fn measured<T>(make: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let made = make();
    let bytes = |count: isize| (count - before).max(0).unsigned_abs();
    (made, bytes(HELD.get()), bytes(PEAK.get()))
}
