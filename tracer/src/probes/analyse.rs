//! Which programs are analysed, and what is planned for them.

use std::time::{Duration, Instant};

use super::{
    Probes, Unreadable, Wanted, analyses::Answer, inspect::Inspected, known::Taken, memory::give_memory_back,
    runc::Found,
};
use crate::{chain::chain, input::Component, target::RefuseReason};

/// How long the files may take, all together: one can be on a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Probes {
    /// Analyses the programs of `wanted` that are not known yet, in parallel, and plans their sites.
    pub(crate) fn inspect(&mut self, wanted: &[Wanted]) {
        self.inspect_within(PATIENCE, wanted, |wanted| {
            Inspected::of_process(wanted.component, wanted.pid, &wanted.exe)
        });
    }

    /// Who is late is refused for now, and not asked again: its thread may wait for as long as its disk does.
    pub(super) fn inspect_within(
        &mut self,
        patience: Duration,
        wanted: &[Wanted],
        analyse: impl Fn(&Wanted) -> Result<Inspected, RefuseReason> + Clone + Send + 'static,
    ) {
        let fresh: Vec<Wanted> = wanted.iter().filter(|w| self.is_fresh(w)).cloned().collect();
        for wanted in &fresh {
            self.analyses.begin(wanted.clone(), analyse.clone());
        }
        let mut answers = self.analyses.wait(&fresh, patience);
        // The plan is in the order of the questions, in whichever order they were answered.
        answers.sort_by_key(|(of, _)| fresh.iter().position(|wanted| wanted == of));
        self.hear(answers);
        for late in fresh.iter().filter(|wanted| self.analyses.is_open(wanted)) {
            let seconds = patience.as_secs();
            let why = format!(
                "its file was not read within {seconds} s (a slow disk or too little CPU); it will be probed as soon as it is"
            );
            self.planner.put_off(late.component, &late.exe, &why, true);
        }
    }

    /// Plans what was late and is there now; says whether there was any, or something that waited for room, or that could not be
    /// attached before.
    pub(crate) fn take_late(&mut self) -> bool {
        let late = self.analyses.take();
        let due = self.put_off.due(Instant::now());
        self.waiting.extend(&due);
        self.hear(late) | self.take_let_in() | !due.is_empty()
    }

    fn hear(&mut self, answers: Vec<Answer>) -> bool {
        if answers.is_empty() {
            return false;
        }
        give_memory_back();
        for (wanted, answer) in answers {
            match answer {
                Some(Ok(inspected)) => {
                    self.planner.admit(wanted.component, &wanted.exe);
                    self.unreadable.remove(&(wanted.component, wanted.pid));
                    self.unread.forget((wanted.component, wanted.pid));
                    self.take(inspected);
                }
                Some(Err(why @ RefuseReason::Io(_))) => self.try_later(&wanted, &chain(&why)),
                Some(Err(why)) => self.give_up(&wanted, &why.to_string()),
                None => self.try_later(&wanted, "its analysis failed"),
            }
        }
        true
    }

    /// It could not be read, which may pass: it is read again, ever less often, when the processes are looked at.
    fn try_later(&mut self, wanted: &Wanted, why: &str) {
        let of = (wanted.component, wanted.pid);
        self.unreadable.insert(of, Unreadable::ForNow);
        if self.unread.fail(of, Instant::now()) {
            let why = format!("{why}; plegtrace tries again");
            self.planner.put_off(wanted.component, &wanted.exe, &why, true);
        }
    }

    fn give_up(&mut self, wanted: &Wanted, why: &str) {
        self.unreadable.insert((wanted.component, wanted.pid), Unreadable::Ever);
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
        let of = (wanted.component, wanted.pid);
        let refused = match self.unreadable.get(&of) {
            Some(Unreadable::Ever) => true,
            Some(Unreadable::ForNow) => self.unread.waits(of, Instant::now()),
            None => false,
        };
        !known && !refused && !self.analyses.is_open(wanted)
    }

    pub(super) fn take(&mut self, inspected: Inspected) {
        let (id, facts) = (inspected.id, inspected.facts.clone());
        let key = (id, facts.component);
        tracing::debug!(exe = facts.exe, took = ?inspected.took, "analysed");
        match self.known.take(key, facts.pid, inspected) {
            Taken::Another | Taken::Again(None) => {}
            Taken::Again(Some(place)) => {
                self.planner.reach(place, &facts);
                self.ended.retain(|(_, ended)| *ended != place);
                self.waiting.push(place);
            }
            Taken::New => {
                let others = self.known.other_states(&key);
                others.into_iter().for_each(|place| self.take_off(place));
                self.plan_whole(key, &facts);
            }
        }
    }
}
