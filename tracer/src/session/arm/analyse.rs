//! Which programs are analysed, and what is planned for them.

use std::time::Duration;

use super::{Probes, Wanted, memory::give_memory_back, within::within};
use crate::{
    input::Component,
    session::{inspect::Inspected, known::Taken, runc::Found},
    target::RefuseReason,
};

/// How long the files may take, all together: one can be on a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Probes {
    /// Analyses the programs of `wanted` that are not known yet, in parallel, and plans their sites.
    pub(crate) fn inspect(&mut self, wanted: &[Wanted]) {
        self.inspect_within(PATIENCE, wanted, |wanted| {
            Inspected::of(wanted.component, wanted.pid, &wanted.exe)
        });
    }

    /// Who is late is refused, and not asked again: its thread may wait for as long as its disk does.
    pub(super) fn inspect_within(
        &mut self,
        patience: Duration,
        wanted: &[Wanted],
        analyse: impl Fn(&Wanted) -> Result<Inspected, RefuseReason> + Clone + Send + 'static,
    ) {
        let fresh: Vec<Wanted> = wanted.iter().filter(|w| self.is_fresh(w)).cloned().collect();
        let job = |wanted: Wanted| {
            let analyse = analyse.clone();
            move || analyse(&wanted)
        };
        let results = within(patience, fresh.iter().cloned().map(job));
        if !results.is_empty() {
            give_memory_back();
        }
        for (wanted, result) in fresh.iter().zip(results) {
            match result {
                Some(Ok(inspected)) => self.take(inspected),
                Some(Err(why)) => self.give_up(wanted, &why.to_string()),
                None => {
                    let why = format!("its file does not answer within {} s", patience.as_secs());
                    self.give_up(wanted, &why);
                }
            }
        }
    }

    fn give_up(&mut self, wanted: &Wanted, why: &str) {
        self.unreadable.insert((wanted.component, wanted.pid));
        self.planner.refuse(wanted.component, &wanted.exe, why, true);
    }

    /// Plans the sites of files that no process runs all the time.
    pub(crate) fn take_files(&mut self, found: Vec<Found>) {
        for (exe, result) in found {
            match result {
                Ok(inspected) => self.take(inspected),
                Err(why) => self.planner.refuse(Component::Runc, &exe, &why.to_string(), false),
            }
        }
    }

    fn is_fresh(&self, wanted: &Wanted) -> bool {
        let known = self.of_pid(wanted.component, wanted.pid).is_some();
        !known && !self.unreadable.contains(&(wanted.component, wanted.pid))
    }

    pub(super) fn take(&mut self, inspected: Inspected) {
        let (id, facts) = (inspected.id, inspected.facts.clone());
        let key = (id, facts.component);
        tracing::debug!(exe = facts.exe, took = ?inspected.took, "analysed");
        match self.known.take(key, facts.pid, inspected) {
            Taken::Another | Taken::Again(None) => {}
            Taken::Again(Some(place)) => {
                self.planner.reach(place, &facts);
                self.waiting.push(place);
            }
            Taken::New => {
                let others = self.known.other_states(&key);
                others.into_iter().for_each(|place| self.take_off(place));
                if let Some(place) = self.planner.add(&facts) {
                    self.known.planned(&key, place);
                    self.waiting.push(place);
                }
            }
        }
    }
}
