//! Goroutines that are alike → one group. Functions are numbers until the end, so that many goroutines cost little.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};

use super::code::Code;
use super::cycles::Cycles;
use super::header::state;
use super::reasons::Reasons;
use crate::input::{GoroutineGroup, IdOnStack, Subject};

/// Ids kept of a group.
const MAX_GOIDS: usize = 32;
/// Longest name of a function kept, bytes; that of an instantiated generic function can have hundreds.
const MAX_NAME: usize = 512;
/// Different sets of ids kept of a group.
const MAX_SUBJECTS: usize = 32;
/// Hashes of groups that are kept only to be counted.
const MAX_COUNTED: usize = 1 << 18;

/// What goroutines of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) state: u8,
    /// 0 unless it waits.
    pub(super) wait_reason: u8,
    pub(super) frames: Vec<u32>,
    pub(super) broken: Option<&'static str>,
}

#[derive(Debug, Default)]
struct Members {
    count: u32,
    goids: Vec<u64>,
    /// With their ids.
    fingerprints: Vec<(u64, u32)>,
    /// The least.
    wait_since: Option<u64>,
    /// Each with the least of its own.
    subjects: Vec<(Subject, Option<u64>)>,
}

/// One goroutine.
#[derive(Debug, Default)]
pub(super) struct Member {
    pub(super) goid: u64,
    /// What the runtime says, when it says anything.
    pub(super) wait_since: Option<u64>,
    /// Of what is on its stack, when that is wanted.
    pub(super) fingerprint: Option<u32>,
    /// Ids on its stack.
    pub(super) ids: Vec<IdOnStack>,
}

impl Members {
    fn add(&mut self, member: Member) {
        let Member { goid, wait_since, fingerprint, ids } = member;
        self.count += 1;
        self.wait_since = least(self.wait_since, wait_since);
        add_id(&mut self.goids, goid);
        fingerprint.into_iter().for_each(|print| add_id(&mut self.fingerprints, (goid, print)));
        if ids.is_empty() {
            return;
        }
        if let Some((same, since)) = self.subjects.iter_mut().find(|(subject, _)| subject.ids == ids) {
            same.count += 1;
            *since = least(*since, wait_since);
            add_id(&mut same.goids, goid);
        } else if self.subjects.len() < MAX_SUBJECTS {
            let subject = Subject { count: 1, goids: vec![goid], ids, parked_by_ns: None };
            self.subjects.push((subject, wait_since));
        }
    }

    fn finish(&mut self) {
        lowest(&mut self.goids);
        lowest(&mut self.fingerprints);
        self.subjects.iter_mut().for_each(|(subject, _)| lowest(&mut subject.goids));
        self.subjects.sort_by(|(a, _), (b, _)| a.goids.cmp(&b.goids));
    }
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

fn add_id<T: Ord>(goids: &mut Vec<T>, goid: T) {
    goids.push(goid);
    if goids.len() >= 2 * MAX_GOIDS {
        lowest(goids);
    }
}

fn lowest<T: Ord>(goids: &mut Vec<T>) {
    goids.sort_unstable();
    goids.truncate(MAX_GOIDS);
}

/// All groups so far.
#[derive(Debug)]
pub(super) struct Groups {
    known: HashMap<Key, Members>,
    counted: HashSet<u64>,
    limit: usize,
}

impl Groups {
    /// At most `limit` groups are kept; others are only counted.
    pub(super) fn new(limit: usize) -> Self {
        Self { known: HashMap::new(), counted: HashSet::new(), limit }
    }

    /// How many of a kind there are so far.
    pub(super) fn count(&self, key: &Key) -> u32 {
        self.known.get(key).map_or(0, |members| members.count)
    }

    /// One goroutine more.
    pub(super) fn add(&mut self, key: Key, member: Member) {
        if let Some(members) = self.known.get_mut(&key) {
            return members.add(member);
        }
        if self.known.len() < self.limit {
            return self.known.entry(key).or_default().add(member);
        }
        if self.counted.len() < MAX_COUNTED {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            self.counted.insert(hasher.finish());
        }
    }

    /// The largest first, with names, as many as have room in `text_bytes`; and how many were left out.
    pub(super) fn finish(
        self,
        code: &dyn Code,
        reasons: &Reasons,
        cycles: &Cycles,
        text_bytes: usize,
    ) -> (Vec<GoroutineGroup>, u32) {
        let mut all: Vec<(Key, Members)> = self.known.into_iter().collect();
        all.iter_mut().for_each(|(_, members)| members.finish());
        all.sort_by(|(_, a), (_, b)| b.count.cmp(&a.count).then_with(|| a.goids.cmp(&b.goids)));
        let total = all.len() + self.counted.len();
        let mut room = text_bytes;
        let mut groups = Vec::new();
        for (key, members) in all {
            let group = named(&key, members, code, reasons, cycles);
            let size = group.frames.iter().map(|frame| frame.len() + size_of::<String>()).sum();
            let Some(left) = room.checked_sub(size) else { break };
            room = left;
            groups.push(group);
        }
        let left_out = total - groups.len();
        (groups, u32::try_from(left_out).unwrap_or(u32::MAX))
    }
}

fn named(key: &Key, members: Members, code: &dyn Code, reasons: &Reasons, cycles: &Cycles) -> GoroutineGroup {
    let name = |function: &u32| {
        let name = code.name(*function).unwrap_or("?");
        let end = (0..=name.len().min(MAX_NAME)).rev().find(|at| name.is_char_boundary(*at));
        name[..end.unwrap_or(0)].to_owned()
    };
    let mut fingerprints: Vec<u32> = members.fingerprints.into_iter().map(|(_, print)| print).collect();
    if fingerprints.len() != members.goids.len() {
        fingerprints.clear();
    }
    let by = |since: Option<u64>| since.and_then(|since| cycles.parked_by(since));
    let subject = |(subject, since)| Subject { parked_by_ns: by(since), ..subject };
    GoroutineGroup {
        count: members.count,
        goids: members.goids,
        fingerprints,
        state: state::name(key.state).to_owned(),
        wait_reason: reasons.words(key.wait_reason),
        parked_by_ns: by(members.wait_since),
        frames: key.frames.iter().map(name).collect(),
        broken: key.broken.map(str::to_owned),
        subjects: members.subjects.into_iter().map(subject).collect(),
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
