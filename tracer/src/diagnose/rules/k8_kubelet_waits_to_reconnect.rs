//! K8: the runtime is back, and the kubelet has not connected to it again yet.

use crate::{
    correlate::{Age, LastList, ProcessSeen, TracedProcess, TracedState, thresholds::STILL_NS},
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Reason, Rule, Scene, Source, unit::unit},
    input::{Component, GoroutineGroup},
    stuck::REACH_RELIST,
    words::human::{duration, plural},
};

/// In which a connection of grpc-go waits before its next attempt (`clientconn.go`); parked in a `select` it does nothing else.
const BETWEEN_ATTEMPTS: &str = "google.golang.org/grpc.(*addrConn).resetTransport";
/// The longest wait between two attempts, 120 s and a fifth of chance (grpc-go `backoff.DefaultConfig`), and some room for a
/// runtime that listens a moment after its start.
const LONGEST_NS: u64 = 150_000_000_000;
/// From this version on the kubelet tries every three seconds (Kubernetes PR 118779).
const TRIES_OFTEN: [u32; 2] = [1, 28];

pub(super) static RULE: Rule = Rule {
    id: "K8",
    title: "the runtime is back, but the kubelet waits up to two minutes before it connects again",
    area: Area::Kubelet,
    min_age_ns: STILL_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "While nobody listens on the runtime's socket, the kubelet's gRPC client waits longer after each attempt: \
            1 s, 1.6 s, 2.6 s, up to 120 s. Until the next attempt every call fails at once with the error of the last \
            one, \"connection refused\", although the runtime has long been serving. The longer it was down, the \
            longer this lasts.",
        versions: "kubelet before 1.28; later ones wait 3 s at most (Kubernetes PR 118779)",
        symptoms: &[
            "connection refused, in the kubelet's log, while crictl works",
            "container runtime is down, PLEG is not healthy, for up to two minutes after the runtime was repaired",
        ],
        evidence: &[
            "lists fail, the last good one is older than the runtime, and the runtime listens",
            "a goroutine of the kubelet between two attempts of gRPC to connect",
        ],
        excluded_by: &[
            "the runtime does not run or listen (R15, R9), or does not answer (R14)",
            "the runtime was started more than 150 s ago: then the kubelet has tried since",
            "kubelet 1.28 or later",
        ],
        next: &[
            "wait: it connects again by itself within two and a half minutes of the runtime's start",
            "if that is too long: restart the kubelet, which connects at once",
        ],
        trap: "Do not restart the runtime once more: that changes nothing if the next attempt finds it up, and makes \
            the wait longer if it does not.",
        sources: &[
            "Kubernetes PR 118779",
            "github.com/grpc/grpc/blob/master/doc/connection-backoff.md",
            "reproduced with kubelet 1.20",
        ],
    },
    examine,
};

/// Does the kubelet fail only because it has not connected again?
pub(super) fn explains(scene: &Scene<'_>) -> bool {
    found(scene).is_some()
}

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    found(scene).map(|(runtime, kubelet)| finding(&runtime, &kubelet, scene)).into_iter().collect()
}

fn found<'a>(scene: &Scene<'a>) -> Option<(Serving<'a>, Waiting<'a>)> {
    let fails = scene.reasons().any(|reason| matches!(reason, Reason::ListStale { failing: true, .. }));
    let both = || Some((serving(scene)?, waiting(scene)?));
    fails.then(both).flatten()
}

/// A runtime that serves, started since the last list of the kubelet.
struct Serving<'a> {
    target: &'a TracedProcess,
    age: Age,
    socket: &'a str,
}

fn serving<'a>(scene: &Scene<'a>) -> Option<Serving<'a>> {
    let LastList::At(listed) = scene.snapshot.last_list else { return None };
    let uses_grpc = |target: &&TracedProcess| {
        let kinds = [Component::Containerd, Component::Crio, Component::CriDockerd];
        kinds.contains(&target.fact.component) && target.state == TracedState::Live
    };
    scene.snapshot.targets.iter().filter(uses_grpc).find_map(|target| {
        let seen = process(target, scene)?;
        let started = seen.fact.started_ns.filter(|started| *started > listed.0)?;
        let age = Age { ns: scene.snapshot.now.0.saturating_sub(started), at_least: false };
        let socket = seen
            .fact
            .sockets
            .iter()
            .find(|socket| socket.listening && is_cri(socket.path.as_deref(), target))?;
        let may_wait = (STILL_NS..LONGEST_NS).contains(&age.ns) && seen.still_since.is_none();
        may_wait.then_some(Serving { target, age, socket: socket.path.as_deref()? })
    })
}

