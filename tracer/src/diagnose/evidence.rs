//! [`Evidence`]: one observation that speaks for a finding, and where it comes from.

use super::Scene;
use crate::{
    correlate::{OpenCall, Relist},
    input::{Component, Layer, ParkedThreads},
    span::Span,
    stuck::{Stuck, StuckKind, Waiter},
    words::{self, human::duration},
};

/// One observation. The text is raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// What was seen, with figures.
    pub text: String,
    /// By what.
    pub source: Source,
}

/// What saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Probes on functions of kubelet or runtime.
    Uprobes,
    /// Births and ends of processes.
    Processes,
    /// The processes, sockets and cgroups as the census found them.
    Census,
    /// Stacks of goroutines.
    Goroutines,
    /// What processes write to sockets, and the queues of those.
    Wire,
    /// Counters of the scheduler: of threads, of cgroups, of the node.
    Scheduler,
}

impl Source {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uprobes => "uprobes",
            Self::Processes => "processes",
            Self::Census => "census",
            Self::Goroutines => "goroutines",
            Self::Wire => "wire",
            Self::Scheduler => "scheduler",
        }
    }
}

impl Evidence {
    /// An observation.
    pub(super) fn new(source: Source, text: impl Into<String>) -> Self {
        Self { text: text.into(), source }
    }
}

/// Parks shown as evidence: one can be chance, the third tells nothing new.
const PARKS: usize = 2;

/// All that speaks for a thing that does not move: the relist, who waits, where it stands.
pub(super) fn of_stuck(stuck: &Stuck, scene: &Scene<'_>) -> Vec<Evidence> {
    let mut all = Vec::new();
    if stuck.waiters.iter().any(|waiter| matches!(waiter, Waiter::Relist { .. })) {
        all.extend(of_relist(scene).or_else(|| of_relist_goroutine(scene)));
    }
    for waiter in &stuck.waiters {
        if let Waiter::Requests(_) = waiter {
            all.push(Evidence::new(Source::Goroutines, words::waiter_line(waiter)));
        }
    }
    let parents = stuck.waiters.iter().filter(|waiter| matches!(waiter, Waiter::Process { .. }));
    let parents: Vec<String> = parents.map(words::waiter_line).collect();
    if !parents.is_empty() {
        all.push(Evidence::new(Source::Census, format!("{} for it", waits(&parents))));
    }
    let source = if matches!(stuck.what, StuckKind::Bus(_)) { Source::Wire } else { Source::Census };
    all.push(Evidence::new(source, words::what(stuck)));
    all.extend(of_phases(stuck));
    // Where stopped threads were when they were stopped says little.
    if !matches!(stuck.what, StuckKind::Stopped { .. } | StuckKind::Frozen { .. }) {
        let parks = stuck.parks.iter().take(PARKS);
        all.extend(parks.map(|park| Evidence::new(Source::Census, words::park_line(park, false))));
    }
    let sockets = stuck.sockets.iter().take(PARKS);
    all.extend(sockets.map(|socket| Evidence::new(Source::Census, words::socket_line(socket))));
    all
}

/// `runc kill 4711 is in systemd.startUnit (…), 30.9 s`.
fn of_phases(stuck: &Stuck) -> Option<Evidence> {
    let StuckKind::Process { command, comm, .. } = &stuck.what else { return None };
    let phase = words::phase(&stuck.phases)?;
    let text = format!("{} is in {phase}", words::command_words(command, comm));
    Some(Evidence::new(Source::Uprobes, text))
}

fn waits(names: &[String]) -> String {
    let verb = if names.len() == 1 { "waits" } else { "wait" };
    format!("{} {verb}", names.join(", "))
}

/// `relist open 31.4 s, waiting in ListContainers 31.3 s; ListPodSandbox before it took 1.1 ms`.
pub(super) fn of_relist(scene: &Scene<'_>) -> Option<Evidence> {
    let relist = scene.open_relist()?;
    let now = scene.snapshot.now;
    let mut text = format!("relist open {}", duration(relist.root().duration_ns(now)));
    match innermost_call(relist) {
        Some(call) => {
            text.push_str(&format!(", waiting in {} {}", call.operation(), duration(call.duration_ns(now))));
        }
        None => text.push_str(", in no call"),
    }
    let calls = relist.root().walk().filter(|span| is_client(span) && !span.is_open());
    if let Some(last) = calls.max_by_key(|span| span.start()) {
        let took = duration(last.duration_ns(now));
        text.push_str(&format!("; {} before it took {took}", last.operation()));
    }
    Some(Evidence::new(Source::Uprobes, text))
}

/// A relist that began before the probes.
fn of_relist_goroutine(scene: &Scene<'_>) -> Option<Evidence> {
    let relist = scene.requests(Component::Kubelet).find(|request| request.is_relist())?;
    Some(Evidence::new(
        Source::Goroutines,
        format!("{}: {}", words::requests(relist), words::waits_for(relist)),
    ))
}

/// The client call in which a relist waits.
pub(super) fn innermost_call(relist: &Relist) -> Option<&Span> {
    relist.root().walk().find(|span| span.is_open() && is_client(span))
}

fn is_client(span: &Span) -> bool {
    span.layer() == Layer::KubeletCall
}

/// `StopContainer in containerd open 2 min 3 s`.
pub(super) fn of_call(call: &OpenCall) -> Evidence {
    let (operation, component) = (call.span.operation(), call.span.component().name());
    let text = format!("{operation} in {component} open {}", duration(call.age_ns));
    Evidence::new(Source::Uprobes, text)
}

/// Is a thread parked in this system call?
pub(super) fn in_syscall<'a>(parks: &'a [ParkedThreads], names: &[&str]) -> Option<&'a ParkedThreads> {
    parks.iter().find(|park| {
        let name = park.syscall.as_ref().and_then(|syscall| syscall.name.as_deref());
        name.is_some_and(|name| names.contains(&name))
    })
}
