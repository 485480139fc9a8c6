//! All goroutines in batches: headers, stacks, headers again. Who changed in between is read again, at the end with pauses,
//! then given up.

use std::time::Duration;

use super::about::About;
use super::code::Code;
use super::cycles::Cycles;
use super::fingerprint::fingerprint;
use super::group::{Groups, Key, Member};
use super::header::{Header, state};
use super::receivers::{Seek, Stack};
use super::unwind::{Step, Unwinder, broken};
use crate::census::memory::{Memory, MemoryError, Piece};
use crate::input::IdOnStack;
use crate::target::GOffsets;

/// Goroutines of one batch.
const BATCH: usize = 256;
/// Bytes of one read of a stack.
const BLOCK: usize = 64 << 10;
/// Bytes of stacks of one batch.
const BATCH_BYTES: usize = 2 << 20;
/// More reads of one stack, where it leads further: 1 MiB in all.
const MORE_BLOCKS: usize = 15;
/// How often a goroutine is read that changes meanwhile.
const TRIES: usize = 6;
/// How long those that never held still are left alone, each time. On a busy node the thread that changes one may itself be
/// waiting for a processor: a slice is 3 ms (`base_slice_ns`, kernel/sched/fair.c), and others may be in front of it.
const PAUSES: [Duration; 3] = [Duration::from_millis(4), Duration::from_millis(8), Duration::from_millis(16)];

/// What a picture may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most goroutines that are looked at; those beyond count as unread.
    pub goroutines: usize,
    /// Most groups that are kept.
    pub groups: usize,
    /// Most bytes of names in the result.
    pub text_bytes: usize,
    /// When to stop, ns of the caller's clock. What was not reached counts as unread.
    pub until_ns: u64,
    /// Fingerprints of the stacks are wanted.
    pub fingerprints: bool,
}

impl Limits {
    /// 200,000 goroutines, 10,000 groups, 16 MiB of names, until this moment.
    #[must_use]
    pub fn until(until_ns: u64) -> Self {
        Self { goroutines: 200_000, groups: 10_000, text_bytes: 16 << 20, until_ns, fingerprints: false }
    }
}

/// What a goroutine does, the ids on its stack, and the fingerprint of that.
type Found = (Key, Vec<IdOnStack>, Option<u32>);

/// What was counted while collecting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Goroutines that exist.
    pub(super) total: u64,
    /// Of these, those that could not be read.
    pub(super) unread: u64,
}

/// One reading of one process.
pub(super) struct Collector<'a> {
    pub(super) memory: &'a dyn Memory,
    pub(super) code: &'a mut dyn Code,
    pub(super) g: &'a GOffsets,
    pub(super) groups: Groups,
    pub(super) about: About,
    pub(super) seek: Seek<'a>,
    pub(super) counts: Counts,
    pub(super) cycles: Cycles,
    pub(super) until_ns: u64,
    pub(super) fingerprints: bool,
    pub(super) clock: &'a dyn Fn() -> u64,
    pub(super) pause: &'a dyn Fn(Duration),
}

