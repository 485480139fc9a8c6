//! Programs for which the tables of the kernel side have no room: they are refused for now, and planned as soon as
//! programs that have ended give theirs back.

use super::{Probes, known::Key};
use crate::plan::BinaryFacts;

/// Files that are run and wait for room, oldest first.
#[derive(Debug, Default)]
pub(super) struct CrowdedOut {
    files: Vec<Key>,
    /// One of them was planned since this was asked last.
    planned: bool,
}

impl CrowdedOut {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

impl Probes {
    /// How many hooks the kernel side is to have room for.
    pub(crate) fn hooks_wanted(&self) -> u32 {
        self.planner.hooks_wanted()
    }

    /// The kernel side has room for so many hooks.
    pub(crate) fn limit_hooks(&mut self, most: u32) {
        self.planner.limit_hooks(most);
    }

    /// Plans a file that was analysed, if there is room for all of it. What would not fit into empty tables is planned as
    /// far as it fits.
    pub(super) fn plan_whole(&mut self, key: Key, facts: &BinaryFacts) {
        let place = match self.planner.add_whole(facts) {
            Ok(place) => place,
            Err(_) if self.planner.is_empty() => self.planner.add(facts),
            Err(why) => {
                let why = format!("{why}; it will be probed as soon as programs that ended have made room");
                self.planner.put_off(facts.component, &facts.exe, &why, true);
                return self.crowded_out.files.push(key);
            }
        };
        if let Some(place) = place {
            self.known.planned(&key, place);
            self.waiting.push(place);
        }
    }

    /// Plans what there is room for now.
    pub(super) fn plan_crowded_out(&mut self) {
        for key in std::mem::take(&mut self.crowded_out.files) {
            let Some(facts) = self.known.read(&key).map(|inspected| inspected.facts.clone()) else {
                continue;
            };
            match self.planner.add_whole(&facts) {
                Ok(Some(place)) => {
                    self.known.planned(&key, place);
                    self.waiting.push(place);
                    self.crowded_out.planned = true;
                    self.planner.admit(facts.component, &facts.exe);
                }
                Ok(None) => {}
                Err(_) => self.crowded_out.files.push(key),
            }
        }
    }

    /// Was something planned that had no room, since this was asked last?
    pub(super) fn take_let_in(&mut self) -> bool {
        std::mem::take(&mut self.crowded_out.planned)
    }

    /// Forgets those that have ended before there was room: whoever runs such a file next is looked at anew.
    pub(super) fn forget_crowded_out(&mut self) {
        let (run, over) =
            std::mem::take(&mut self.crowded_out.files).into_iter().partition(|key| self.known.is_run(key));
        self.crowded_out.files = run;
        let over: Vec<Key> = over;
        over.iter().for_each(|key| self.known.forget_file(key));
    }
}
