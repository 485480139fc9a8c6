//! [`Cycles`]: when the garbage collections of a process ended, and since when a goroutine has been parked at least.
//!
//! `g.waitsince` is not the start of the wait. When `markroot` finds a goroutine waiting or in a system call, and the
//! field is 0, it writes `work.tstart` there ([mgcmark.go]), and `gcMark` sets that when marking *ends* ([mgc.go]): it is the
//! end of the collection before the one that found the goroutine, up to two minutes before it parked. `execute` and
//! `exitsyscall` write 0 again ([proc.go]). Read in Go 1.15, 1.19 and 1.21 to 1.27; all the same.
//!
//! What does follow from a `waitsince` of `w`: the first collection that ended after the one at `w` found the goroutine
//! waiting, and it has not been scheduled since. So it was parked when that collection ended: whoever merely looked
//! parked (it assisted the collector, or was stopping the world) is descheduled when the world stops for the end of the
//! collection, and is scheduled anew afterwards. Two exceptions:
//!
//! * The goroutine that ends the collection itself, out of an assist, is not descheduled and goes on for a time slice.
//!   Hence [`SLICE_NS`].
//! * Coroutines (`iter.Pull`, Go 1.23) switch without `execute` ([coro.go]). Programs that have them are refused.
//!
//! When collections ended is in `memstats.pause_end`, a ring by the wall clock, which may have been set meanwhile. An end
//! counts only if a later clock confirms it: the last one is known by both clocks (`last_gc_nanotime`), and every `w` is the
//! monotonic time at which one of them began to stop the world. What nobody can see is a clock that was set by exactly the time between two
//! collections, to [`BETWEEN_CLOCKS_NS`], after both.
//!
//! [mgcmark.go]: https://github.com/golang/go/blob/go1.24.4/src/runtime/mgcmark.go#L207
//! [mgc.go]: https://github.com/golang/go/blob/go1.24.4/src/runtime/mgc.go#L1587
//! [proc.go]: https://github.com/golang/go/blob/go1.24.4/src/runtime/proc.go#L3248
//! [coro.go]: https://github.com/golang/go/blob/go1.24.4/src/runtime/coro.go

use super::header::word;
use crate::census::memory::{Memory, MemoryError};
use crate::target::GcOffsets;

/// Who ended a collection may run on: sysmon takes its processor after 10 ms, and looks every 10 ms (`forcePreemptNS` in
/// Go's runtime/proc.go). The rest is for a machine that has other things to do.
const SLICE_NS: u64 = 100_000_000;
/// The runtime asks the wall clock after the monotonic one, and may be interrupted in between.
const BETWEEN_CLOCKS_NS: u64 = 50_000_000;
/// What two readings of clocks may differ by although nothing happened in between.
const JITTER_NS: u64 = 1_000_000;
/// How often memory is read that changes meanwhile.
const TRIES: usize = 3;

/// The end of a collection, CLOCK_MONOTONIC as far as the wall clock tells, and for how long the world stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cycle {
    end_ns: u64,
    pause_ns: u64,
}

impl Cycle {
    /// It ended soon enough after `at_ns` to have begun to stop the world then.
    fn may_have_begun(self, at_ns: u64) -> bool {
        self.end_ns.saturating_sub(at_ns) <= self.pause_ns.saturating_add(BETWEEN_CLOCKS_NS)
    }
}

/// The last collections of a process; none when they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// The oldest first.
    known: Vec<Cycle>,
    /// From this one on the wall clock was not set.
    confirmed: usize,
}

impl Cycles {
    /// Reads them. `last_gc_unix`: address of that field. `offset_ns`: CLOCK_REALTIME minus CLOCK_MONOTONIC, now.
    /// What contradicts itself gives none.
    pub(super) fn read(
        memory: &dyn Memory,
        last_gc_unix: u64,
        gc: GcOffsets,
        offset_ns: i64,
    ) -> Result<Self, MemoryError> {
        let (mut bytes, mut again) = (vec![0; gc.size()], vec![0; gc.size()]);
        for _ in 0..TRIES {
            let whole =
                memory.read_one(last_gc_unix, &mut bytes)? && memory.read_one(last_gc_unix, &mut again)?;
            if whole && bytes == again {
                return Ok(Self::parse(&bytes, gc, offset_ns).unwrap_or_default());
            }
        }
        Ok(Self::default())
    }

    fn parse(bytes: &[u8], gc: GcOffsets, offset_ns: i64) -> Option<Self> {
        let word = |at: u32| word(bytes, at as usize);
        let slot =
            |ring: u32, cycle: u64| word(ring + 8 * u32::try_from(cycle % GcOffsets::KEPT as u64).ok()?);
        let monotonic = |unix: u64| u64::try_from(i64::try_from(unix).ok()?.checked_sub(offset_ns)?).ok();
        let count = word(gc.numgc)? & u64::from(u32::MAX);
        let newest = count.checked_sub(1)?;
        let by_both = word(gc.last_gc_nanotime)?;
        let end_ns = monotonic(slot(gc.pause_end, newest)?)?;
        let late = (end_ns + JITTER_NS).checked_sub(by_both)?;
        if word(0)? != slot(gc.pause_end, newest)? || late > BETWEEN_CLOCKS_NS {
            return None;
        }
        let mut known: Vec<Cycle> = Vec::new();
        for cycle in (0..count).rev().take(GcOffsets::KEPT) {
            let Some(end_ns) = monotonic(slot(gc.pause_end, cycle)?) else { break };
            if known.last().is_some_and(|later| later.end_ns <= end_ns) {
                break;
            }
            known.push(Cycle { end_ns, pause_ns: slot(gc.pause_ns, cycle)? });
        }
        known.reverse();
        Some(Self { confirmed: known.len() - 1, known })
    }

    /// Takes the `waitsince` of a goroutine, which confirms what ended from then on.
    pub(super) fn confirm(&mut self, wait_since: u64) {
        let place = self.last_that_began(wait_since);
        if self.known.get(place).is_some_and(|cycle| cycle.may_have_begun(wait_since)) {
            self.confirmed = self.confirmed.min(place);
        }
    }

    /// A moment at which a goroutine with this `waitsince` was parked where it is now.
    pub(super) fn parked_by(&self, wait_since: u64) -> Option<u64> {
        let after = (self.last_that_began(wait_since) + 1).max(self.confirmed);
        Some(self.known.get(after)?.end_ns + SLICE_NS)
    }

    /// The first that ended at this moment or later; of several that may have begun to stop the world then, the last: one of them can
    /// be older, and look younger because the clock was set back.
    fn last_that_began(&self, at_ns: u64) -> usize {
        let first = self.known.partition_point(|cycle| cycle.end_ns + JITTER_NS < at_ns);
        let later = self.known.iter().skip(first + 1);
        first + later.take_while(|cycle| cycle.may_have_begun(at_ns)).count()
    }
}

#[cfg(test)]
#[path = "cycles_tests.rs"]
mod tests;