impl Collector<'_> {
    /// Reads the goroutines whose `g`s are at these addresses.
    pub(super) fn run(&mut self, entries: &[u64]) -> Result<(), MemoryError> {
        let living = self.living(entries)?;
        let mut restless = Vec::new();
        for (index, batch) in living.chunks(BATCH).enumerate() {
            if (self.clock)() >= self.until_ns {
                self.unread(living.len() - index * BATCH);
                break;
            }
            restless.extend(self.batch(batch)?);
        }
        let restless = self.later(restless)?;
        self.unread(restless.len());
        Ok(())
    }

    /// Reads again, after pauses, those that never held still; gives back those that did not even then.
    fn later(&mut self, mut restless: Vec<u64>) -> Result<Vec<u64>, MemoryError> {
        for pause in PAUSES {
            let ends_ns = (self.clock)().saturating_add(pause.as_nanos() as u64);
            if restless.is_empty() || ends_ns >= self.until_ns {
                break;
            }
            (self.pause)(pause);
            let mut again = Vec::new();
            for batch in restless.chunks(BATCH) {
                let is_late = (self.clock)() >= self.until_ns;
                again.extend(if is_late { batch.to_vec() } else { self.batch(batch)? });
            }
            restless = again;
        }
        Ok(restless)
    }

    /// Those that exist. Most entries of a program that once had many goroutines are vacant.
    fn living(&mut self, entries: &[u64]) -> Result<Vec<u64>, MemoryError> {
        let mut living = Vec::new();
        for chunk in entries.chunks(BATCH) {
            for (entry, header) in chunk.iter().zip(self.headers(chunk)?) {
                match header {
                    Some(header) if header.is_vacant() => {}
                    Some(_) => living.push(*entry),
                    None => self.unread(1),
                }
            }
        }
        Ok(living)
    }

    fn unread(&mut self, count: usize) {
        self.counts.total += count as u64;
        self.counts.unread += count as u64;
    }

    fn headers(&self, entries: &[u64]) -> Result<Vec<Option<Header>>, MemoryError> {
        let size = Header::size(self.g);
        let mut bytes = vec![0; size * entries.len()];
        let mut pieces: Vec<Piece<'_>> =
            entries.iter().zip(bytes.chunks_mut(size)).map(|(at, into)| Piece::new(*at, into)).collect();
        self.memory.read(&mut pieces)?;
        Ok(pieces.iter().map(|piece| piece.whole.then(|| Header::parse(self.g, piece.into))).collect())
    }

    /// Reads a batch until all its goroutines held still once; gives back those that never did.
    fn batch(&mut self, batch: &[u64]) -> Result<Vec<u64>, MemoryError> {
        let mut waiting = batch.to_vec();
        for _ in 0..TRIES {
            if waiting.is_empty() {
                break;
            }
            waiting = self.attempt(&waiting)?;
        }
        Ok(waiting)
    }

    /// Reads these goroutines once; gives back those that changed meanwhile.
    fn attempt(&mut self, entries: &[u64]) -> Result<Vec<u64>, MemoryError> {
        let mut again = Vec::new();
        let mut rest = entries;
        while !rest.is_empty() {
            let headers = self.headers(rest)?;
            let wanted = wanted_stacks(&headers);
            let (these, later) = rest.split_at(wanted.len());
            let found = self.stacks(&headers, &wanted)?;
            let after = self.headers(these)?;
            for (index, found) in found.into_iter().enumerate() {
                match (headers[index], after[index]) {
                    (Some(before), _) if before.is_vacant() => {}
                    (Some(before), Some(after)) if still(&before, &after) => match found {
                        Some(found) => self.count(found, &before),
                        None => again.push(these[index]),
                    },
                    _ => again.push(these[index]),
                }
            }
            rest = later;
        }
        Ok(again)
    }

    fn count(&mut self, (key, ids, fingerprint): Found, header: &Header) {
        let waits = matches!(key.state, state::WAITING | state::SYSCALL | state::LEAKED);
        let sane = waits && header.wait_since != 0 && header.wait_since <= (self.clock)();
        self.counts.total += 1;
        let wait_since = sane.then_some(header.wait_since);
        wait_since.into_iter().for_each(|since| self.cycles.confirm(since));
        self.groups.add(key, Member { goid: header.goid, wait_since, fingerprint, ids });
    }

    /// Reads the first block of each stack in one go, and follows them.
    fn stacks(
        &mut self,
        headers: &[Option<Header>],
        wanted: &[usize],
    ) -> Result<Vec<Option<Found>>, MemoryError> {
        let mut bytes = vec![0; wanted.iter().sum()];
        let mut pieces = Vec::with_capacity(wanted.len());
        let mut rest = bytes.as_mut_slice();
        for (header, len) in headers.iter().zip(wanted) {
            let (into, after) = std::mem::take(&mut rest).split_at_mut(*len);
            pieces.push(Piece::new(header.map_or(0, |header| header.resume().1), into));
            rest = after;
        }
        self.memory.read(&mut pieces)?;
        let mut found = Vec::with_capacity(wanted.len());
        for (header, piece) in headers.iter().zip(&pieces) {
            found.push(match header {
                Some(header) => self.key(header, piece)?,
                None => None,
            });
        }
        Ok(found)
    }

    /// What this goroutine does; `None` while its stack moves.
    fn key(&mut self, header: &Header, first: &Piece<'_>) -> Result<Option<Found>, MemoryError> {
        let Some(state) = header.known_state() else { return Ok(None) };
        let wait_reason =
            if matches!(state, state::WAITING | state::LEAKED) { header.wait_reason } else { 0 };
        let (mut ids, mut print) = (Vec::new(), None);
        let mut key = Key { state, wait_reason, frames: Vec::new(), broken: None };
        match state {
            state::COPYSTACK => return Ok(None),
            state::RUNNING => key.broken = Some(broken::RUNNING),
            _ => {
                let mut walk = Unwinder::new(header.resume(), header.link(), header.stack_hi);
                key.broken = self.follow(&mut walk, header, first)?;
                key.frames = walk.frames;
                let many = self.groups.count(&key);
                if first.whole {
                    let whole = header.stack_lo..header.stack_hi;
                    print = self.fingerprints.then(|| fingerprint(first.into, &whole));
                    let stack = Stack {
                        frames: &key.frames,
                        ends: &walk.ends,
                        whole,
                        at: first.addr,
                        bytes: first.into,
                    };
                    self.seek.look(self.memory, self.code, &stack)?;
                }
                ids = self.about.ids(self.memory, self.code, &key.frames, &walk.ends, many)?;
            }
        }
        Ok(Some((key, ids, print)))
    }

    /// Walks up a stack, reading more of it where one block is not enough. Why it is broken, if it is.
    fn follow(
        &mut self,
        walk: &mut Unwinder,
        header: &Header,
        first: &Piece<'_>,
    ) -> Result<Option<&'static str>, MemoryError> {
        if !(header.stack_lo..=header.stack_hi).contains(&first.addr) {
            return Ok(Some(broken::OUTSIDE));
        }
        if !first.whole {
            return Ok(Some(broken::MEMORY));
        }
        let mut step = walk.advance(self.code, first.addr, first.into);
        let mut block = Vec::new();
        for _ in 0..MORE_BLOCKS {
            let Step::Need(at) = step else { break };
            block.resize(block_len(at, header.stack_hi), 0);
            if !self.memory.read_one(at, &mut block)? {
                return Ok(Some(broken::MEMORY));
            }
            step = walk.advance(self.code, at, &block);
        }
        Ok(match step {
            Step::Done => None,
            Step::Broken(why) => Some(why),
            Step::Need(_) => Some(broken::DEEP_BYTES),
        })
    }
}

