//! What the kubelet will do next: it says nothing before a deadline is over, and we know its deadlines.

use super::evidence::innermost_call;
use crate::{
    correlate::{LastList, Snapshot, thresholds::RELIST_OPEN_NS},
    cri::Method,
    words::human::{clock, duration, minutes},
};

/// Sentences about what comes, the nearest first; empty as long as relists end.
pub(super) fn find(snapshot: &Snapshot) -> Vec<String> {
    let open = snapshot.relists.iter().find(|relist| relist.root().is_open());
    let late = open.filter(|relist| relist.root().duration_ns(snapshot.now) > RELIST_OPEN_NS);
    let mut all = Vec::new();
    if let Some(call) = late.and_then(innermost_call) {
        let age = call.duration_ns(snapshot.now);
        let deadline = call.method().and_then(Method::deadline_ns);
        if let Some(deadline) = deadline.filter(|deadline| age < *deadline) {
            let (left, limit) = (duration(deadline - age), minutes(deadline));
            let operation = call.operation();
            all.push(format!(
                "{operation} fails at the kubelet's deadline of {limit}, in {left}; the next relist tries again"
            ));
        }
    }
    if let LastList::At(at) = snapshot.last_list {
        let (age, pace) = (snapshot.now.since(at), snapshot.pace());
        if (pace.late_ns..pace.threshold_ns).contains(&age) {
            let when = clock(snapshot.wall_ns(at.plus(pace.threshold_ns)));
            let left = duration(pace.threshold_ns - age);
            all.push(format!("\"PLEG is not healthy\" at {when}, in {left}, unless a list succeeds"));
        }
    }
    all
}
