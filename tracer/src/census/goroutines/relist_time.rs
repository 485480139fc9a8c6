//! [`RelistTime`]: when the last list of a kubelet succeeded, by the kubelet's own clock.
//!
//! Its health check compares now with `GenericPLEG.relistTime`, an `atomic.Value` with the `time.Time` at which the last
//! relist began that got its list ([generic.go]). It is written when a list succeeds, so it also tells of stalls that
//! began long before anybody looked. No symbol leads there; this does:
//!
//! * The relists are a method value that `wait.Until` calls again and again. Its closure is on the stack of that goroutine:
//!   a pointer to two words, the code of `relist-fm` and the receiver, `*GenericPLEG`. Where `BackoffUntil` calls it with a
//!   context (Kubernetes 1.33), it is in the closure that does so.
//! * Since Kubernetes 1.36 a loop of its own does it ([generic.go of 1.36], `workerLoopIteration`), with no method value. The
//!   receiver is then among the pointers in the frames of `GenericPLEG`'s methods.
//! * In the receiver, `relistTime` is the one pair of words whose first is the type `time.Time`, by size, kind and name.
//! * A `time.Time` of `time.Now` has nanoseconds of CLOCK_MONOTONIC since `time.startNano` ([time.go]), to which `time.Now`
//!   itself refers, and which lies right after the start of the process.
//!
//! Whatever does not fit gives no time: two candidates, a time before the process or after now, one that goes back.
//! Seen with Kubernetes 1.20.2 (Go 1.19) and, as a program with the types and frames of 1.36, with Go 1.19; the source of
//! others was read.
//!
//! [generic.go]: https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/pleg/generic.go#L181
//! [generic.go of 1.36]: https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/kubelet/pleg/generic.go
//! [time.go]: https://github.com/golang/go/blob/go1.24.4/src/time/time.go#L1330

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use super::header::{USER, word, words};
use super::receivers::is_pointer;
use crate::census::memory::{Memory, MemoryError};
use crate::target::go_type::{self, KIND_AT, KIND_MASK, KIND_STRUCT, MAX_TYPES, MODULEDATA, NAME_AT};

/// Who refers to `time.startNano`.
pub(super) const CLOCK_USER: &str = "time.Now";

/// Bytes of the receiver that are looked at; `relistTime` is within its first 100 in all releases.
const RECEIVER: usize = 256;
/// `time.Time` has three words, and is a struct.
const TIME_SIZE: u64 = 24;
/// Its name; a pointer type shares the string, with a star in front.
const NAMES: [&[u8]; 2] = [b"time.Time", b"*time.Time"];
/// A wall clock reading with a monotonic one: bit 63, and 30 bits of nanoseconds.
const HAS_MONOTONIC: u64 = 1 << 63;
const NANOSECONDS: u64 = (1 << 30) - 1;
/// The runtime of a process starts within this time, also on a machine that has other things to do.
const START_NS: u64 = 60_000_000_000;
/// The kernel tells the start of a process in steps of 10 ms.
const START_STEP_NS: u64 = 20_000_000;

/// What was found out about a process before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    /// Address of the runtime's `moduledata`.
    pub(super) moduledata: u64,
    /// Addresses to which `time.Now` refers.
    pub(super) clocks: &'a [u64],
    /// Start of the process, CLOCK_MONOTONIC.
    pub(super) started_ns: u64,
    /// Now, by the same clock.
    pub(super) now_ns: u64,
}

/// Where a kubelet keeps the time of its last list.
#[derive(Debug)]
pub(super) struct RelistTime {
    /// Address of the `atomic.Value`.
    field: u64,
    /// Address of the type `time.Time`.
    time_type: u64,
    /// CLOCK_MONOTONIC at which its clock began.
    start_ns: u64,
    /// The last time that was read.
    last_ns: AtomicU64,
}

