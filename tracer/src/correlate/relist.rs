//! [`Relists`]: collects the calls of relist goroutines around their relists, in any order of arrival.

use std::collections::{BTreeMap, VecDeque};

use super::{
    inflight::Goroutine,
    limits::{Drops, Limits},
    needed::Needed,
};
use crate::decode::{Call, MonoNs};

/// Goroutines known to relist; a kubelet has one, and a new one after each restart.
const GOROUTINES: usize = 64;

/// A finished relist and the calls inside it.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) call: Call,
    pub(super) parts: Vec<Call>,
    /// It is in the table of where time went.
    pub(super) spent: bool,
}

/// All relists, and the calls that wait for one.
#[derive(Debug, Default)]
pub(super) struct Relists {
    /// By end.
    done: VecDeque<Done>,
    done_calls: usize,
    /// Relists of one pod, by end.
    pods: VecDeque<Done>,
    pod_calls: usize,
    /// How many have ended, those that made room included.
    pub(super) count: u64,
    /// Calls of goroutines that relist, not yet inside a finished relist.
    current: BTreeMap<Goroutine, Vec<Call>>,
    /// Calls of other goroutines of the kubelet; one of them may turn out to relist.
    loose: VecDeque<Call>,
    /// Relists that made room; the correlator takes from them what must not be forgotten.
    pub(super) evicted: Vec<Done>,
}

impl Relists {
    /// A relist ended.
    pub(super) fn relist(&mut self, call: Call, limits: &Limits, drops: &mut Drops) {
        let parts = self.take_parts(&call, limits);
        self.done_calls += parts.len();
        self.count += 1;
        insert(&mut self.done, Done { call, parts, spent: false });
        self.shrink(limits, drops);
    }

    /// A relist of one pod ended.
    pub(super) fn pod_relist(&mut self, call: Call, limits: &Limits) {
        let parts = self.take_parts(&call, limits);
        self.pod_calls += parts.len();
        insert(&mut self.pods, Done { call, parts, spent: false });
    }

    /// The calls that wait on its goroutine and lie in it.
    fn take_parts(&mut self, call: &Call, limits: &Limits) -> Vec<Call> {
        let goroutine = (call.tgid, call.goid);
        self.follow(goroutine);
        let mut parts = Vec::new();
        if let Some(waiting) = self.current.get_mut(&goroutine) {
            waiting.retain(|part| {
                let inside = call.start <= part.start && part.end <= call.end;
                if inside {
                    parts.push(*part);
                }
                !inside && part.end.plus(limits.reorder_ns) >= call.start
            });
        }
        parts
    }

    /// Are there as many relists of one pod, or calls in them, as are kept?
    pub(super) fn pods_are_full(&self, limits: &Limits) -> bool {
        self.pods.len() >= limits.relists || self.pod_calls >= limits.relist_calls
    }

    /// The older half of the relists of one pod makes room.
    pub(super) fn evict_pods(&mut self) -> Vec<Done> {
        let gone: Vec<Done> = self.pods.drain(..self.pods.len().div_ceil(2)).collect();
        self.pod_calls -= gone.iter().map(|done| done.parts.len()).sum::<usize>();
        gone
    }

