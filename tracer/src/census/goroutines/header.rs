//! `runtime.g` as far as it is read: state, id, stack, and where the goroutine goes on.
//!
//! Source: `type g struct` and the states `_Gidle` … in Go's runtime/runtime2.go, 1.13 to 1.27. The numbers never
//! changed; preempted came with 1.14, leaked and deadextra with 1.26.

use crate::target::GOffsets;

/// Added to a state while the garbage collector looks at the stack.
const SCAN: u32 = 0x1000;
/// Largest stack believed; Go's own default limit is 1 GB.
const MAX_STACK: u64 = 1 << 32;
/// Ids are counted up from 1, sixteen at a time per processor.
const MAX_GOID: u64 = 1 << 48;
/// Addresses in user space on the processors we know.
pub(super) const USER: std::ops::Range<u64> = 4096..1 << 47;

/// States that matter here.
pub(super) mod state {
    pub(in super::super) const IDLE: u8 = 0;
    pub(in super::super) const RUNNABLE: u8 = 1;
    pub(in super::super) const RUNNING: u8 = 2;
    pub(in super::super) const SYSCALL: u8 = 3;
    pub(in super::super) const WAITING: u8 = 4;
    pub(in super::super) const DEAD: u8 = 6;
    pub(in super::super) const COPYSTACK: u8 = 8;
    pub(in super::super) const PREEMPTED: u8 = 9;
    pub(in super::super) const LEAKED: u8 = 10;
    pub(in super::super) const DEADEXTRA: u8 = 11;

    /// Its name.
    pub(in super::super) fn name(state: u8) -> &'static str {
        match state {
            IDLE => "idle",
            RUNNABLE => "runnable",
            RUNNING => "running",
            SYSCALL => "syscall",
            WAITING => "waiting",
            DEAD => "dead",
            COPYSTACK => "copystack",
            PREEMPTED => "preempted",
            LEAKED => "leaked",
            DEADEXTRA => "deadextra",
            _ => "unknown",
        }
    }
}

/// What a `g` said at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) stack_lo: u64,
    pub(super) stack_hi: u64,
    sched_sp: u64,
    sched_pc: u64,
    sched_lr: u64,
    syscall_sp: u64,
    syscall_pc: u64,
    /// Without the mark of the garbage collector.
    pub(super) state: u32,
    pub(super) goid: u64,
    /// CLOCK_MONOTONIC ns; 0 until the garbage collector has seen it wait. Not since when it waits: see
    /// [`Cycles`](super::Cycles).
    pub(super) wait_since: u64,
    pub(super) wait_reason: u8,
}

impl Header {
    /// Bytes that are read of a `g`.
    pub(super) fn size(g: &GOffsets) -> usize {
        g.waitreason as usize + 8
    }

    /// From the bytes of a `g`; missing ones count as 0.
    pub(super) fn parse(g: &GOffsets, bytes: &[u8]) -> Self {
        let word = |at: u32| word(bytes, at as usize).unwrap_or(0);
        Self {
            stack_lo: word(g.stack_lo),
            stack_hi: word(g.stack_hi),
            sched_sp: word(g.sched_sp),
            sched_pc: word(g.sched_pc),
            sched_lr: word(g.sched_lr),
            syscall_sp: word(g.syscallsp),
            syscall_pc: word(g.syscallsp + 8),
            state: (word(g.atomicstatus) & 0xffff_ffff) as u32 & !SCAN,
            goid: word(g.goid),
            wait_since: word(g.waitsince),
            wait_reason: bytes.get(g.waitreason as usize).copied().unwrap_or(0),
        }
    }

    /// One of the known states.
    pub(super) fn known_state(&self) -> Option<u8> {
        let state = u8::try_from(self.state).ok()?;
        (state::name(state) != "unknown").then_some(state)
    }

    /// It is no goroutine, but room for one.
    pub(super) fn is_vacant(&self) -> bool {
        matches!(self.known_state(), Some(state::IDLE | state::DEAD | state::DEADEXTRA))
    }

    /// Could this be a `g` at all?
    pub(super) fn is_plausible(&self) -> bool {
        let (lo, hi) = (self.stack_lo, self.stack_hi);
        let no_stack = lo == 0 && hi == 0;
        let stack = lo != 0 && lo < hi && hi - lo <= MAX_STACK && lo % 8 == 0 && hi % 8 == 0;
        let parked = self.known_state() == Some(state::WAITING);
        let inside = !parked || (lo..=hi).contains(&self.resume().1);
        let known = self.known_state().is_some();
        let vacant = self.is_vacant();
        known && self.goid < MAX_GOID && (stack || vacant && no_stack) && (vacant || self.goid != 0 && inside)
    }

    /// Where it goes on: address and stack pointer. In system calls and C the place where it left Go, as the runtime's
    /// own traceback has it.
    pub(super) fn resume(&self) -> (u64, u64) {
        if self.syscall_sp != 0 { (self.syscall_pc, self.syscall_sp) } else { (self.sched_pc, self.sched_sp) }
    }

    /// Return address of a function without a frame (arm64).
    pub(super) fn link(&self) -> Option<u64> {
        (self.syscall_sp == 0 && self.sched_lr != 0).then_some(self.sched_lr)
    }
}

/// The word at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// All whole words.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    (0..bytes.len() / 8).filter_map(|index| word(bytes, 8 * index))
}
