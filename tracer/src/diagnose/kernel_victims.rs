//! [`Victim`]: whoever of the node waits in the kernel and is neither late nor a request: a thread of the kubelet, a program that kubelet
//! or runtime have started and that is never late by its age, a shim, a process of a container that SIGKILL does not end. None of them is a thing that does not move as far as
//! [`crate::stuck`] can tell: a daemon has other threads, and how long a mount may take nobody knows. In the kernel it is known.

use super::{
    Culprit, Evidence, Finding, Rule, Scene, Source,
    finding::{self, Explained},
    kubelet_work as work,
};
use crate::{
    correlate::{Age, Known, ProcessSeen, Request, UnkillableSeen, WaitsFor, thresholds::FILE_CALL_NS},
    cri::Method,
    input::{Command, Component, ContainerFact, ParkedThreads},
    stuck::{self, StuckKind, Waiter, with_those_behind},
    words::{self, human},
};

/// One that waits in the kernel, in one and the same call for [`FILE_CALL_NS`] at least.
pub(super) struct Victim<'a> {
    pub(super) pid: u32,
    component: Component,
    container: Option<&'a ContainerFact>,
    pub(super) park: &'a ParkedThreads,
    /// Who that is, as the subject of a sentence.
    pub(super) who: String,
    age: Age,
    held_up: HeldUp,
}

/// Who is held up by it.
struct HeldUp {
    victims: Vec<String>,
    reach: u8,
    evidence: Vec<Evidence>,
    explained: Explained,
    doubt: Option<&'static str>,
    /// Nobody is, as far as is known.
    none: bool,
}

impl Victim<'_> {
    /// Its pod and container, when it works for one.
    pub(super) fn container(&self) -> Option<&ContainerFact> {
        self.container
    }

    /// A finding about it, with itself to blame.
    pub(super) fn finding(&self, rule: &'static Rule, headline: String, culprit: String) -> Finding {
        let mut evidence = vec![Evidence::new(Source::Census, words::park_line(self.park, false))];
        let age = human::duration(self.age.ns);
        evidence.push(Evidence::new(Source::Census, format!("every round for {age} found it in this call")));
        evidence.extend(self.held_up.evidence.iter().cloned());
        let finding = Finding {
            culprit: Some(Culprit {
                component: self.component,
                pid: Some(self.pid),
                container: self.container.cloned(),
                words: culprit,
            }),
            since: Some(self.age),
            victims: self.held_up.victims.clone(),
            reach: self.held_up.reach,
            explained: self.held_up.explained.clone(),
            evidence,
            ..Finding::new(rule, headline)
        };
        let finding = match self.held_up.doubt {
            Some(doubt) => finding.doubted(doubt),
            None => finding,
        };
        if self.held_up.none { finding.into_notice() } else { finding }
    }
}

/// All that wait so.
pub(super) fn find<'a>(scene: &Scene<'a>, is: fn(&ParkedThreads) -> bool) -> Vec<Victim<'a>> {
    let is_told = |pid: u32| {
        scene.stuck().any(|stuck| matches!(stuck.what, StuckKind::Process { pid: told, .. } if told == pid))
    };
    let all = scene.snapshot.census.processes.iter();
    let of_the_node = all.filter(|seen| !is_told(seen.fact.pid)).filter_map(|seen| victim(seen, is, scene));
    of_the_node.chain(unkillable(scene, is)).collect()
}

/// The processes of containers among them.
pub(super) fn unkillable<'a>(
    scene: &Scene<'a>,
    is: fn(&ParkedThreads) -> bool,
) -> impl Iterator<Item = Victim<'a>> {
    let census = &scene.snapshot.census;
    let known = Known::collect(census.round.as_ref(), census.processes.iter());
    let all = census.unkillable.iter().filter(move |seen| is(&seen.fact.park));
    all.filter_map(move |seen| doomed(seen, &known, scene))
}

fn doomed<'a>(seen: &'a UnkillableSeen, known: &Known, scene: &Scene<'a>) -> Option<Victim<'a>> {
    let fact = &seen.fact;
    let age = Age { ns: fact.at_ns.saturating_sub(seen.since.0), at_least: true };
    (age.ns >= FILE_CALL_NS).then(|| Victim {
        pid: fact.pid,
        component: Component::Helper,
        container: fact.container.as_ref(),
        park: &fact.park,
        who: format!("the killed {} (pid {})", words::cut(&fact.comm, 20), fact.pid),
        age,
        held_up: of_container(fact.container.as_ref(), known, scene),
    })
}

/// Who waits for the end of a container: those that stop it, and the pod itself.
fn of_container(container: Option<&ContainerFact>, known: &Known, scene: &Scene<'_>) -> HeldUp {
    let stops = |request: &&Request| {
        let method = request.method();
        let stops = matches!(method, Some(Method::StopContainer | Method::StopPodSandbox));
        stops && container.is_some_and(|of| known.are_of(&request.containers, of) == Some(true))
    };
    let requests = scene.snapshot.census.requests.iter().filter(stops).cloned().collect();
    let waiters = with_those_behind(requests, known, scene.snapshot);
    let lines = waiters.iter().map(words::waiter_line);
    let victims = lines.chain(["the pod stays Terminating until it ends".to_owned()]).collect();
    let killed = "SIGKILL is pending, and the thread is in state D, where no signal ends it";
    HeldUp {
        victims,
        reach: finding::reach(&waiters).max(1),
        evidence: vec![Evidence::new(Source::Census, killed)],
        explained: Explained::of_waiters(&waiters),
        doubt: None,
        none: false,
    }
}

