//! Command line and environment of the current process, copied straight into a record of the ring buffer.
//!
//! At `sched_process_exec` the kernel has just written both onto the new stack, so they are in memory; reads that
//! would fault fail, and the record goes out without them.

use core::{ffi::c_void, hint::black_box, mem::MaybeUninit};

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use plegtrace_common::{
    kind::RecKind,
    reason::Reason,
    rec::{
        ARGV_HEAD, ARGV_TAIL, Copied, ENV_PART, EXEC_ARGV_UNREADABLE, EXEC_ENV_UNREADABLE, ExecEnvRec,
        ExecRec, ProcessRec,
    },
};

use crate::{count, emit, environment, settings::setting, task};

/// A block of strings in user memory.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    start: u64,
    end: u64,
}

impl Block {
    /// The command line of the current process; empty when the kernel does not tell.
    #[inline(always)]
    pub(crate) fn arguments() -> Self {
        Self::bounds(setting!(mm_arg_start), setting!(mm_arg_end))
    }

    #[inline(always)]
    pub(crate) fn environment() -> Self {
        Self::bounds(setting!(mm_env_start), setting!(mm_env_end))
    }

    #[inline(always)]
    fn bounds(start: u32, end: u32) -> Self {
        let mm = task::kernel::<u64>(task::current(), setting!(task_mm)).unwrap_or(0);
        let (start, end) = (task::kernel(mm, start).unwrap_or(0), task::kernel(mm, end).unwrap_or(0));
        Self { start, end }
    }

    /// How many bytes.
    #[inline(always)]
    pub(crate) fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Where the first one is.
    #[inline(always)]
    pub(crate) fn start(self) -> u64 {
        self.start
    }

    /// Is `init` its second and last word?
    #[inline(always)]
    pub(crate) fn says_init(self) -> bool {
        const INIT: u64 = u64::from_ne_bytes(*b"\0init\0\0\0");
        let (mut last, len) = (0u64, 6);
        let at = self.end.wrapping_sub(len);
        // SAFETY: the word has more bytes; the helper checks the address and fails cleanly.
        unsafe { bpf_probe_read_user((&raw mut last).cast(), len as u32, at as *const c_void) };
        // A read that failed leaves zeros.
        last == INIT
    }

    /// Copies head and tail; `None` when a page is not there.
    ///
    /// # Safety
    ///
    /// `head` and `tail` are valid for `HEAD` and `TAIL` bytes, which are powers of two.
    #[inline(always)]
    unsafe fn copy<const HEAD: usize, const TAIL: usize>(
        self,
        head: *mut u8,
        tail: *mut u8,
    ) -> Option<Copied> {
        let len = self.len();
        let first = masked(len, HEAD as u64 - 1);
        let last = masked(len - u64::from(first), TAIL as u64 - 1);
        let tail_at = self.end.wrapping_sub(u64::from(last));
        // SAFETY: as the caller promises; the helper checks the address and fails cleanly.
        let failed = unsafe {
            bpf_probe_read_user(head.cast(), first, self.start as *const c_void) != 0
                || bpf_probe_read_user(tail.cast(), last, tail_at as *const c_void) != 0
        };
        let len = if len > u64::from(u32::MAX) { u32::MAX } else { len as u32 };
        if failed { None } else { Some(Copied { len, head: first, tail: last }) }
    }
}

/// The smaller of both. The mask is a bound that the verifier of every kernel sees; it must be applied to a value the
/// compiler knows nothing about, or it is optimised away.
#[inline(always)]
pub(crate) fn masked(n: u64, mask: u64) -> u32 {
    (black_box(if n > mask { mask } else { n }) & mask) as u32
}

/// Sends an exec with its command line; with its environment when that makes it a CNI plugin, and only then.
#[inline(always)]
pub(crate) fn send(step: &ProcessRec, may_be_cni: bool) {
    if may_be_cni && let Some(searched) = environment::search(step) {
        // SAFETY: the entry of a map.
        let step = unsafe { &*searched.step };
        if searched.is_cni { send_with_environment(step) } else { send_arguments(step) }
    } else {
        send_arguments(step);
    }
}

#[inline(always)]
fn send_arguments(step: &ProcessRec) {
    let sent = emit::fill::<ExecRec>(|rec: &mut MaybeUninit<ExecRec>| {
        // SAFETY: `rec` is a whole record, reserved for us.
        unsafe { write(rec.as_mut_ptr(), step, RecKind::ExecArgs, size_of::<ExecRec>()) }
    });
    or_alone(sent, step);
}

#[inline(always)]
fn send_with_environment(step: &ProcessRec) {
    let sent = emit::fill::<ExecEnvRec>(|rec| {
        // SAFETY: as above.
        unsafe {
            let rec = rec.as_mut_ptr();
            write(&raw mut (*rec).exec, step, RecKind::ExecArgsEnv, size_of::<ExecEnvRec>());
            write_environment(rec);
        }
    });
    or_alone(sent, step);
}

#[inline(always)]
fn or_alone(sent: bool, step: &ProcessRec) {
    if !sent {
        // A small record finds room where a large one does not.
        count::reason(Reason::ArgumentsUnreadable);
        emit::emit(*step);
    }
}

/// # Safety
///
/// `rec` is valid for writes.
#[inline(always)]
unsafe fn write(rec: *mut ExecRec, step: &ProcessRec, kind: RecKind, len: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        (&raw mut (*rec).process).write(*step);
        (*rec).process.header.kind = kind as u16;
        (*rec).process.header.len = len as u32;
        let (head, tail) = ((&raw mut (*rec).argv_head).cast(), (&raw mut (*rec).argv_tail).cast());
        let copied = Block::arguments().copy::<ARGV_HEAD, ARGV_TAIL>(head, tail);
        (*rec).flags = if copied.is_none() { EXEC_ARGV_UNREADABLE } else { 0 };
        (&raw mut (*rec).argv).write(counted(copied, Reason::ArgumentsUnreadable, Reason::ArgumentsCut));
    }
}

/// # Safety
///
/// `rec` is valid for writes, and its `exec` is written.
#[inline(always)]
unsafe fn write_environment(rec: *mut ExecEnvRec) {
    // SAFETY: as the caller promises.
    unsafe {
        let (head, tail) = ((&raw mut (*rec).env_head).cast(), (&raw mut (*rec).env_tail).cast());
        let copied = Block::environment().copy::<ENV_PART, ENV_PART>(head, tail);
        if copied.is_none() {
            (*rec).exec.flags |= EXEC_ENV_UNREADABLE;
        }
        (&raw mut (*rec).env).write(counted(copied, Reason::EnvironmentUnreadable, Reason::EnvironmentCut));
        (*rec).reserved = 0;
    }
}

/// What was copied, with what was not counted.
#[inline(always)]
fn counted(copied: Option<Copied>, unreadable: Reason, cut: Reason) -> Copied {
    let Some(copied) = copied else {
        count::reason(unreadable);
        return Copied { len: 0, head: 0, tail: 0 };
    };
    if copied.head + copied.tail < copied.len {
        count::reason(cut);
    }
    copied
}
