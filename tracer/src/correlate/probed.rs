//! What live probes see: a hook that was planned is no evidence, nor is one that came off, or that is in a program which has ended.

use super::{
    node::NodeState,
    snapshot::{Relist, Snapshot},
};
use crate::{
    decode::MonoNs,
    input::{HookFact, Layer, RefusedFact},
};

/// Layers on which CRI calls are seen.
const CALLS: [Layer; 3] = [Layer::KubeletCall, Layer::KubeletClient, Layer::Handler];

impl NodeState {
    /// Are its probes on, in a program that runs and is watched?
    pub(super) fn is_on(&self, hook: &HookFact) -> bool {
        let Some(armed) = &self.armed else { return false };
        let on = match &armed.hooks {
            Some(hooks) => hooks.contains(&hook.index),
            None => armed.sites > 0 && !self.refused.iter().any(|refused| refuses_file(refused, hook)),
        };
        on && !self.is_unwatched(hook)
    }

    /// Are hits of this hook left out, because the process was not entered among those that are watched?
    fn is_unwatched(&self, hook: &HookFact) -> bool {
        let of_it = |refused: &&RefusedFact| {
            refused.source == "processes" && refused.component == Some(hook.component)
        };
        let mut pids = self
            .refused
            .iter()
            .filter(of_it)
            .filter_map(|refused| refused.what.strip_prefix("process ")?.parse::<u32>().ok());
        pids.any(|pid| self.is_live(pid))
    }

    /// Something was told that probes hang on: relists are seen from the moment on at which their hooks are on, the same ones.
    pub(super) fn probes_changed(&mut self, at: MonoNs) {
        let relists = self.hooks.values().filter(|hook| hook.layer == Layer::Relist);
        let on: Vec<u32> = relists.filter(|hook| self.is_on(hook)).map(|hook| hook.index).collect();
        if on != self.relists_on {
            self.relists_since = (!on.is_empty()).then_some(at);
            self.relists_on = on;
            self.quiet.begin(self.relists_since);
        }
    }

    /// The counters of the kernel side were read. It leaves out hooks that were never hit.
    pub(super) fn relists_counted(&mut self, at: MonoNs) {
        let hits = |index: &u32| self.counters.get(index).map_or(0, |counters| counters.hits);
        let sum = self.relists_on.iter().map(hits).fold(0, u64::saturating_add);
        self.quiet.read(at, sum);
    }

    /// From when to when no relist of this kubelet began or ended, although a probe would have told.
    pub(super) fn no_relist_began(&self, pid: u32) -> Option<(MonoNs, MonoNs)> {
        let known = self.targets.get(&pid).filter(|_| self.is_live(pid))?.seen;
        let (from, until) = self.quiet.span()?;
        let from = from.max(known);
        (from <= until).then_some((from, until))
    }
}

/// Was this hook's file refused as a whole? In recordings of before it was told which hooks are on.
fn refuses_file(refused: &RefusedFact, hook: &HookFact) -> bool {
    refused.source == "uprobes" && refused.component == Some(hook.component) && refused.what == hook.exe
}

impl Snapshot {
    /// Are the probes of a hook of one of these layers on?
    #[must_use]
    pub fn has_probes(&self, layers: &[Layer]) -> bool {
        self.hooks.iter().any(|state| state.on && layers.contains(&state.hook.layer))
    }

    /// Are relists seen now?
    #[must_use]
    pub fn sees_relists(&self) -> bool {
        self.has_probes(&[Layer::Relist])
    }

    /// Are CRI calls seen now, by probes in the kubelet or the runtime, or on the kubelet's own connection to it?
    #[must_use]
    pub fn sees_calls(&self) -> bool {
        self.has_probes(&CALLS) || self.sees_requests()
    }

    /// Are the kubelet's requests followed on its sockets? Where they are, some have been seen.
    fn sees_requests(&self) -> bool {
        let came_off = self.refused.iter().any(|refused| refused.source == "wire");
        self.grpc.read_at.is_some() && !self.grpc.rows.is_empty() && !came_off
    }

    /// Relists that were seen by the probes that are on now: those of a kubelet before are no evidence of this one.
    pub fn relists_now(&self) -> impl DoubleEndedIterator<Item = &Relist> {
        let since = self.relist_window.from;
        self.relists_of_now().filter(move |relist| relist.is_of(since))
    }
}

impl Relist {
    /// Was it seen by probes that have been on since then?
    pub(super) fn is_of(&self, since: Option<MonoNs>) -> bool {
        since.is_some_and(|since| self.root().end.is_none_or(|end| since <= end))
    }
}
