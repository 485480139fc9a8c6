//! [`Unmount`]: a process of the node in one and the same `umount2`, whose container's root it is, and who waits for its end. Why it
//! lasts is the business of the rules: an overlay that is written to the disk first (R3), or whatever else the kernel waits for (S5).

use super::{
    Culprit, Evidence, Finding, Rule, Scene, Source,
    finding::{self, Explained},
    kernel_wait::access,
};
use crate::{
    correlate::{Age, BlockedThread, Known, OpenMessage, ProcessSeen, Request, WaitsFor},
    cri::Method,
    input::{Component, ContainerFact, ParkedThreads},
    stuck::{Stuck, StuckKind, Waiter, with_those_behind},
    words::{self, human, of_pod},
};

/// Requests that do not end before the task of their container is deleted, which its unmount is part of.
const ENDS: [Method; 4] =
    [Method::StopContainer, Method::StopPodSandbox, Method::RemoveContainer, Method::RemovePodSandbox];

/// An unmount that lasts.
pub(super) struct Unmount<'a> {
    pub(super) seen: &'a ProcessSeen,
    pub(super) park: &'a ParkedThreads,
    pub(super) age: Age,
    /// The container whose root it is, when the path tells.
    pub(super) container: Option<ContainerFact>,
}

impl<'a> Unmount<'a> {
    /// All that have lasted for so long, of processes that unmount what containers have: the oldest of each that `is` meant.
    pub(super) fn all(
        scene: &Scene<'a>,
        known: &Known,
        min_age_ns: u64,
        is: fn(&ParkedThreads) -> bool,
    ) -> Vec<Self> {
        let all = scene.snapshot.census.processes.iter();
        all.filter_map(|seen| Self::of(seen, known, is)).filter(|it| it.age.ns >= min_age_ns).collect()
    }

    fn of(seen: &'a ProcessSeen, known: &Known, is: fn(&ParkedThreads) -> bool) -> Option<Self> {
        let component = seen.fact.component;
        let unmounts =
            component.role().is_runtime() || matches!(component, Component::Shim | Component::Runc);
        let meant = seen.unmounts().filter(|(_, park)| unmounts && is(park));
        let (thread, park) = meant.min_by_key(|(thread, _): &(BlockedThread, _)| thread.since)?;
        let age = Age { ns: seen.fact.at_ns.saturating_sub(thread.since.0), at_least: true };
        let path = park.syscall.as_ref().and_then(|call| call.path.as_deref()).unwrap_or_default();
        let container = path.rsplit('/').find_map(|part| known.get(part)).cloned();
        Some(Self { seen, park, age, container })
    }

    /// `shim 24141 of default/p3`.
    pub(super) fn who(&self) -> String {
        let fact = &self.seen.fact;
        let container = self.container.as_ref().or(fact.container.as_ref());
        format!("{} {}{}", fact.component.name(), fact.pid, of_pod(container))
    }

    /// With who unmounts to blame, and who waits for it: the nearest first.
    pub(super) fn finding(
        &self,
        rule: &'static Rule,
        headline: String,
        waiters: &[Waiter],
        scene: &Scene<'_>,
    ) -> Finding {
        let (fact, unreported) = (&self.seen.fact, self.unreported(scene));
        let culprit = Culprit {
            component: fact.component,
            pid: Some(fact.pid),
            container: self.container.as_ref().or(fact.container.as_ref()).cloned(),
            words: format!("{}, in {}", self.who(), access(self.park)),
        };
        let mut held_up = finding::victims(waiters);
        if unreported.is_some() {
            held_up.push("the kubelet, to which the container still runs".to_owned());
        }
        Finding {
            culprit: Some(culprit),
            behind: unreported,
            since: Some(self.age),
            victims: held_up,
            reach: finding::reach(waiters),
            evidence: self.evidence(waiters),
            explained: Explained::of_waiters(waiters),
            ..Finding::new(rule, headline)
        }
    }

