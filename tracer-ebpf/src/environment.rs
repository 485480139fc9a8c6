//! Is the current process a CNI plugin? Its environment is searched here, so that no other one leaves the kernel.
//!
//! For the sake of verifiers that follow each path for itself, everything that differs between the paths that lead here is
//! put into a map first, where they do not see it: they walk through the search once. It has no branch but that of its
//! loop, and always takes the same number of steps, about a dozen instructions each.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use plegtrace_common::{
    environment::{MISSING, SEARCHED, Search},
    reason::Reason,
    rec::{ENV_PART, ProcessRec},
};

use crate::{
    arguments::{Block, masked},
    count,
    maps::SEARCH,
};

/// Where it is done; an entry of a map. Not in the ring buffer: user space sees what was written there, also when it is
/// discarded.
#[repr(C)]
pub(crate) struct Scratch {
    /// What is to be sent afterwards.
    step: ProcessRec,
    /// How many bytes there are.
    len: u64,
    /// Not 0: the environment has more.
    cut: u64,
    bytes: [u8; SEARCHED],
}

/// What came of it.
pub(crate) struct Searched {
    /// What is to be sent.
    pub(crate) step: *const ProcessRec,
    /// Is it a CNI plugin?
    pub(crate) is_cni: bool,
}

/// Looks for `CNI_COMMAND` in the environment of the current process. `None` when there is no room, which does not happen.
#[inline(always)]
pub(crate) fn search(step: &ProcessRec) -> Option<Searched> {
    let scratch = SEARCH.get_ptr_mut(0)?;
    let environment = Block::environment();
    const PART: u64 = ENV_PART as u64 - 1;
    let (start, len) = (environment.start(), environment.len());
    let (first, rest) = (masked(len, PART), len.wrapping_sub(u64::from(masked(len, PART))));
    let last = masked(rest, PART);
    let cut = is_not_zero(rest.wrapping_sub(u64::from(last)));
    // SAFETY: the entry is our CPU's, and this program does not interrupt itself; both parts fit into it. Volatile: what is
    // read back is not known.
    unsafe {
        (&raw mut (*scratch).step).write_volatile(*step);
        let bytes = (&raw mut (*scratch).bytes).cast::<u8>();
        let failed = bpf_probe_read_user(bytes.cast(), first, start as *const c_void);
        // Again, because verifiers before 5.11 forget bounds of what is put aside over a call.
        let (first, last) = (masked(u64::from(first), PART), masked(u64::from(last), PART));
        let behind = bytes.add(first as usize);
        behind.write_volatile(MISSING);
        let end = start.wrapping_add(len).wrapping_sub(u64::from(last));
        let failed =
            failed | bpf_probe_read_user(behind.add(cut as usize).cast(), last, end as *const c_void);
        // Errors are below 0.
        let read = !((failed >> 63) as u64);
        (&raw mut (*scratch).len).write_volatile((u64::from(first) + cut + u64::from(last)) & read);
        (&raw mut (*scratch).cut).write_volatile(cut);
        Some(find(scratch))
    }
}

/// 1 for anything but 0, without a branch.
#[inline(always)]
fn is_not_zero(n: u64) -> u64 {
    let n = black_box(n);
    black_box(n | n.wrapping_neg()) >> 63
}

/// # Safety
///
/// `scratch` is filled.
#[inline(always)]
unsafe fn find(scratch: *mut Scratch) -> Searched {
    // SAFETY: as the caller promises.
    unsafe {
        let len = (&raw const (*scratch).len).read_volatile();
        let mut search = Search::new(len);
        for place in 0..SEARCHED {
            search.byte(place as u64, (&raw const (*scratch).bytes[place]).read_volatile());
        }
        let is_cni = search.has_found();
        if !is_cni {
            if len == 0 {
                count::reason(Reason::EnvironmentUnreadable);
            } else if (&raw const (*scratch).cut).read_volatile() != 0 {
                count::reason(Reason::EnvironmentCut);
            }
        }
        Searched { step: &raw const (*scratch).step, is_cni }
    }
}
