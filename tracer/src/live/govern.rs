//! What the probes cost the programs that are probed, and what is taken off when it is too much.

use std::collections::HashMap;

use plegtrace_common::{
    key::{CallKey, OpenCall, Parker, ParkerKey},
    rec::CALL_PARKS,
};

use super::{
    Live,
    governor::{Governor, OverBudget},
    is_free,
};
use crate::{
    chain::chain,
    input::HookCounters,
    plan::{Plan, PlannedSite},
};

/// Prices of hooks, and which program's scheduler they are on.
#[derive(Debug)]
pub(super) struct Costs {
    governor: Governor,
    prices: HashMap<u32, Price>,
    /// Hooks on the Go scheduler, with the place of their executable in the plan.
    on_scheduler: HashMap<u32, u64>,
    /// Programs whose probes on the scheduler are to come off.
    to_shed: Vec<OverBudget>,
    /// Programs whose probes on the scheduler came off since this was asked last.
    shed: Vec<OverBudget>,
}

/// What a hit takes, nanoseconds; 0 where the hook has no such site.
#[derive(Clone, Copy, Debug, Default)]
struct Price {
    start: u64,
    end: u64,
}

impl Costs {
    /// With the hits per second that the scheduler probes of one program may have.
    pub(super) fn new(park_budget: u64) -> Self {
        Self {
            governor: Governor::new(park_budget),
            prices: HashMap::new(),
            on_scheduler: HashMap::new(),
            to_shed: Vec::new(),
            shed: Vec::new(),
        }
    }

    /// Learns the hooks of a plan that has changed. An index may stand for another hook than before.
    pub(super) fn learn(&mut self, plan: &Plan) {
        self.prices.clear();
        self.on_scheduler.clear();
        for (place, binary) in plan.binaries.iter().enumerate() {
            let dearer = |old: u64, site: &PlannedSite| old.max(u64::from(site.ns_per_hit));
            for site in &binary.starts {
                let price = self.prices.entry(site.conf.hook).or_default();
                price.start = dearer(price.start, site);
            }
            for site in binary.ends.iter().chain(&binary.parks).chain(&binary.resumes) {
                let price = self.prices.entry(site.conf.hook).or_default();
                price.end = dearer(price.end, site);
            }
            for site in binary.parks.iter().chain(&binary.resumes) {
                self.on_scheduler.insert(site.conf.hook, place as u64);
            }
        }
    }

    /// Nanoseconds that the traced programs have spent in probes so far: hits times what a hit takes.
    pub(super) fn probes_ns(&self, hooks: &[HookCounters]) -> u64 {
        let one = |counters: &HookCounters| {
            let price = self.prices.get(&counters.hook).copied().unwrap_or_default();
            let ends = match (price.start, price.end) {
                (_, 0) => 0,
                (0, _) => counters.hits,
                // It ends at its own RETs, each of which is a call that ended or one that nothing was open for.
                _ => counters.calls.saturating_add(counters.unmatched).min(counters.hits),
            };
            (counters.hits - ends).saturating_mul(price.start).saturating_add(ends.saturating_mul(price.end))
        };
        hooks.iter().map(one).fold(0, u64::saturating_add)
    }

    /// Programs whose scheduler probes are above their budget.
    fn over_budget(&mut self, now_ns: u64, hooks: &[HookCounters]) -> Vec<OverBudget> {
        let mut hits: HashMap<u64, u64> = HashMap::new();
        for counters in hooks {
            if let Some(program) = self.on_scheduler.get(&counters.hook) {
                *hits.entry(*program).or_default() += counters.hits;
            }
        }
        self.governor.read(now_ns, hits)
    }
}

impl Live {
    /// Takes the probes on the scheduler off from programs that pass them too often.
    pub(super) fn govern(&mut self, now_ns: u64, hooks: &[HookCounters]) {
        let over = self.costs.over_budget(now_ns, hooks);
        self.costs.to_shed.extend(over);
        let guards = &self.guards;
        let free = |over: &OverBudget| guards.get(&over.program).is_none_or(|guard| is_free(&guard.mappers));
        // Where it would stop the node, it is tried again the next time.
        let (now, later) = std::mem::take(&mut self.costs.to_shed).into_iter().partition(free);
        self.costs.to_shed = later;
        let now: Vec<OverBudget> = now;
        for over in now {
            if let Err(error) = self.kernel.detach_parks(over.program) {
                tracing::warn!("{}", chain(&error));
            }
            self.costs.shed.push(over);
        }
    }