impl RelistTime {
    /// Finds it behind one of these receivers; `None` when nothing there, or more than one thing, can be it.
    pub(super) fn find(
        memory: &dyn Memory,
        receivers: &BTreeSet<u64>,
        node: &Node<'_>,
    ) -> Result<Option<Self>, MemoryError> {
        let Some(start_ns) = start(memory, node)? else { return Ok(None) };
        let mut modules = vec![0; MODULEDATA];
        if !memory.read_one(node.moduledata, &mut modules)? {
            return Ok(None);
        }
        let (mut found, mut types) = (BTreeSet::new(), BTreeMap::new());
        for receiver in receivers {
            let mut bytes = [0; RECEIVER];
            if !memory.read_one(*receiver, &mut bytes)? {
                continue;
            }
            for at in (0..RECEIVER - 8).step_by(8) {
                let pair = word(&bytes, at).zip(word(&bytes, at + 8));
                let pair = pair.filter(|(kind, data)| is_pointer(kind) && is_pointer(data));
                let Some((time_type, _)) = pair else { continue };
                let is_time = match types.get(&time_type) {
                    Some(known) => *known,
                    None => is_time(memory, time_type, &modules)?,
                };
                types.insert(time_type, is_time);
                if is_time {
                    found.insert((receiver + at as u64, time_type));
                }
            }
        }
        let mut found = found.into_iter();
        let one = found.next().filter(|_| found.next().is_none());
        Ok(one.map(|(field, time_type)| Self { field, time_type, start_ns, last_ns: AtomicU64::new(0) }))
    }

    /// The time, CLOCK_MONOTONIC; `None` when it cannot be one.
    pub(super) fn read(&self, memory: &dyn Memory, now_ns: u64) -> Result<Option<u64>, MemoryError> {
        let mut value = [0; 16];
        if !memory.read_one(self.field, &mut value)? || word(&value, 0) != Some(self.time_type) {
            return Ok(None);
        }
        let mut time = [0; TIME_SIZE as usize];
        // What is stored is never written to again: another time gets another place.
        let Some(at) = word(&value, 8) else { return Ok(None) };
        if !memory.read_one(at, &mut time)? {
            return Ok(None);
        }
        let (Some(wall), Some(since_start)) = (word(&time, 0), word(&time, 8)) else { return Ok(None) };
        let is_time = wall & HAS_MONOTONIC != 0 && wall & NANOSECONDS < 1_000_000_000;
        let at_ns = self.start_ns.checked_add(since_start).filter(|at| is_time && *at <= now_ns);
        let Some(at_ns) = at_ns else { return Ok(None) };
        let before = self.last_ns.fetch_max(at_ns, Ordering::Relaxed);
        Ok((before <= at_ns).then_some(at_ns))
    }
}

/// When the clock of the process began: the one word that `time.Now` refers to and that can be this.
fn start(memory: &dyn Memory, node: &Node<'_>) -> Result<Option<u64>, MemoryError> {
    let earliest = node.started_ns.saturating_sub(START_STEP_NS);
    let latest = node.started_ns.saturating_add(START_NS).min(node.now_ns);
    let mut found = BTreeSet::new();
    for clock in node.clocks {
        let mut bytes = [0; 8];
        if memory.read_one(*clock, &mut bytes)? {
            found.insert((*clock, u64::from_le_bytes(bytes)));
        }
    }
    let mut found = found.into_iter().map(|(_, start)| start).filter(|at| (earliest..=latest).contains(at));
    Ok(found.next().filter(|_| found.next().is_none()))
}

/// Is there the type `time.Time`? `modules` has the beginning of all types among its words.
fn is_time(memory: &dyn Memory, at: u64, modules: &[u8]) -> Result<bool, MemoryError> {
    let bases = || words(modules).filter(|base| USER.contains(base) && *base <= at && at - *base < MAX_TYPES);
    let mut bytes = [0; go_type::LEN];
    if bases().next().is_none() || !memory.read_one(at, &mut bytes)? {
        return Ok(false);
    }
    let is_struct = bytes[KIND_AT] & KIND_MASK == KIND_STRUCT;
    if word(&bytes, 0) != Some(TIME_SIZE) || !is_struct {
        return Ok(false);
    }
    let name = word(&bytes, NAME_AT).map_or(0, |word| word & u64::from(u32::MAX));
    for base in bases() {
        // A byte of flags, a byte of length, the name.
        let mut text = [0; 12];
        let whole = memory.read_one(base.saturating_add(name), &mut text)?;
        let len = usize::from(text[1]);
        if whole && text.get(2..2 + len).is_some_and(|text| NAMES.contains(&text)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
#[path = "relist_time_tests.rs"]
mod tests;
