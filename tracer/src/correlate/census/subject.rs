//! [`Known`]: the containers of the node, by id; and what a request is about, from the ids on the stacks of its
//! goroutines. A stack also holds ids of earlier requests, so what is ambiguous is not believed.

use std::collections::HashMap;

use super::{ProcessSeen, startup};
use crate::input::{CensusFact, Command, ContainerFact, GoroutineGroup, IdOnStack};

/// Goroutines that are named of one request.
const MAX_GOIDS: usize = 32;

/// The one request that is about nothing which was there before.
const MAKES_SANDBOX: &str = "RunPodSandbox";

/// Containers and sandboxes of the node.
#[derive(Clone, Debug, Default)]
pub struct Known {
    by_id: HashMap<String, ContainerFact>,
}

/// What goroutines are about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RequestTarget {
    /// Ids of the containers that they may be about.
    pub(super) ids: Vec<String>,
    /// There is no doubt about it: one container, or one pod.
    pub(super) certain: bool,
    /// The container whose status they wait to lock.
    pub(super) lock: Option<String>,
}

impl Known {
    /// Those of a round: with a bundle, with a process, or named in a command line.
    pub(crate) fn collect<'a>(
        round: Option<&CensusFact>,
        processes: impl Iterator<Item = &'a ProcessSeen>,
    ) -> Self {
        let mut known = Self::default();
        for seen in processes {
            seen.fact.container.iter().for_each(|fact| known.add(fact));
            let command = seen.fact.command.as_ref();
            if let Some((command, id)) = command.and_then(|command| Some((command, command.container()?))) {
                let source = "command line".to_owned();
                // Networks are those of sandboxes.
                let sandbox = matches!(command, Command::Cni { .. }).then(|| id.to_owned());
                known.add(&ContainerFact { id: id.to_owned(), sandbox, source, ..ContainerFact::default() });
            }
        }
        round.iter().flat_map(|round| &round.containers).for_each(|fact| known.add(fact));
        let all: Vec<ContainerFact> = known.by_id.values().cloned().collect();
        for fact in all {
            if let Some(sandbox) = fact.sandbox.clone() {
                known.sandbox(&sandbox, &fact);
            }
        }
        known
    }

    /// What says more of its pod wins.
    fn add(&mut self, fact: &ContainerFact) {
        let kept = self.by_id.get(&fact.id);
        if kept.is_none_or(|kept| kept.sandbox.is_none() && fact.sandbox.is_some()) {
            self.by_id.insert(fact.id.clone(), fact.clone());
        }
    }

    /// The sandbox of a container is a sandbox.
    fn sandbox(&mut self, id: &str, of: &ContainerFact) {
        let fresh = || ContainerFact { id: id.to_owned(), name: None, ..of.clone() };
        let sandbox = self.by_id.entry(id.to_owned()).or_insert_with(fresh);
        sandbox.sandbox.get_or_insert_with(|| id.to_owned());
    }

    /// What is known of an id.
    pub(crate) fn get(&self, id: &str) -> Option<&ContainerFact> {
        self.by_id.get(id)
    }

    /// Does what a request is about belong to this container or sandbox? A sandbox has all its containers, a container
    /// its sandbox, but not its siblings. `None`: not enough is known.
    pub(super) fn is_of(&self, target: &ContainerFact, place: &ContainerFact) -> Option<bool> {
        if target.id == place.id {
            return Some(true);
        }
        let sandbox = |fact: &ContainerFact| {
            let known = || self.by_id.get(&fact.id)?.sandbox.clone();
            fact.sandbox.clone().or_else(known)
        };
        let (a, b) = (sandbox(target)?, sandbox(place)?);
        Some(a == b && (target.id == a || place.id == b))
    }

    /// The same for all that a request may be about: `Some` only when all agree.
    pub(crate) fn are_of(&self, targets: &[ContainerFact], place: &ContainerFact) -> Option<bool> {
        let mut answers = targets.iter().map(|target| self.is_of(target, place));
        let first = answers.next()??;
        answers.all(|answer| answer == Some(first)).then_some(first)
    }

    /// What goroutines that serve `operation`, with these functions and ids on their stacks, are about.
    fn target(&self, operation: &str, frames: &[String], ids: &[IdOnStack]) -> RequestTarget {
        let method = format!(").{operation}");
        let name = |id: &&IdOnStack| frames.get(id.frame as usize).map_or("", String::as_str);
        let asks = startup::asks_about(frames).filter(|_| operation == startup::STARTUP);
        let serving = |id: &&IdOnStack| Some(id.frame) == asks || name(id).ends_with(&method);
        // The outermost function has the request and nothing else. That for a new sandbox has no id: what lies there is of an
        // earlier one, and only the function that makes the sandbox has the right one.
        let maker = || frames.iter().position(|frame| frame.ends_with(&method));
        let meant = match operation {
            MAKES_SANDBOX => maker().and_then(|frame| u32::try_from(frame).ok()),
            _ => ids.iter().filter(serving).map(|id| id.frame).max(),
        };
        let in_it = || ids.iter().filter(serving).filter(|id| Some(id.frame) == meant);
        let found: Vec<&ContainerFact> = in_it().filter_map(|id| self.by_id.get(&id.id)).collect();
        let whole = !found.is_empty() && found.len() == in_it().count();
        let one_pod = found.iter().all(|fact| self.is_of(fact, found[0]) == Some(true));
        // A container says more than its sandbox beside it.
        let is_sandbox = |fact: &&ContainerFact| fact.sandbox.as_ref() == Some(&fact.id);
        let containers = found.iter().filter(|fact| !is_sandbox(fact)).count();
        let told = found.iter().filter(|fact| containers == 0 || !is_sandbox(fact));
        let mut of_lock = ids.iter().filter(|id| name(id).contains(".(*statusStorage)."));
        let lock = of_lock.next().filter(|first| of_lock.all(|other| other.id == first.id));
        let mut ids: Vec<String> = told.map(|fact| fact.id.clone()).collect();
        ids.sort();
        RequestTarget { ids, certain: whole && one_pod, lock: lock.map(|lock| lock.id.clone()) }
    }
}

