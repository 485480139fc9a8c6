//! Memory that does not fit on a stack: entries of per-CPU maps, and who holds one.
//!
//! Global functions of BPF take no pointers, so each looks up the entry that its caller works on, too. While a caller has a `&mut` to
//! the entry, the compiler may keep a store back until such a call has returned, and the function reads what was there before. So
//! nobody keeps a reference over a call: a [`Held`] lends the entry until it calls, and the borrow checker sees to that.
//! `cargo xtask check` sees that there is no other way.

use core::ptr::NonNull;

use aya_ebpf::maps::PerCpuArray;

/// This CPU's entry of a map, for one that works on it.
pub(crate) struct Held<T>(NonNull<T>);

impl<T> Held<T> {
    /// The entry, which is always there.
    ///
    /// # Safety
    ///
    /// Programs that use the map do not interrupt each other. Whoever else holds the entry has called the caller with
    /// [`Held::call`], or is done with it.
    #[inline(always)]
    pub(crate) unsafe fn of(map: &PerCpuArray<T>) -> Option<Self> {
        map.get_ptr_mut(0).and_then(NonNull::new).map(Self)
    }

    /// The entry, until the next call.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> &mut T {
        // SAFETY: a map value stays valid until the program returns. Nobody else has a reference to it: ours ends before the next
        // call, and those of others as `of` demands.
        unsafe { self.0.as_mut() }
    }

    /// Calls a global function that works on this entry.
    #[inline(always)]
    pub(crate) fn call(&mut self, function: extern "C" fn() -> u64) -> u64 {
        function()
    }
}