/// Is it the socket for the kubelet? A runtime has others, and the path in its configuration may contain a symbolic link.
fn is_cri(path: Option<&str>, target: &TracedProcess) -> bool {
    let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
    target.fact.socket.as_deref().is_none_or(|socket| path.and_then(name) == name(socket))
}

fn process<'a>(target: &TracedProcess, scene: &Scene<'a>) -> Option<&'a ProcessSeen> {
    scene.snapshot.census.processes.iter().find(|seen| seen.fact.pid == target.fact.pid)
}

/// A kubelet some of whose connections are between two attempts.
struct Waiting<'a> {
    target: &'a TracedProcess,
    connections: u32,
    group: &'a GoroutineGroup,
}

fn waiting<'a>(scene: &Scene<'a>) -> Option<Waiting<'a>> {
    let old = |target: &&TracedProcess| {
        let is_kubelet = target.fact.component == Component::Kubelet && target.state == TracedState::Live;
        is_kubelet && !scene.snapshot.version_of(target).is_some_and(tries_often)
    };
    scene.snapshot.targets.iter().filter(old).find_map(|target| {
        let read = scene.snapshot.census.goroutines.iter().find(|read| read.pid == target.fact.pid)?;
        let all = || read.groups.iter().filter(|group| is_between_attempts(group));
        Some(Waiting { target, connections: all().map(|group| group.count).sum(), group: all().next()? })
    })
}

fn is_between_attempts(group: &GoroutineGroup) -> bool {
    innermost(group).is_some_and(|frame| frame.ends_with(BETWEEN_ATTEMPTS))
        && group.wait_reason.as_deref() == Some("select")
}

/// The function that waits, without those of Go's scheduler.
fn innermost(group: &GoroutineGroup) -> Option<&str> {
    group.frames.iter().map(String::as_str).find(|frame| !frame.starts_with("runtime."))
}

/// Is it a kubelet that tries every three seconds?
fn tries_often(version: &str) -> bool {
    let mut parts = version.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().ok());
    let parsed = parts.next().flatten().zip(parts.next().flatten());
    parsed.is_some_and(|(major, minor)| [major, minor] >= TRIES_OFTEN)
}

fn finding(runtime: &Serving<'_>, kubelet: &Waiting<'_>, scene: &Scene<'_>) -> Finding {
    let (name, its) = (runtime.target.fact.component.name(), runtime.target.fact.pid);
    let (pid, age) = (kubelet.target.fact.pid, duration(runtime.age.ns));
    let headline =
        format!("{name} {its} has been back for {age}, but kubelet {pid} has not reconnected to it yet");
    let finding = Finding {
        since: Some(runtime.age),
        culprit: Some(Culprit {
            component: Component::Kubelet,
            pid: Some(pid),
            container: None,
            words: format!("kubelet {pid}: its gRPC client waits before the next attempt to connect"),
        }),
        victims: vec!["every relist, every exec probe, every container start and stop".to_owned()],
        reach: REACH_RELIST,
        evidence: evidence(runtime, kubelet, scene),
        ..Finding::new(&RULE, headline)
    };
    let left = duration(LONGEST_NS.saturating_sub(runtime.age.ns));
    let finding = match scene.snapshot.version_of(kubelet.target) {
        Some(_) => finding,
        None => {
            finding.doubted("the kubelet's version is not known; from 1.28 on it tries every three seconds")
        }
    };
    finding.advise([
        format!("wait: the kubelet connects again by itself within {left} at most"),
        format!("if that is too long: `systemctl restart {}`", unit(Component::Kubelet, scene)),
    ])
}

fn evidence(runtime: &Serving<'_>, kubelet: &Waiting<'_>, scene: &Scene<'_>) -> Vec<Evidence> {
    let (name, its) = (runtime.target.fact.component.name(), runtime.target.fact.pid);
    let (pid, age) = (kubelet.target.fact.pid, duration(runtime.age.ns));
    let connections = plural(u64::from(kubelet.connections), "connection");
    let stack = innermost(kubelet.group).unwrap_or_default();
    let between = format!("kubelet {pid}: {connections} between two attempts, in {stack}");
    let listens = format!("{name} {its} was started {age} ago, and listens on {}", runtime.socket);
    let component = runtime.target.fact.component;
    let gone = super::r15_runtime_down::gone(scene).filter(|(target, ..)| target.fact.component == component);
    let gone =
        gone.map(|(target, age, how)| format!("{name} {} {how}, {} ago", target.fact.pid, duration(age.ns)));
    let gone = gone.map(|text| Evidence::new(Source::Processes, text));
    let all = [Evidence::new(Source::Census, listens), Evidence::new(Source::Goroutines, between)];
    all.into_iter().chain(gone).collect()
}
