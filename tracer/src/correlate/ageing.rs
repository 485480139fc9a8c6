//! What has ended is kept for pictures, by count and by age: so that the memory of a quiet node is as flat as that of a busy
//! one, which reaches its counts in seconds.
//!
//! What is given up by age is no loss. It is old, nothing that is still open began before it ended, and no relist that is
//! kept ran at its time ([`Needed`]); the trees of slow requests are made and kept before.

use std::mem::take;

use super::{correlator::Correlator, inflight::OpenEntry, limits::Limits, needed::Needed};
use crate::decode::{Call, MonoNs};

/// So often, within the time for which things are kept, they are looked through.
const PASSES: u64 = 6;
/// After so many of these, what is remembered only to recognise it in a reading of the kernel's maps is old.
const TURN: u64 = PASSES / 2;

/// When things were looked through, and what has come since.
#[derive(Debug, Default)]
pub(super) struct Ageing {
    last: Option<MonoNs>,
    passes: u64,
    /// The earliest start of the calls that have come since: their trees are not kept yet.
    fresh: Option<MonoNs>,
}

impl Ageing {
    /// A call came that is not made to last.
    pub(super) fn call(&mut self, call: &Call) {
        self.fresh = Some(self.fresh.map_or(call.start, |start| start.min(call.start)));
    }

    /// Must things be looked through?
    fn is_due(&mut self, at: MonoNs, limits: &Limits) -> bool {
        let last = *self.last.get_or_insert(at);
        let due = at.since(last) >= limits.kept_ns / PASSES;
        if due {
            self.last = Some(at);
            self.passes += 1;
        }
        due
    }
}

impl Correlator {
    /// Gives up what is of processes that have long been gone, and what ended long ago.
    pub(super) fn expire(&mut self, at: MonoNs) {
        for pid in self.node.forget_gone(at.minus(self.limits.gone_ns)) {
            self.tally.forgotten += self.rows.forget_process(pid);
            self.relists.forget_process(pid);
        }
        if !self.ageing.is_due(at, &self.limits) {
            return;
        }
        // Also where no call comes that would move the time on.
        let now = self.newest.max(at);
        self.settle_clients(now, None);
        self.keep_slow_requests(now);
        let needed = self.needed(at);
        self.give_up(&needed);
        if self.ageing.passes.is_multiple_of(TURN) {
            self.open.forget_old();
            self.phases.forget_old();
            self.processes.forget_old();
        }
    }

    fn needed(&mut self, at: MonoNs) -> Needed {
        let fresh = take(&mut self.ageing.fresh);
        let open = self.open.entries().filter(|entry| entry.is_open());
        let open = open.filter(|entry| self.is_to_last(entry) == Some(false)).map(OpenEntry::start);
        let since = open.chain(fresh).fold(at.minus(self.limits.kept_ns), MonoNs::min);
        Needed::new(since, self.relists.done().map(|done| (done.call.start, done.call.end)))
    }

    fn give_up(&mut self, needed: &Needed) {
        let (taken, requests) = (&mut self.taken, &mut self.requests);
        self.handlers.retain(|call| {
            let wanted = needed.wants_call(call);
            if !wanted {
                requests.forgotten.add(call);
                taken.gone(call);
            }
            wanted
        });
        self.clients.age(needed, |gone| taken.gone(gone));
        self.relists.age(needed);
        self.parks.age(needed);
        self.carriers.age(needed);
        self.processes.age(needed);
    }

    /// How many finished calls, parks and programs are kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        let calls = self.handlers.len() + self.clients.all().count() + self.relists.kept();
        calls + self.parks.kept() + self.processes.kept_runs() + self.carriers.kept()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Things are looked through now and then, the first time a while after the first moment.
    #[test]
    fn now_and_then() {
        let (mut ageing, limits) = (Ageing::default(), Limits { kept_ns: 60, ..Limits::default() });
        let due: Vec<u64> = (100..130).filter(|at| ageing.is_due(MonoNs(*at), &limits)).collect();
        assert_eq!(due, [110, 120]);
    }
}
