//! Requests that only their stacks show: no probe saw them begin, so they are not among the open calls. They are open all
//! the same.

use std::collections::HashSet;

use super::Request;
use crate::{
    correlate::{Age, Snapshot},
    input::OwnCall,
};

/// One of our own calls without an answer was given up after this time at most.
const GIVEN_UP_NS: u64 = 2_000_000_000;

impl Snapshot {
    /// Requests that the last look found in flight and that are not among the open calls, the oldest first.
    #[must_use]
    pub fn untraced(&self) -> Vec<Request> {
        let traced: HashSet<(u32, u64)> =
            self.open.iter().map(|call| (call.span.id.tgid, call.span.id.goid)).collect();
        let rest = |request: &Request| {
            let is_traced = |goid: &u64| traced.contains(&(request.pid, *goid));
            let (seen, goids): (Vec<u64>, Vec<u64>) = request.goids.iter().partition(|goid| is_traced(goid));
            let count = request.count.saturating_sub(u32::try_from(seen.len()).unwrap_or(u32::MAX));
            let known = if request.since.at_least { request.since.ns } else { 0 };
            let since = Age { ns: known, at_least: true };
            (count > 0).then(|| Request { goids, count, since, ..request.clone() })
        };
        let foreign = self.census.requests.iter().filter(|request| !self.is_own(request));
        foreign.filter_map(rest).collect()
    }

    /// Is it the answer to a question that the census asked during the look?
    fn is_own(&self, request: &Request) -> bool {
        let look = self.census.goroutines.iter().find(|look| look.pid == request.pid);
        let says = self.census.round.as_ref().and_then(|round| round.says.as_ref());
        let (Some(look), Some(says)) = (look, says) else { return false };
        let asked = |call: &OwnCall| {
            let until = call.ended_ns.unwrap_or(call.began_ns.saturating_add(GIVEN_UP_NS));
            call.operation == request.operation
                && call.began_ns <= look.at_ns.saturating_add(look.took_ns)
                && look.at_ns <= until
        };
        request.count == 1 && !request.stays && says.calls.iter().any(asked)
    }
}