    /// The relists of one pod that are kept, oldest end first.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Done> {
        self.pods.iter()
    }

    /// A call that may lie inside a relist ended.
    pub(super) fn part(&mut self, call: Call, limits: &Limits, drops: &mut Drops) {
        let goroutine = (call.tgid, call.goid);
        if self.current.contains_key(&goroutine) {
            if let Some(done) = around(&mut self.done, &call) {
                done.parts.push(call);
                self.done_calls += 1;
                self.shrink(limits, drops);
                return;
            }
            if let Some(done) = around(&mut self.pods, &call) {
                if self.pod_calls < limits.relist_calls {
                    done.parts.push(call);
                    self.pod_calls += 1;
                } else {
                    drops.relist_calls += 1;
                }
                return;
            }
            let waiting = self.current.get_mut(&goroutine).expect("just looked at");
            if waiting.len() >= limits.relist_calls / 4 {
                drops.relist_calls += 1;
            } else {
                waiting.push(call);
            }
            return;
        }
        self.loose.push_back(call);
        if self.loose.len() > limits.loose_calls {
            self.loose.pop_front();
            drops.loose_calls += 1;
        }
    }

    /// This goroutine relists: its calls are kept apart from now on, so that busy goroutines cannot push them out.
    pub(super) fn follow(&mut self, goroutine: Goroutine) {
        if self.current.contains_key(&goroutine) {
            return;
        }
        if self.current.len() >= GOROUTINES {
            let last_end = |calls: &Vec<Call>| calls.iter().map(|call| call.end).max().unwrap_or_default();
            let oldest =
                self.current.iter().min_by_key(|(key, calls)| (last_end(calls), **key)).map(|(key, _)| *key);
            oldest.and_then(|key| self.current.remove(&key));
        }
        let mut mine = Vec::new();
        self.loose.retain(|call| {
            let same = (call.tgid, call.goid) == goroutine;
            if same {
                mine.push(*call);
            }
            !same
        });
        self.current.insert(goroutine, mine);
    }

    /// A hook stands for something else from now on: forgets the calls of what it stood for, and relists of which one
    /// would be missing.
    pub(super) fn forget_hook(&mut self, hook: u32) {
        let pods = (&mut self.pod_calls, &mut self.pods);
        for (calls, done) in [(&mut self.done_calls, &mut self.done), pods] {
            done.retain(|done| {
                let whole = done.call.hook != hook && done.parts.iter().all(|part| part.hook != hook);
                *calls -= if whole { 0 } else { done.parts.len() };
                whole
            });
        }
        self.current.values_mut().for_each(|parts| parts.retain(|part| part.hook != hook));
        self.loose.retain(|call| call.hook != hook);
    }

    /// A process has long been gone: its goroutines relist no more.
    pub(super) fn forget_process(&mut self, tgid: u32) {
        self.current.retain(|(of, _), _| *of != tgid);
    }

    /// Gives up calls that wait for a relist and are not needed.
    pub(super) fn age(&mut self, needed: &Needed) {
        self.loose.retain(|call| needed.wants_call(call));
        self.pods.retain(|done| needed.wants_call(&done.call));
        self.pod_calls = self.pods.iter().map(|done| done.parts.len()).sum();
        self.current.values_mut().for_each(|calls| calls.retain(|call| needed.wants_call(call)));
    }

    /// How many calls wait.
    pub(super) fn kept(&self) -> usize {
        self.loose.len() + self.current.values().map(Vec::len).sum::<usize>()
    }

    fn shrink(&mut self, limits: &Limits, drops: &mut Drops) {
        while self.done.len() > limits.relists
            || (self.done_calls > limits.relist_calls && self.done.len() > 1)
        {
            let gone = self.done.pop_front().expect("longer than a limit");
            self.done_calls -= gone.parts.len();
            self.evicted.push(gone);
            drops.relists += 1;
        }
        if self.done_calls > limits.relist_calls
            && let Some(only) = self.done.front_mut()
        {
            let over = self.done_calls - limits.relist_calls;
            only.parts.truncate(only.parts.len() - over);
            self.done_calls -= over;
            drops.relist_calls += over as u64;
        }
    }

    /// Goroutines that are known to relist.
    pub(super) fn goroutines(&self) -> impl Iterator<Item = Goroutine> {
        self.current.keys().copied()
    }

    /// The finished relists, oldest end first.
    pub(super) fn done(&self) -> impl Iterator<Item = &Done> {
        self.done.iter()
    }

    /// All that ended by then are in the table of where time went.
    pub(super) fn spent_until(&mut self, until: MonoNs) {
        self.done.iter_mut().filter(|done| done.call.end <= until).for_each(|done| done.spent = true);
    }

    /// Finished calls inside a relist that is still open.
    pub(super) fn waiting(&self, goroutine: Goroutine, since: MonoNs) -> impl Iterator<Item = &Call> {
        let known = self.current.get(&goroutine).into_iter().flatten();
        let loose = self.loose.iter().filter(move |call| (call.tgid, call.goid) == goroutine);
        known.chain(loose).filter(move |call| call.start >= since)
    }
}

/// Puts a relist among the others, by end.
fn insert(all: &mut VecDeque<Done>, done: Done) {
    let order = |done: &Done| (done.call.end, done.call.id());
    let at = all.partition_point(|other| order(other) <= order(&done));
    all.insert(at, done);
}

/// The finished relist that a late call belongs to.
fn around<'a>(all: &'a mut VecDeque<Done>, call: &Call) -> Option<&'a mut Done> {
    let inside = |done: &Done| {
        (done.call.tgid, done.call.goid) == (call.tgid, call.goid) && done.call.start <= call.start
    };
    let first = all.partition_point(|done| done.call.end < call.end);
    all.range_mut(first..).find(|done| inside(done))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each upgrade of the kubelet leaves a goroutine that relisted; nothing is kept of it when its process has long been
    /// gone.
    #[test]
    fn a_process_is_forgotten() {
        let mut relists = Relists::default();
        for tgid in [7, 8] {
            relists.follow((tgid, 1));
        }
        relists.forget_process(7);
        assert_eq!(relists.goroutines().collect::<Vec<_>>(), [(8, 1)]);
    }
}
