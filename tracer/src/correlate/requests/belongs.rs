//! Which program ran for which request, by evidence only.
//!
//! A program can have been started by every request that was in flight at its start and makes the runtime run such
//! programs. It belongs to one of them when the others are impossible, or when only that one is about its container. A
//! request about one container has programs of one container only: what contradicts that belongs to no request. What is
//! found out about the container of a request can make others impossible, so this is repeated. Everything else is left
//! out, and counted with each request that it might belong to.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::starts::{id_proves, is_of_runtime, is_once, may_start};
use crate::{
    correlate::processes::{ProcessKind, Run},
    cri::{Method, Proof},
    decode::MonoNs,
};

/// More requests at once than this are not told apart.
const MAX_AT_ONCE: usize = 64;
/// What one round finds out can help the next; more rounds than this are not made.
const ROUNDS: usize = 8;

/// A request that can have started programs.
#[derive(Clone, Debug)]
pub(in crate::correlate) struct Asker {
    pub(in crate::correlate) method: Method,
    /// Process and goroutine that serve it.
    pub(in crate::correlate) on: (u32, u64),
    /// When it began; 0: before the probes.
    pub(in crate::correlate) start: MonoNs,
    pub(in crate::correlate) end: Option<MonoNs>,
    /// Container or sandbox it is about, where that is certain.
    pub(in crate::correlate) id: Option<String>,
}

impl Asker {
    /// From then on it starts nothing.
    pub(in crate::correlate) fn lasts_to(&self) -> MonoNs {
        self.end.map_or(MonoNs(u64::MAX), |end| end.plus(self.method.facts().starts_later_ns))
    }
}

/// What belongs to whom.
#[derive(Debug, Default)]
pub(in crate::correlate) struct Belongs {
    /// The request of each program.
    pub(in crate::correlate) of: Vec<Option<usize>>,
    /// Programs that might belong to each request.
    pub(in crate::correlate) doubts: Vec<u64>,
}

/// Finds the request of each of `runs`. Both are sorted by start; what is found out about containers is put into
/// `askers`. Requests of a sort that ended at `forgotten` or before are no longer all known.
pub(in crate::correlate) fn find(
    runs: &[Arc<Run>],
    askers: &mut [Asker],
    forgotten: &dyn Fn(Method) -> MonoNs,
) -> Belongs {
    let mut possible = in_flight(runs, askers);
    let mut found = Belongs { of: vec![None; runs.len()], doubts: vec![0; askers.len()] };
    let mut have: HashMap<usize, Vec<usize>> = HashMap::new();
    let sure = |run: usize, askers: &[Asker]| {
        let all: &[usize] = &possible[run];
        let known = |&asker: &usize| forgotten(askers[asker].method) < runs[run].start;
        (1..=MAX_AT_ONCE).contains(&all.len()) && all.iter().all(known)
    };
    let mut open: Vec<usize> = (0..runs.len()).filter(|&run| sure(run, askers)).collect();
    for _ in 0..ROUNDS {
        let mut said: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        open.retain(|&run| {
            possible[run].retain(|&asker| about(&askers[asker], &runs[run]) != Some(false));
            let asker = only(&runs[run], &possible[run], askers);
            asker.map(|asker| said.entry(asker).or_default().push(run)).is_none()
        });
        if said.is_empty() {
            break;
        }
        for (asker, mine) in said {
            let all = have.entry(asker).or_default();
            all.extend(&mine);
            let all: Vec<&Run> = all.iter().map(|&run| &*runs[run]).collect();
            let sound = |run: &&usize| !contradicted(&runs[**run], &all, &askers[asker]);
            let mine: Vec<usize> = mine.iter().filter(sound).copied().collect();
            mine.iter().for_each(|&run| found.of[run] = Some(asker));
            learn(&mut askers[asker], mine.iter().map(|&run| &*runs[run]));
        }
    }
    for (possible, _) in possible.iter().zip(&found.of).filter(|(_, of)| of.is_none()) {
        possible.iter().for_each(|&asker| found.doubts[asker] += 1);
    }
    found
}

/// For each program the requests in flight at its start that may have started it.
fn in_flight(runs: &[Arc<Run>], askers: &[Asker]) -> Vec<Vec<usize>> {
    let (mut active, mut next): (Vec<usize>, usize) = (Vec::new(), 0);
    let mut possible = Vec::with_capacity(runs.len());
    for run in runs {
        while next < askers.len() && askers[next].start <= run.start {
            active.push(next);
            next += 1;
        }
        active.retain(|&asker| askers[asker].lasts_to() >= run.start);
        let fits = |asker: &&usize| {
            let asker = &askers[**asker];
            may_start(asker.method, run).is_some() && is_of_runtime(run, asker.on.0)
        };
        possible.push(active.iter().filter(fits).take(MAX_AT_ONCE + 1).copied().collect());
    }
    possible
}

