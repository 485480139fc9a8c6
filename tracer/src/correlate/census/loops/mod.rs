//! The loops of a kubelet, by the stacks of its goroutines: which there are, and which wait deeper than in their own select. One look
//! cannot tell a loop that hangs from one that is at work; two that find the very same stack tell that it has not gone on.

mod again;
mod limits;
mod table;
mod wait;
mod watched;

use std::collections::BTreeSet;

pub use again::Again;
use limits::late_after_ns;
pub use table::LoopKind;
pub use wait::{LoopWait, PluginKind};

use crate::{
    decode::MonoNs,
    input::{Component, GoroutineGroup, GoroutinesFact, PluginFact},
};

/// Loops of one kubelet that are kept while they wait: a node has 110 pods, of which each has a worker and some probes.
const MAX_BUSY: usize = 512;
/// Functions between the scheduler and a loop's own that only wait for the next round.
const BETWEEN: [&str; 2] = ["k8s.io/apimachinery/pkg/util/wait.", "time.Sleep"];

/// The loops of one kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletLoops {
    /// The kubelet.
    pub pid: u32,
    /// Looks that read its goroutines with fingerprints, as good as all of them, and found its sync loop.
    pub looks: u32,
    /// When the last of them began.
    pub looked: MonoNs,
    /// Which loops were found.
    pub found: BTreeSet<LoopKind>,
    /// Those that the last look found at something, the worst first.
    pub busy: Vec<BusyLoop>,
    /// Those that it found between two requests to the API server, as the last look at a request saw them.
    pub between: Vec<BusyLoop>,
}

/// A loop that does not wait for its next piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyLoop {
    /// Which.
    pub kind: LoopKind,
    /// The kubelet.
    pub pid: u32,
    /// Goroutine.
    pub goid: u64,
    /// What it waits for.
    pub wait: LoopWait,
    /// Full Go names, innermost first.
    pub frames: Vec<String>,
    /// How many of `frames` are further in than the loop's own functions.
    pub inner: usize,
    /// Since when every look found it at this place, and not gone on: the end of the first, or what Go's garbage collector saw before.
    pub since: MonoNs,
    /// The looks that found it waiting for the same, and perhaps gone on in between.
    pub again: Again,
    /// Begin of the last look.
    pub until: MonoNs,
    /// Looks in a row that found it so.
    pub looks: u32,
    /// The fingerprint of its stack.
    fingerprint: u32,
}

impl BusyLoop {
    /// For how long it has not gone on, up to the last look; 0 after one look.
    #[must_use]
    pub fn wait_ns(&self) -> u64 {
        if self.looks < 2 { 0 } else { self.until.since(self.since) }
    }

    /// How long it waits, when that is too long.
    #[must_use]
    pub fn late_ns(&self) -> Option<u64> {
        let wait_ns = self.wait_ns();
        if self.limit_ns().is_some_and(|limit| wait_ns >= limit) {
            return Some(wait_ns);
        }
        self.asks_again_ns()
    }

    /// For how long it has made one request to the API server after the other, when that is too long.
    #[must_use]
    pub fn asks_again_ns(&self) -> Option<u64> {
        self.again.late_ns().filter(|_| matches!(self.wait, LoopWait::Api { .. }))
    }

    /// Is it the same loop of another look, waiting for the same?
    fn is(&self, other: &Self) -> bool {
        (self.kind, self.goid) == (other.kind, other.goid) && self.wait == other.wait
    }

    /// The time from which its wait is late; `None`: never by itself.
    #[must_use]
    pub fn limit_ns(&self) -> Option<u64> {
        late_after_ns(self.kind, &self.wait)
    }

    /// The connections of the kubelet that it may wait at: those to sockets of such plugins. When some of the programs there stand still
    /// or have not read what they were sent, it is one of these.
    #[must_use]
    pub fn connections<'a>(&self, plugins: &'a [PluginFact]) -> Vec<&'a PluginFact> {
        let LoopWait::Plugin { plugin, .. } = &self.wait else { return Vec::new() };
        let Some(directory) = plugin.directory() else { return Vec::new() };
        let is_one = |fact: &&PluginFact| fact.kubelet == self.pid && fact.path.contains(directory);
        let all: Vec<&PluginFact> = plugins.iter().filter(is_one).collect();
        let silent = |fact: &&PluginFact| {
            fact.pending
                || fact.unread > 0
                || fact.state.is_some_and(|state| matches!(state, 'T' | 't' | 'D'))
        };
        let silent: Vec<&PluginFact> = all.iter().copied().filter(silent).collect();
        if silent.is_empty() { all } else { silent }
    }
}