fn victim<'a>(
    seen: &'a ProcessSeen,
    is: fn(&ParkedThreads) -> bool,
    scene: &Scene<'a>,
) -> Option<Victim<'a>> {
    let (thread, park) = seen.waits().filter(|(_, park)| is(park)).min_by_key(|(thread, _)| thread.since)?;
    let age = Age { ns: seen.fact.at_ns.saturating_sub(thread.since.0), at_least: true };
    if age.ns < FILE_CALL_NS {
        return None;
    }
    let (who, held_up) = who(seen, park, scene)?;
    let (pid, component, container) = (seen.fact.pid, seen.fact.component, seen.fact.container.as_ref());
    Some(Victim { pid, component, container, park, who, age, held_up })
}

fn who(seen: &ProcessSeen, park: &ParkedThreads, scene: &Scene<'_>) -> Option<(String, HeldUp)> {
    let fact = &seen.fact;
    match fact.component {
        // Between fork and execve it looks like its parent.
        Component::Kubelet => match starter(seen, scene) {
            Some(server) => {
                Some((format!("a program that the kubelet starts (pid {})", fact.pid), of_child(&server)))
            }
            // That is K5.
            None if park.waits_for_server().is_some() => None,
            None => Some(of_kubelet(seen, scene)),
        },
        Component::Helper => {
            let is_other = matches!(fact.command, None | Some(Command::Other { .. }));
            let server = starter(seen, scene).filter(|_| is_other)?;
            let none = Command::Other { program: String::new() };
            let name = words::command_words(fact.command.as_ref().unwrap_or(&none), &fact.comm);
            Some((format!("{name} (pid {})", fact.pid), of_child(&server)))
        }
        Component::Shim => Some((format!("shim {}", fact.pid), of_shim(seen, scene))),
        _ => None,
    }
}

/// The kubelet or the runtime that started it, with none but programs of its own in between: what runc has started is a hook.
fn starter(seen: &ProcessSeen, scene: &Scene<'_>) -> Option<Waiter> {
    let mut chain = stuck::waiting(seen.fact.parent, scene.snapshot);
    let server = chain.pop()?;
    let component = |waiter: &Waiter| match waiter {
        Waiter::Process { component, .. } => Some(*component),
        Waiter::Requests(_) | Waiter::Relist { .. } => None,
    };
    let serves = component(&server)
        .is_some_and(|component| component == Component::Kubelet || component.role().is_runtime());
    let is_own = |waiter: &Waiter| component(waiter) == Some(Component::Helper);
    (serves && chain.iter().all(is_own)).then_some(server)
}

fn of_child(server: &Waiter) -> HeldUp {
    let victims = vec![words::waiter_line(server)];
    let explained = Explained::default();
    HeldUp { victims, reach: 1, evidence: Vec::new(), explained, doubt: None, none: false }
}

fn of_kubelet(seen: &ProcessSeen, scene: &Scene<'_>) -> (String, HeldUp) {
    let (found, call) = work::Work::worst(seen, scene);
    let (who, victims) = found.words();
    let evidence = call.map(work::goroutine).into_iter().chain(work::relists_go_on(scene)).collect();
    let (reach, doubt, none) = (found.reach(), found.doubt(), !found.holds_up());
    let (victims, explained) = (vec![victims.to_owned()], Explained::default());
    (who.to_owned(), HeldUp { victims, reach, evidence, explained, doubt, none })
}

/// Requests that wait for this shim, for certain.
fn of_shim(seen: &ProcessSeen, scene: &Scene<'_>) -> HeldUp {
    let census = &scene.snapshot.census;
    let known = Known::collect(census.round.as_ref(), census.processes.iter());
    let waits = |request: &&Request| {
        let here = || known.are_of(&request.containers, seen.fact.container.as_ref()?);
        let waits = matches!(request.waits_for, WaitsFor::Shim { .. }) && request.stays;
        waits && request.target_known && here() == Some(true)
    };
    let requests = census.requests.iter().filter(waits).cloned().collect();
    let waiters = with_those_behind(requests, &known, scene.snapshot);
    let evidence = waiters.iter().filter(|waiter| matches!(waiter, Waiter::Requests(_)));
    let evidence =
        evidence.map(|waiter| Evidence::new(Source::Goroutines, words::waiter_line(waiter))).collect();
    let (victims, reach) = (finding::victims(&waiters), finding::reach(&waiters));
    let explained = Explained::of_waiters(&waiters);
    HeldUp { none: victims.is_empty(), victims, reach, evidence, explained, doubt: None }
}
