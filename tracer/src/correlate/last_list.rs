//! When the kubelet last got a whole list. What is known of one that has ended says nothing of the one that runs: where a kubelet runs, only
//! its own lists count.

use super::{
    Correlator,
    snapshot::{LastList, Relist, Snapshot},
    traced::TracedState,
};
use crate::{decode::MonoNs, input::Component};

impl Correlator {
    /// `seen` is the start of the last relist that is kept and got its list.
    pub(super) fn last_list(&self, seen: Option<MonoNs>) -> LastList {
        let of_now = |(pid, at): (u32, MonoNs)| self.node.is_kubelet_of_now(pid).then_some(at);
        let since = self.node.relists_since;
        let forgotten = self.forgotten_list.and_then(of_now);
        let forgotten = forgotten.filter(|at| since.is_some_and(|since| since <= *at));
        match (seen.max(forgotten).max(self.own_last_list()), since) {
            (Some(at), _) => LastList::At(at),
            (None, Some(since)) => LastList::NotSince(since.max(self.node.successor_since.unwrap_or(since))),
            (None, None) => LastList::Untraced,
        }
    }
}

impl Snapshot {
    /// Relists of the kubelets that run; all of them where none is known to run.
    pub fn relists_of_now(&self) -> impl DoubleEndedIterator<Item = &Relist> {
        let live = self.targets.iter().filter(|target| {
            target.fact.component == Component::Kubelet && target.state == TracedState::Live
        });
        let live: Vec<u32> = live.map(|target| target.fact.pid).collect();
        self.relists.iter().filter(move |relist| live.is_empty() || live.contains(&relist.root().id.tgid))
    }
}