    /// Who waits, in which call, and for how long.
    fn evidence(&self, waiters: &[Waiter]) -> Vec<Evidence> {
        let requests = waiters.iter().filter(|waiter| matches!(waiter, Waiter::Requests(_)));
        let mut all: Vec<Evidence> =
            requests.map(|waiter| Evidence::new(Source::Goroutines, words::waiter_line(waiter))).collect();
        all.push(Evidence::new(Source::Census, words::park_line(self.park, false)));
        let age = human::duration(self.age.ns);
        all.push(Evidence::new(Source::Census, format!("every round for {age} found it in this call")));
        all
    }

    /// Does this request wait for its end? `None`: not enough is known of the request.
    pub(super) fn holds_up(&self, request: &Request, known: &Known) -> Option<bool> {
        if request.pid == self.seen.fact.pid {
            let calls = request.frames.iter().take(3).any(|frame| frame.contains("yscall"));
            return Some(calls && request.frames.iter().any(|frame| frame.contains("nmount")));
        }
        let Some(container) = self.container.as_ref() else { return Some(false) };
        let ends = request.method().is_some_and(|method| ENDS.contains(&method));
        let asks = matches!(request.waits_for, WaitsFor::Shim { .. });
        if !ends && !asks {
            return Some(false);
        }
        if !request.target_known {
            return None;
        }
        let exactly = || request.containers.iter().all(|target| target.id == container.id);
        Some((ends || exactly()) && known.are_of(&request.containers, container) == Some(true))
    }

    /// The process itself, when it should have ended long ago: a shim that cleans up after another, or runc.
    pub(super) fn late<'s>(&self, scene: &Scene<'s>) -> Option<&'s Stuck> {
        let is_own = |stuck: &&Stuck| {
            matches!(stuck.what, StuckKind::Process { .. }) && stuck.what.pid() == self.seen.fact.pid
        };
        scene.stuck().find(is_own)
    }

    /// Who waits: whoever waits for the process, requests, and those behind them.
    pub(super) fn waiters(&self, known: &Known, scene: &Scene<'_>) -> Vec<Waiter> {
        let mut all = self.late(scene).map_or_else(Vec::new, |stuck| stuck.waiters.clone());
        let requests = scene.snapshot.census.requests.iter();
        let requests = requests.filter(|request| {
            request.component.role().is_runtime() && self.holds_up(request, known) == Some(true)
        });
        let listed = |all: &[Waiter], waiter: &Waiter| match waiter {
            Waiter::Requests(request) => {
                all.iter().any(|listed| matches!(listed, Waiter::Requests(other) if other.is(request)))
            }
            Waiter::Relist { .. } => all.iter().any(|listed| matches!(listed, Waiter::Relist { .. })),
            Waiter::Process { .. } => true,
        };
        for waiter in with_those_behind(requests.cloned().collect(), known, scene.snapshot) {
            if !listed(&all, &waiter) {
                all.push(waiter);
            }
        }
        all
    }

    /// The process that has ended, and of which the runtime says that it runs, because its container is not deleted yet.
    pub(super) fn unreported(&self, scene: &Scene<'_>) -> Option<u32> {
        let container = self.container.as_ref()?;
        scene.stuck().find_map(|stuck| match &stuck.what {
            StuckKind::Unreported { id, exec: None, pid, .. } if *id == container.id => Some(*pid),
            _ => None,
        })
    }
}

/// The request by which the runtime has a task of this shim deleted, as the socket between the two shows it.
pub(super) fn open_delete<'s>(shim: u32, scene: &Scene<'s>) -> Option<&'s OpenMessage> {
    let deletes = |message: &&OpenMessage| {
        let fact = &message.fact;
        fact.answerer == shim && fact.method == "Delete" && fact.service.ends_with(".Task") && !fact.over
    };
    scene.snapshot.messages.open.iter().filter(deletes).max_by_key(|message| message.age_ns)
}