/// Is it the same goroutine, where it was? Since when it waits may become known meanwhile.
fn still(before: &Header, after: &Header) -> bool {
    let mut after = *after;
    after.wait_since = before.wait_since;
    *before == after
}

/// Bytes of the first block of each stack, for as many goroutines as one batch may read; at least one.
fn wanted_stacks(headers: &[Option<Header>]) -> Vec<usize> {
    let mut wanted = Vec::with_capacity(headers.len());
    let mut sum = 0;
    for header in headers {
        let len = header.map_or(0, |header| stack_len(&header));
        if sum + len > BATCH_BYTES && !wanted.is_empty() {
            break;
        }
        sum += len;
        wanted.push(len);
    }
    wanted
}

/// Nothing for those whose stack means nothing now.
fn stack_len(header: &Header) -> usize {
    let sp = header.resume().1;
    let follows = !header.is_vacant()
        && !matches!(header.known_state(), None | Some(state::RUNNING | state::COPYSTACK))
        && sp >= header.stack_lo;
    if follows { block_len(sp, header.stack_hi) } else { 0 }
}

fn block_len(from: u64, hi: u64) -> usize {
    usize::try_from(hi.saturating_sub(from)).unwrap_or(usize::MAX).min(BLOCK)
}

#[cfg(test)]
#[path = "collect_tests.rs"]
mod tests;