/// Is a request about the container of a program? `None`: not known.
fn about(asker: &Asker, run: &Run) -> Option<bool> {
    let (id, container) = (asker.id.as_ref()?, run.container.as_ref()?);
    if id == container {
        return Some(true);
    }
    // A pod has more containers than its sandbox.
    let pod = run.pod.as_ref().filter(|_| asker.method.is_of_pod());
    pod.map_or_else(|| if asker.method.is_of_pod() { None } else { Some(false) }, |pod| Some(pod == id))
}

/// The only request that can have started a program.
fn only(run: &Run, possible: &[usize], askers: &[Asker]) -> Option<usize> {
    let named =
        |asker: &&usize| about(&askers[**asker], run) == Some(true) && id_proves(askers[**asker].method, run);
    let mut by_id = possible.iter().filter(named);
    if let (Some(&asker), None) = (by_id.next(), by_id.next()) {
        return Some(asker);
    }
    let &[asker] = possible else { return None };
    let proved = match may_start(askers[asker].method, run)? {
        Proof::OnlyCandidate => true,
        Proof::SameContainer => about(&askers[asker], run) == Some(true),
    };
    proved.then_some(asker)
}

/// Does something else that seems to belong to the request speak against this program?
fn contradicted(run: &Run, all: &[&Run], asker: &Asker) -> bool {
    let twice = is_once(run) && all.iter().filter(|other| other.kind == run.kind).count() > 1;
    let container = |run: &Run| run.container.clone();
    let other_id = asker.id.is_none()
        && !asker.method.is_of_pod()
        && all.iter().any(|other| {
            container(other).is_some() && container(run).is_some() && container(other) != container(run)
        });
    twice || other_id
}

/// The container of what a request runs is what it is about; of a pod only its network is.
fn learn<'a>(asker: &mut Asker, mut runs: impl Iterator<Item = &'a Run>) {
    if asker.id.is_none() {
        let network = |run: &Run| matches!(run.kind, ProcessKind::Cni { .. });
        asker.id = if asker.method.is_of_pod() {
            runs.find(|run| network(run)).and_then(|run| run.container.clone())
        } else {
            runs.find_map(|run| run.container.clone())
        };
    }
}

#[cfg(test)]
mod tests {
    use plegtrace_common::role::Role;

    use super::*;
    use crate::correlate::OciRuntime;

    const RUNTIME: u32 = 800;

    /// A program, whose container and begin are told.
    fn run(kind: ProcessKind, container: &str, start: u64) -> Arc<Run> {
        let (parent, parent_role) = match &kind {
            ProcessKind::Runc { .. } => (900, Role::Shim),
            _ => (RUNTIME, Role::Containerd),
        };
        let container = (!container.is_empty()).then(|| container.to_owned());
        let (pid, start) = (u32::try_from(start).unwrap(), MonoNs(start));
        Arc::new(Run { pid, kind, container, pod: None, parent: Some(parent), parent_role, start, end: None })
    }

    fn runc(sub: &str, container: &str, start: u64) -> Arc<Run> {
        run(ProcessKind::Runc { by: OciRuntime::Runc, sub: sub.into() }, container, start)
    }

    fn cni(action: &str, container: &str, start: u64) -> Arc<Run> {
        run(ProcessKind::Cni { plugin: "bridge".into(), action: Some(action.into()) }, container, start)
    }

    fn asker(method: Method, start: u64, end: u64, id: Option<&str>) -> Asker {
        let end = (end > 0).then_some(MonoNs(end));
        Asker { method, on: (RUNTIME, start), start: MonoNs(start), end, id: id.map(str::to_owned) }
    }

    fn find(runs: &[Arc<Run>], askers: &mut [Asker]) -> (Vec<Option<usize>>, Vec<u64>) {
        let found = super::find(runs, askers, &|_| MonoNs(0));
        (found.of, found.doubts)
    }

    /// The only request in flight that runs such programs has them; what began outside of it, is of another sort, or was
    /// started by another runtime has not.
    #[test]
    fn alone() {
        let mut askers = [
            asker(Method::RunPodSandbox, 10, 100, None),
            asker(Method::UpdateContainerResources, 20, 0, None),
        ];
        let elsewhere = Arc::new(Run { parent: Some(801), ..(*cni("ADD", "s", 31)).clone() });
        let runs = [
            cni("ADD", "s", 5),
            cni("ADD", "s", 30),
            elsewhere,
            runc("exec", "s", 40),
            runc("create", "s", 50),
            cni("DEL", "s", 120),
        ];
        let (of, doubts) = find(&runs, &mut askers);
        assert_eq!(of, [None, Some(0), None, None, Some(0), None]);
        assert_eq!((doubts, askers[0].id.as_deref()), (vec![0, 0], Some("s")));
    }

