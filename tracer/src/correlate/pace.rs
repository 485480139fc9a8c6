//! [`Pace`]: how often the kubelet lists, and from which age on a list is missed.

use super::{
    census::Request,
    snapshot::{OpenCall, Snapshot},
    thresholds::{
        EVENTED_PERIOD_NS, EVENTED_THRESHOLD_NS, LAST_LIST_NS, PLEG_THRESHOLD_NS, RELIST_PERIOD_NS,
    },
    traced::TracedState,
};
use crate::{cri::Method, input::Component};

/// The method by which a kubelet with EventedPLEG learns of changes between its relists.
const EVENTS: Method = Method::GetContainerEvents;

/// How often a kubelet lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// From the end of one relist to the start of the next.
    pub period_ns: u64,
    /// A last successful list older than this is a stall.
    pub late_ns: u64,
    /// The kubelet reports "PLEG is not healthy" when it is older than this.
    pub threshold_ns: u64,
}

impl Pace {
    const STEADY: Self =
        Self { period_ns: RELIST_PERIOD_NS, late_ns: LAST_LIST_NS, threshold_ns: PLEG_THRESHOLD_NS };
    const EVENTED: Self = Self {
        period_ns: EVENTED_PERIOD_NS,
        late_ns: EVENTED_PERIOD_NS + LAST_LIST_NS,
        threshold_ns: EVENTED_THRESHOLD_NS,
    };
}

impl Snapshot {
    /// How often its kubelet lists: seldom when it has a stream of events open, unless relists follow each other all the
    /// same: then it has gone back to lists. Anybody can have a stream open, so that of the runtime says nothing.
    #[must_use]
    pub fn pace(&self) -> Pace {
        let own = |call: &OpenCall| call.span.component() == Component::Kubelet;
        let traced = self.open.iter().any(|call| own(call) && call.span.method() == Some(EVENTS));
        let live = |pid: &u32| {
            self.targets.iter().any(|target| target.fact.pid == *pid && target.state == TracedState::Live)
        };
        let streams = traced || self.census.streams.iter().any(live);
        let last = self.relists.iter().rev().find_map(|relist| relist.interval_ns);
        let often = last.is_some_and(|interval| interval <= LAST_LIST_NS);
        if streams && !often { Pace::EVENTED } else { Pace::STEADY }
    }

    /// No relist was seen, and none need be: the kubelet lists seldom, and none of them hangs as far as can be seen, by probes that would
    /// have shown one.
    #[must_use]
    pub fn awaits_relist(&self) -> bool {
        let pace = self.pace();
        let hangs = self.census.requests.iter().any(Request::is_relist);
        let none = self.sees_relists() && self.relists_now().next().is_none();
        pace == Pace::EVENTED && none && !hangs && self.relist_window.ns() <= pace.late_ns
    }
}
