//! [`Pace`]: how often the kubelet lists, and from which age on a list is missed.
//!
//! With the feature gate EventedPLEG a kubelet has a stream of events open and, before Kubernetes 1.37, lists every five minutes. Since
//! 1.37 ([kubernetes#139262]) it lists each second all the same. So an open stream excuses no silence: only an interval that was seen
//! does. Where neither interval nor version tells, nobody is accused of silence that may be due, nor called healthy because of it.
//!
//! [kubernetes#139262]: https://github.com/kubernetes/kubernetes/pull/139262

use super::{
    census::Request,
    snapshot::{OpenCall, Relist, Snapshot},
    thresholds::{
        EVENTED_PERIOD_NS, EVENTED_THRESHOLD_NS, LAST_LIST_NS, PLEG_THRESHOLD_NS, RELIST_PERIOD_NS,
    },
    traced::{TracedProcess, TracedState},
};
use crate::{cri::Method, input::Component};

/// The method by which a kubelet with EventedPLEG learns of changes between its relists.
const EVENTS: Method = Method::GetContainerEvents;

/// The minor release since which a kubelet lists each second also when it follows events.
const ALWAYS_LISTS: u32 = 37;

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
    /// How often its kubelet lists: seldom when a long time between two relists was seen beside its stream of events, or when that
    /// [may be so](Self::may_be_slow).
    #[must_use]
    pub fn pace(&self) -> Pace {
        if self.is_slow() || self.may_be_slow() { Pace::EVENTED } else { Pace::STEADY }
    }

    /// Does it follow events, so that it may list seldom, and was no interval between relists seen? Not since 1.37.
    #[must_use]
    pub fn may_be_slow(&self) -> bool {
        let version = |target: &TracedProcess| target.fact.version.as_deref().and_then(minor_of);
        let mut kubelets = self.targets.iter().filter(|target| is_kubelet(target));
        let lists_often = kubelets.any(|kubelet| version(kubelet).is_some_and(|minor| minor >= ALWAYS_LISTS));
        self.last_gap_ns().is_none() && !lists_often && self.follows_events()
    }

    /// Was the last time between two relists one that only a kubelet with EventedPLEG has?
    fn is_slow(&self) -> bool {
        self.last_gap_ns().is_some_and(|gap| gap >= EVENTED_PERIOD_NS / 2) && self.follows_events()
    }

    /// From the end of one relist to the start of the next: the last such time of the kubelet that runs.
    fn last_gap_ns(&self) -> Option<u64> {
        let relists: Vec<_> = self.relists_of_now().collect();
        let gap = |pair: &[&Relist]| {
            let (before, after) = (pair[0].root(), pair[1].root());
            let ended = before.end.filter(|_| before.id.tgid == after.id.tgid)?;
            Some(after.start().since(ended))
        };
        relists.windows(2).rev().find_map(gap)
    }

    /// Has it a stream of events open? Anybody can have one, so that of the runtime says nothing.
    fn follows_events(&self) -> bool {
        let own = |call: &OpenCall| call.span.component() == Component::Kubelet;
        let traced = self.open.iter().any(|call| own(call) && call.span.method() == Some(EVENTS));
        let live = |pid: &u32| {
            self.targets.iter().any(|target| target.fact.pid == *pid && target.state == TracedState::Live)
        };
        traced || self.census.streams.iter().any(live)
    }

    /// No relist was seen, and none need be: the kubelet lists seldom, and none of them hangs as far as can be seen, by probes that would
    /// have shown one.
    #[must_use]
    pub fn awaits_relist(&self) -> bool {
        let pace = self.pace();
        let hangs = self.census.requests.iter().any(Request::is_relist);
        let none = self.sees_relists() && self.relists_now().next().is_none();
        self.is_slow() && none && !hangs && self.relist_window.ns() <= pace.late_ns
    }
}

fn is_kubelet(target: &TracedProcess) -> bool {
    target.fact.component == Component::Kubelet && target.state == TracedState::Live
}

/// The minor release of a version of Kubernetes: 36 of "v1.36.2", "1.36+".
fn minor_of(version: &str) -> Option<u32> {
    let mut parts = version.trim_start_matches('v').split('.');
    let major = parts.next()?;
    let minor = parts.next()?.split(|letter: char| !letter.is_ascii_digit()).next()?;
    (major == "1").then(|| minor.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::minor_of;

    /// As kubelets write it, and as distributions do.
    #[test]
    fn minor_releases() {
        let of = ["1.20.2", "v1.36.2", "1.37.0-rc.0", "v1.37+k3s1", "1", "2.5", ""].map(minor_of);
        assert_eq!(of, [Some(20), Some(36), Some(37), Some(37), None, None, None]);
    }
}
