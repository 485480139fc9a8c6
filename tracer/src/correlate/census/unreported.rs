//! [`Unreported`]: ends that the runtime does not know of, and since when. The kernel tells the moment of an exit, so its
//! age does not begin with the look that found it, which on a calm node comes up to ten seconds later.

use super::CensusState;
use crate::{
    decode::MonoNs,
    input::{CensusFact, EndedInit, RuntimeState},
};

/// A container whose first process has ended, although the runtime says that it runs; or a command in it whose first
/// process has ended, although the runtime has not deleted it, which it does when it is told of the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreported {
    /// Which container or sandbox, in the runtime's words; of a command `None`: the CRI does not list commands.
    pub said: Option<RuntimeState>,
    /// Its first process.
    pub init: EndedInit,
    /// Since when every round that could tell found it so: of a container the exit, if the probes saw it; else the end of
    /// the first of these rounds.
    pub since: MonoNs,
}

impl CensusState {
    /// Compares what has ended with what the runtime says. A round in which it did not answer changes nothing for
    /// containers: what it believed it may still believe, but nobody may say so before it is asked again.
    pub(super) fn unreported(&mut self, round: &CensusFact, ended: &dyn Fn(u32) -> Option<MonoNs>) {
        let says = round.says.as_ref().filter(|says| !says.version.is_empty());
        let mut before = std::mem::take(&mut self.unreported);
        for init in &round.ended {
            let listed = || says?.containers.iter().find(|said| said.runs && said.container.id == init.id);
            let said = listed().filter(|_| init.exec.is_none());
            if said.is_none() && init.exec.is_none() {
                continue;
            }
            let key = (init.id.clone(), init.exec.clone());
            let same = before.remove(&key).filter(|before| before.init.pid == init.pid);
            let since = same.map_or_else(|| self.ended_since(init, round, ended), |before| before.since);
            self.unreported.insert(key, Unreported { said: said.cloned(), init: init.clone(), since });
        }
        if says.is_none() {
            self.unreported.extend(before.into_iter().filter(|((_, exec), _)| exec.is_none()));
        }
    }

    /// Since when what this round is the first to find has ended. An exit from before the last round is no proof: the
    /// process may have been another one with the same number. Commands end all the time: of theirs only looks tell.
    fn ended_since(
        &self,
        init: &EndedInit,
        round: &CensusFact,
        ended: &dyn Fn(u32) -> Option<MonoNs>,
    ) -> MonoNs {
        let found = MonoNs(round.ended_ns);
        let last = self.round.as_ref().map_or(0, |last| last.began_ns);
        let exit = ended(init.pid).filter(|_| init.exec.is_none());
        exit.map_or(found, |exit| exit.max(MonoNs(last)).min(found))
    }
}