/// The loops of a kubelet after another look, which began and ended then; `before`: after the look before. A look without fingerprints
/// tells nothing.
pub(super) fn look(
    fact: &GoroutinesFact,
    before: Option<KubeletLoops>,
    (began, ended): (MonoNs, MonoNs),
    whole: bool,
) -> Option<KubeletLoops> {
    let has_fingerprints = fact.groups.iter().any(|group| !group.fingerprints.is_empty());
    if fact.component != Component::Kubelet || !has_fingerprints {
        return before.map(|before| KubeletLoops { busy: Vec::new(), between: Vec::new(), ..before });
    }
    let before = before.unwrap_or_else(|| KubeletLoops { pid: fact.pid, ..KubeletLoops::default() });
    let KubeletLoops { pid, mut looks, mut looked, mut found, busy: mut old, between } = before;
    old.extend(between);
    let mut busy = Vec::new();
    let mut has_sync_loop = false;
    for group in &fact.groups {
        let Some((kind, inner)) = LoopKind::of(&group.frames) else { continue };
        found.insert(kind);
        has_sync_loop |= kind == LoopKind::SyncLoop;
        if !is_idle(group, inner) {
            busy.extend(of_group(group, (kind, inner), pid, &old, (began, ended)));
        }
    }
    if whole && has_sync_loop {
        (looks, looked) = (looks.saturating_add(1), began);
    }
    busy.sort_by_key(|one: &BusyLoop| (one.kind, one.since, one.goid));
    busy.truncate(MAX_BUSY);
    let mut between = between_requests(old, &busy, began);
    between.truncate(MAX_BUSY);
    Some(KubeletLoops { pid, looks, looked, found, busy, between })
}

/// Those of the looks before that were in a request to the API server, and are not in this look, which began then.
fn between_requests(old: Vec<BusyLoop>, busy: &[BusyLoop], began: MonoNs) -> Vec<BusyLoop> {
    let asked = old.into_iter().filter(|one| matches!(one.wait, LoopWait::Api { .. }));
    let gone = asked.filter(|one| !busy.iter().any(|now| now.is(one)));
    gone.filter_map(|one| Some(BusyLoop { again: one.again.pauses(began)?, ..one })).collect()
}

/// Does it wait for its next piece of work? Further in than its own functions there is nothing but waiting for that; or it does not wait
/// at all.
fn is_idle(group: &GoroutineGroup, inner: usize) -> bool {
    let parked = ["waiting", "syscall"].contains(&group.state.as_str()) && group.broken.is_none();
    let rests =
        |frame: &String| frame.starts_with("runtime.") || BETWEEN.iter().any(|part| frame.contains(part));
    !parked || group.frames[..inner].iter().all(rests)
}

fn of_group(
    group: &GoroutineGroup,
    (kind, inner): (LoopKind, usize),
    pid: u32,
    old: &[BusyLoop],
    (began, ended): (MonoNs, MonoNs),
) -> Vec<BusyLoop> {
    let wait = LoopWait::of(group, inner);
    let parked_by = group.parked_by_ns.filter(|_| group.count == 1).map(MonoNs);
    let one = |(goid, fingerprint): (&u64, &u32)| {
        let before = old.iter().find(|old| old.goid == *goid && old.kind == kind && old.wait == wait);
        // Between two requests it has gone on, whatever its stack looks like.
        let stays = before.filter(|old| !old.again.is_paused());
        let same = stays.filter(|old| old.fingerprint == *fingerprint && old.frames == group.frames);
        let since = same.map_or(ended, |old| old.since);
        BusyLoop {
            kind,
            pid,
            goid: *goid,
            wait: wait.clone(),
            frames: group.frames.clone(),
            inner,
            since: parked_by.map_or(since, |by| by.min(since)),
            again: before.map_or(Again::first((began, ended)), |old| old.again.asks(began)),
            until: began,
            looks: same.map_or(1, |old| old.looks.saturating_add(1)),
            fingerprint: *fingerprint,
        }
    };
    group.goids.iter().zip(&group.fingerprints).map(one).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