/// Goroutines of a group that are about the same.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) target: RequestTarget,
    pub(super) count: u32,
    /// At most 32.
    pub(super) goids: Vec<u64>,
    /// A moment at which one of them was parked there already.
    pub(super) parked_by: Option<u64>,
}

/// Splits a group by what its goroutines are about; those of which nothing is known come last.
pub(super) fn parts(group: &GoroutineGroup, operation: &str, known: &Known) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut add = |part: Part| match parts.iter_mut().find(|other| other.target == part.target) {
        Some(other) => {
            other.count = other.count.saturating_add(part.count);
            other.goids.extend(part.goids);
            other.parked_by = other.parked_by.into_iter().chain(part.parked_by).min();
        }
        None => parts.push(part),
    };
    for subject in &group.subjects {
        let target = known.target(operation, &group.frames, &subject.ids);
        let (count, goids) = (subject.count, subject.goids.clone());
        add(Part { target, count, goids, parked_by: subject.parked_by_ns });
    }
    let told: u32 = group.subjects.iter().map(|subject| subject.count).fold(0, u32::saturating_add);
    let rest = group.count.saturating_sub(told);
    if rest > 0 {
        let asked = |goid: &&u64| group.subjects.iter().any(|subject| subject.goids.contains(goid));
        let goids: Vec<u64> = group.goids.iter().filter(|goid| !asked(goid)).copied().collect();
        add(Part { count: rest, goids, ..Part::default() });
    }
    if let [only] = parts.as_mut_slice() {
        only.parked_by = group.parked_by_ns;
    }
    for part in &mut parts {
        part.goids.sort_unstable();
        part.goids.truncate(MAX_GOIDS);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(ids: &[&str]) -> Known {
        let mut known = Known::default();
        for id in ids {
            let sandbox = Some((*id).to_owned());
            known.add(&ContainerFact { id: (*id).to_owned(), sandbox, ..ContainerFact::default() });
        }
        known
    }

    fn target(operation: &str, ids: &[(u32, &str)], known: &Known) -> RequestTarget {
        let frames = ["server.(*criService).", "server.(*instrumentedService)."];
        let frames: Vec<String> = frames.iter().map(|frame| format!("{frame}{operation}")).collect();
        let on_stack = |(frame, id): &(u32, &str)| IdOnStack { frame: *frame, id: (*id).to_owned() };
        let ids: Vec<IdOnStack> = ids.iter().map(on_stack).collect();
        known.target(operation, &frames, &ids)
    }

    /// Of a start only the frame with the bundle counts, the innermost.
    #[test]
    fn a_start_is_about_the_bundle_that_it_asks_about() {
        let frames = ["ttrpc.(*Client).Call", "runtime/v2.loadShim", "runtime/v2.(*ShimManager).loadShims"];
        let frames = frames.map(str::to_owned);
        let id = |frame, id: &str| IdOnStack { frame, id: id.to_owned() };
        let known = known(&["now", "before"]);
        let of = |ids: &[IdOnStack]| {
            let target = known.target(startup::STARTUP, &frames, ids);
            (target.ids, target.certain)
        };
        assert_eq!(of(&[id(2, "before"), id(1, "now")]), (vec!["now".to_owned()], true));
        assert_eq!(of(&[id(2, "before")]), (vec![], false));
        assert!(!of(&[id(1, "now"), id(1, "before")]).1, "a slot that is not in use any more");
    }

    /// The outermost function of most requests says what they are about; of one for a new sandbox it has an id of an earlier
    /// request, which is not believed, and with that of the new one among several nothing is certain.
    #[test]
    fn a_new_sandbox_is_not_an_earlier_one() {
        let known = known(&["old", "new", "other"]);
        let stop = target("StopPodSandbox", &[(1, "new"), (0, "old")], &known);
        assert_eq!((stop.ids, stop.certain), (vec!["new".to_owned()], true));
        let run = target("RunPodSandbox", &[(1, "old"), (0, "new")], &known);
        assert_eq!((run.ids, run.certain), (vec!["new".to_owned()], true));
        let unsure = target("RunPodSandbox", &[(1, "old"), (0, "new"), (0, "other")], &known);
        assert!(unsure.ids.contains(&"new".to_owned()) && !unsure.certain, "{unsure:?}");
        assert_eq!(target("RunPodSandbox", &[(1, "old")], &known).ids, [""; 0]);
    }
}