    /// Programs whose probes on the scheduler came off since this was asked last, and their budget.
    pub(crate) fn take_shed(&mut self) -> (Vec<OverBudget>, u64) {
        (std::mem::take(&mut self.costs.shed), self.costs.governor.budget())
    }
}

/// A call that is older than what is kept of its goroutine was not measured from its start on.
pub(super) fn disown_young_parkers(calls: &mut [(CallKey, OpenCall)], parkers: &[(ParkerKey, Parker)]) {
    let roots: HashMap<(u32, u64), u64> =
        parkers.iter().map(|(key, parker)| ((key.tgid, key.goid), parker.root_start_ns)).collect();
    for (key, call) in calls {
        if roots.get(&(key.tgid, key.goid)).is_some_and(|root| *root > call.start_ns) {
            call.flags &= !CALL_PARKS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(hook: u32, hits: u64, calls: u64, unmatched: u64) -> HookCounters {
        HookCounters { hook, hits, calls, unmatched, ..HookCounters::default() }
    }

    /// Hooks 0: starts alone; 1: starts, and RETs of its own; 2: a mark; 3 and 4: the scheduler of program 5.
    fn costs() -> Costs {
        let mut costs = Costs::new(5000);
        let prices = [(650, 0), (650, 9500), (0, 650), (0, 650), (0, 650)];
        costs.prices.extend((0..).zip(prices.map(|(start, end)| Price { start, end })));
        costs.on_scheduler.extend([(3, 5), (4, 5)]);
        costs
    }

    /// Each hit has the price of its site; of a hook with both sorts of sites, calls that ended tell how many were RETs.
    #[test]
    fn hits_have_prices() {
        let costs = costs();
        let ns = |counters| costs.probes_ns(&[counters]);
        assert_eq!(ns(counters(0, 10, 10, 0)), 10 * 650);
        assert_eq!(ns(counters(1, 10, 4, 1)), 5 * 650 + 5 * 9500);
        assert_eq!(ns(counters(1, 1, 4, 1)), 9500, "counters that are read one by one may be apart");
        assert_eq!(ns(counters(2, 10, 0, 9)), 10 * 650);
        assert_eq!(ns(counters(9, 10, 0, 0)), 0, "of a hook that is not known");
        assert_eq!(costs.probes_ns(&[counters(0, u64::MAX, 0, 0), counters(2, 1, 0, 0)]), u64::MAX);
    }

    /// Both hooks of a program count together.
    #[test]
    fn a_program_has_one_budget() {
        let mut costs = costs();
        let mut read = |second: u64, hits: u64| {
            let hooks = [counters(3, hits, 0, 0), counters(4, hits, 0, 0), counters(0, 99 * hits, 0, 0)];
            costs.over_budget(second * 1_000_000_000, &hooks)
        };
        assert!([0, 2500, 5000].iter().zip(1..).all(|(hits, second)| read(second, *hits).is_empty()));
        assert_eq!(read(8, 20_000), [OverBudget { program: 5, hits_per_s: 6000 }]);
    }

    /// An entry that is younger than the call says nothing about it; one of its own age or older does.
    #[test]
    fn young_entries_are_disowned() {
        let call = |goid, start_ns| {
            let key = CallKey { goid, tgid: 1, class: 1, depth: 0, reserved: 0 };
            let (flags, tid) = (CALL_PARKS, 1);
            let call = OpenCall {
                start_ns,
                mark_ns: 0,
                g_addr: 0,
                hook: 0,
                flags,
                depth: 0,
                tid,
                parked_ns: 0,
                short_ns: 0,
                parks: 0,
                stream: 0,
            };
            (key, call)
        };
        let mut calls = [call(1, 10), call(1, 20), call(2, 10)];
        let key = ParkerKey { goid: 1, tgid: 1, reserved: 0 };
        disown_young_parkers(&mut calls, &[(key, Parker { root_start_ns: 20, ..Parker::EMPTY })]);
        assert_eq!(calls.map(|(_, call)| call.flags), [0, CALL_PARKS, CALL_PARKS]);
    }
}