    /// What two requests could have started is nobody's, and counted with both.
    #[test]
    fn ambiguous() {
        let mut askers =
            [asker(Method::RunPodSandbox, 10, 100, None), asker(Method::RunPodSandbox, 20, 0, None)];
        let (of, doubts) = find(&[cni("ADD", "a", 30)], &mut askers);
        assert_eq!((of, doubts), (vec![None], vec![1, 1]));
    }

    /// A program that only one of two can have started tells what that one is about, and so whose the others are.
    #[test]
    fn what_is_known_of_one_tells_the_other() {
        let mut askers =
            [asker(Method::RunPodSandbox, 10, 100, None), asker(Method::RunPodSandbox, 20, 0, None)];
        let runs =
            [cni("ADD", "a", 15), cni("ADD", "b", 30), runc("create", "a", 40), runc("create", "b", 50)];
        assert_eq!(find(&runs, &mut askers).0, [Some(0), Some(1), Some(0), Some(1)]);
        let mut told = [
            asker(Method::UpdateContainerResources, 10, 0, Some("a")),
            asker(Method::UpdateContainerResources, 12, 0, Some("b")),
        ];
        assert_eq!(find(&[runc("update", "b", 20), runc("update", "c", 25)], &mut told).0, [Some(1), None]);
    }

    /// One request is about one container, and runs some programs only once: what contradicts that is nobody's.
    #[test]
    fn contradictions() {
        let mut sandbox = [asker(Method::RunPodSandbox, 10, 0, None)];
        assert_eq!(find(&[cni("ADD", "a", 15), cni("ADD", "b", 30)], &mut sandbox).0, [None, None]);
        let mut exec = [asker(Method::ExecSync, 10, 0, None)];
        assert_eq!(find(&[runc("exec", "c", 15), runc("exec", "c", 30)], &mut exec).0, [None, None]);
        let mut other = [asker(Method::StopContainer, 10, 0, Some("a"))];
        let (of, doubts) = find(&[runc("kill", "b", 15)], &mut other);
        assert_eq!((of, doubts), (vec![None], vec![0]), "it is known to be another's");
    }

    /// A runtime deletes by itself what has ended: only the container tells whose that is.
    #[test]
    fn a_deletion_needs_its_container() {
        let runs = [runc("kill", "c", 15), runc("delete", "c", 20), runc("delete", "d", 25)];
        let mut stop = [asker(Method::StopContainer, 10, 0, None)];
        assert_eq!(find(&runs, &mut stop).0, [Some(0), Some(0), None]);
        let mut unknown = [asker(Method::StopContainer, 10, 0, None)];
        assert_eq!(find(&runs[1..], &mut unknown), (vec![None, None], vec![2]));
    }

    /// A pod has more containers than its sandbox, known by their shim.
    #[test]
    fn containers_of_a_pod() {
        let kill = |container: &str, pod: &str, start| {
            Arc::new(Run { pod: Some(pod.into()), ..(*runc("kill", container, start)).clone() })
        };
        let runs = [cni("DEL", "s", 15), kill("c", "s", 20), kill("d", "t", 25)];
        let mut stop = [asker(Method::StopPodSandbox, 10, 0, None)];
        assert_eq!(find(&runs, &mut stop).0[..2], [Some(0), Some(0)]);
        let mut told = [asker(Method::StopPodSandbox, 10, 0, Some("s"))];
        assert_eq!(find(&runs, &mut told).0, [Some(0), Some(0), None]);
    }

    /// A stream may begin long after it was asked for: until then a command may be its.
    #[test]
    fn streams_begin_later() {
        let mut askers = [asker(Method::Exec, 10, 12, None), asker(Method::ExecSync, 20, 90, None)];
        assert_eq!(find(&[runc("exec", "c", 30)], &mut askers), (vec![None], vec![1, 1]));
    }

    /// Where requests were forgotten, or are too many, nothing is certain.
    #[test]
    fn what_is_forgotten_may_have_been_it() {
        let runs = [runc("exec", "c", 30)];
        let mut one = [asker(Method::ExecSync, 20, 90, None)];
        assert_eq!(super::find(&runs, &mut one, &|_| MonoNs(30)).of, [None]);
        assert_eq!(super::find(&runs, &mut one, &|_| MonoNs(29)).of, [Some(0)]);
        let mut crowd: Vec<Asker> =
            (1..=100).map(|n| asker(Method::UpdateContainerResources, n, 0, Some("c"))).collect();
        assert_eq!(find(&[runc("update", "c", 200)], &mut crowd).0, [None]);
    }
}
