//! What the probes on system calls cost the node, and when they come off: every system call of every process passes them.

use super::{
    Live,
    governor::{Governor, OverBudget},
};
use crate::{
    input::{Arrival, BusFact, Fact, MessagesFact, OtherClientsFact},
    kernel::KernelError,
};

/// What a call takes longer, nanoseconds, in a VM (`tracer/BENCHMARKS.md`: 0.15 µs, and 0.25 µs for one that may be about a
/// socket).
const NS_PER_CALL: u64 = 200;
/// The governor knows programs by numbers; this is the whole node.
const NODE: u64 = 0;

/// Counts the system calls of the node while they are watched.
#[derive(Debug)]
pub(super) struct SystemCalls {
    governor: Governor,
    seen: Option<u64>,
    came_off: Option<OverBudget>,
}

impl SystemCalls {
    /// With the calls per second that the whole node may make.
    pub(super) fn new(budget: u64) -> Self {
        Self { governor: Governor::new(budget), seen: None, came_off: None }
    }

    /// Takes the number of calls so far; gives true when they have been too many for too long.
    fn count(&mut self, now_ns: u64, seen: u64) -> bool {
        self.seen = Some(seen);
        let over = self.governor.read(now_ns, [(NODE, seen)]).pop();
        self.came_off = self.came_off.or(over);
        over.is_some()
    }

    /// Time that all processes together have spent in the probes; `None`: they were never on.
    pub(super) fn ns(&self) -> Option<u64> {
        self.seen.map(|calls| calls.saturating_mul(NS_PER_CALL))
    }
}

impl Live {
    /// Reads how many system calls there were, and takes the probes off when these are too many.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub(super) fn govern_system_calls(
        &mut self,
        now_ns: u64,
        sink: &mut dyn FnMut(Arrival),
    ) -> Result<(), KernelError> {
        if !self.follows_wire {
            return Ok(());
        }
        let seen = self.kernel.system_calls()?;
        if self.system_calls.count(now_ns, seen) {
            self.kernel.detach_wire();
            self.follows_wire = false;
            nothing_is_open(now_ns).into_iter().for_each(|fact| sink(Arrival::Fact { at_ns: now_ns, fact }));
        }
        Ok(())
    }

    /// Requests on sockets are not followed any more: by how many system calls per second, and how many are allowed. Given
    /// once.
    pub(crate) fn take_wire_off(&mut self) -> Option<(u64, u64)> {
        let over = self.system_calls.came_off.take()?;
        Some((over.hits_per_s, self.system_calls.governor.budget()))
    }
}

/// Of requests whose answers will not be seen none is open.
fn nothing_is_open(at_ns: u64) -> [Fact; 5] {
    let none = MessagesFact { at_ns, open: Vec::new(), complete: true };
    let bus = BusFact { at_ns, complete: true, ..BusFact::default() };
    let others = OtherClientsFact { clients: Vec::new(), requests: none.clone() };
    [
        Fact::Messages(none.clone()),
        Fact::Requests(none.clone()),
        Fact::DockerRequests(none),
        Fact::OtherClients(others),
        Fact::BusCalls(bus),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Calls above the budget for five seconds take the probes off, once; their price is kept.
    #[test]
    fn too_many_for_too_long() {
        let mut calls = SystemCalls::new(1000);
        assert_eq!(calls.ns(), None);
        let over: Vec<bool> = (0..8).map(|second| calls.count(second * S, second * 1001)).collect();
        assert_eq!(over, [false, false, false, false, false, true, false, false]);
        assert_eq!((calls.ns(), calls.came_off.map(|over| over.hits_per_s)), (Some(7007 * 200), Some(1001)));
        let mut calls = SystemCalls::new(1000);
        assert!((0..60).all(|second| !calls.count(second * S, second * 1000)), "as many as are allowed");
    }
}
