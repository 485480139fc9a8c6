//! Since when, who suffers, what becomes of the node; who looked, and how well.

use std::collections::BTreeMap;

use super::View;
use crate::{
    correlate::{
        LastList, OciRuntime, ProcessKind, Request, Snapshot, TracedProcess, TracedState,
        thresholds::SECOND_NS,
    },
    cri::Method,
    decode::MonoNs,
    diagnose::{Finding, Reason, Since, Verdict},
    input::{Command, Component, VersionFact},
    render::{
        escape,
        human::{self, duration},
    },
    stuck::{REACH_RELIST, Stuck, StuckKind, Waiter},
};

/// `02:41:43Z or earlier, 5.1 s ago`.
pub(in crate::render) fn since(snapshot: &Snapshot, since: Since) -> String {
    let earlier = if since.or_before { " or earlier" } else { "" };
    let ago = duration(snapshot.now.since(since.at));
    format!("{}{earlier}, {ago} ago", human::clock(snapshot.wall_ns(since.at)))
}

/// The same, and for how long no list has succeeded.
pub(super) fn since_line(view: View<'_>) -> Option<String> {
    let (snapshot, diagnosis) = (view.snapshot, view.diagnosis);
    let text = since(snapshot, diagnosis.since?);
    let none = match snapshot.last_list {
        LastList::At(at) => Some(snapshot.now.since(at)).filter(|ns| *ns >= snapshot.pace().late_ns),
        LastList::NotSince(at) => Some(snapshot.now.since(at)),
        LastList::Untraced => None,
    };
    Some(match none {
        Some(ns) => format!("{text}; no list has succeeded for {}", duration(ns)),
        None => text,
    })
}

/// What the node does not do because of it.
pub(super) fn hits(view: View<'_>) -> Option<String> {
    let diagnosis = view.diagnosis;
    let Some(finding) = diagnosis.accused().first() else {
        let of_stuck = || {
            let all = effects(diagnosis.stuck.first()?);
            (!all.is_empty()).then(|| all.join("; "))
        };
        return diagnosis.reasons.first().and_then(of_reason).map(str::to_owned).or_else(of_stuck);
    };
    if finding.reach == REACH_RELIST {
        let is_runtime =
            finding.culprit.as_ref().is_some_and(|culprit| culprit.component.role().is_runtime());
        return Some(
            match () {
                () if is_kubelet_halted(view) => KUBELET,
                () if is_runtime && halts(finding, &diagnosis.stuck) => RUNTIME,
                () => RELIST,
            }
            .to_owned(),
        );
    }
    let stuck = stuck_of(finding, &diagnosis.stuck);
    let effects = stuck.map(effects).unwrap_or_default();
    if effects.is_empty() { victims(finding) } else { Some(effects.join("; ")) }
}

const KUBELET: &str = "no relist, no probe, no node status; running containers go on";
const RUNTIME: &str = "no CRI call returns: no pod starts or stops; running containers go on";
const RELIST: &str = "the kubelet sees no container start or exit; running containers go on";

fn of_reason(reason: &Reason) -> Option<&'static str> {
    match reason {
        Reason::Down { component: Component::Kubelet, .. } => Some(KUBELET),
        Reason::Down { .. } => Some(RUNTIME),
        Reason::RelistOpen { of_pod: false, .. } | Reason::ListStale { .. } => Some(RELIST),
        _ => None,
    }
}

fn victims(finding: &Finding) -> Option<String> {
    (!finding.victims.is_empty()).then(|| escape::line(&finding.victims.join("; ")))
}

/// The thing that does not move and that a finding is about.
pub(super) fn stuck_of<'a>(finding: &Finding, all: &'a [Stuck]) -> Option<&'a Stuck> {
    let pid = finding.culprit.as_ref().and_then(|culprit| culprit.pid);
    let is_it = |pid: Option<u32>| all.iter().find(|stuck| Some(stuck.what.pid()) == pid && pid.is_some());
    is_it(finding.behind).or_else(|| is_it(pid))
}

/// Is the runtime itself stopped, or not there?
fn halts(finding: &Finding, stuck: &[Stuck]) -> bool {
    let pid = finding.culprit.as_ref().and_then(|culprit| culprit.pid);
    let is_halted = |stuck: &Stuck| {
        let halted = matches!(stuck.what, StuckKind::Stopped { .. } | StuckKind::Frozen { .. });
        halted && Some(stuck.what.pid()) == pid
    };
    pid.is_none() || stuck.iter().any(is_halted)
}

/// What those who wait mean for pods, each once: requests, else the commands that were run for some.
fn effects(stuck: &Stuck) -> Vec<&'static str> {
    let of_waiter = |waiter: &Waiter| match waiter {
        Waiter::Requests(request) => request.method().and_then(effect),
        Waiter::Process { .. } | Waiter::Relist { .. } => None,
    };
    let commands = stuck.waiters.iter().filter_map(|waiter| match waiter {
        Waiter::Process { command, .. } => command.as_ref(),
        _ => None,
    });
    let own = match &stuck.what {
        StuckKind::Process { command, .. } => Some(command),
        _ => None,
    };
    if let StuckKind::Loop(stall) = &stuck.what {
        return vec![stall.oldest.kind.stops()];
    }
    let mut all: Vec<&str> = stuck.waiters.iter().filter_map(of_waiter).collect();
    if all.is_empty() {
        all.extend(own.into_iter().chain(commands).filter_map(effect_of_command));
    }
    let mut seen = Vec::new();
    all.retain(|effect| {
        !seen.contains(effect) && {
            seen.push(*effect);
            true
        }
    });
    all
}

fn effect_of_command(command: &Command) -> Option<&'static str> {
    let method = match command {
        Command::Runc { sub, .. } => match sub.as_str() {
            "create" | "start" | "init" => Method::StartContainer,
            "exec" => Method::ExecSync,
            "kill" | "delete" => Method::StopContainer,
            "update" => Method::UpdateContainerResources,
            _ => return None,
        },
        Command::Cni { action: Some(action), .. } if action == "ADD" => Method::RunPodSandbox,
        Command::Cni { action: Some(action), .. } if action == "DEL" => Method::StopPodSandbox,
        _ => return None,
    };
    effect(method)
}

fn effect(method: Method) -> Option<&'static str> {
    Some(match method {
        Method::RunPodSandbox => "its pod does not start",
        Method::CreateContainer | Method::StartContainer => "its container does not start",
        Method::StopPodSandbox
        | Method::RemovePodSandbox
        | Method::StopContainer
        | Method::RemoveContainer => "its pod stays Terminating",
        Method::ExecSync => "exec probes of its pod fail",
        Method::PullImage => "pods wait for the image",
        Method::UpdateContainerResources => "the container's limits stay as they were",
        Method::Status => "the kubelet reports the container runtime as down",
        _ => return None,
    })
}

/// How long the kubelet does without an answer to Status before it reports that the container runtime is down
/// (`maxWaitForContainerRuntime`, pkg/kubelet/kubelet.go, in all versions from 1.9 on), nanoseconds.
const RUNTIME_DOWN_NS: u64 = 30 * SECOND_NS;

/// When the kubelet reports the node, as a time of day.
pub(super) fn node(view: View<'_>) -> String {
    let snapshot = view.snapshot;
    if is_kubelet_halted(view) {
        // node-monitor-grace-period of the controller manager: kubernetes PR 126287.
        return "NotReady 40 s after its last heartbeat (50 s from Kubernetes 1.32)".to_owned();
    }
    let clock = |at: MonoNs| human::clock(snapshot.wall_ns(at));
    if let Some(since) = no_status_since(view) {
        let at = since.plus(RUNTIME_DOWN_NS);
        return format!("NotReady from about {}: \"container runtime is down\"", clock(at));
    }
    let (now, pace) = (snapshot.now, snapshot.pace());
    let is_late = lists_wait(view);
    let (at, earlier) = match snapshot.last_list {
        LastList::At(at) if !is_late && now.since(at) < pace.late_ns => {
            return format!("lists succeed, the last one {} ago", duration(now.since(at)));
        }
        LastList::At(at) => (at, ""),
        LastList::NotSince(at) => (at, " or earlier"),
        LastList::Untraced => {
            return "relists are not traced: whether it turns NotReady is not known".to_owned();
        }
    };
    let limit = at.plus(pace.threshold_ns);
    if limit < now {
        return format!("NotReady since {}{earlier}: \"PLEG is not healthy\"", clock(limit));
    }
    let left = duration(limit.since(now));
    format!("NotReady by {} (in {left}) unless a list succeeds", clock(limit))
}

/// Does the next list wait, whenever the last one was?
fn lists_wait(view: View<'_>) -> bool {
    let reaches = view.diagnosis.verdict == Verdict::Stall
        && view.diagnosis.accused().first().is_some_and(|finding| finding.reach == REACH_RELIST);
    let is_relist = |reason: &Reason| {
        matches!(
            reason,
            Reason::RelistOpen { of_pod: false, .. } | Reason::ListStale { .. } | Reason::Down { .. }
        )
    };
    reaches || view.diagnosis.reasons.iter().any(is_relist)
}

/// Since when Status has no answer: the runtime does not run, or a Status waits in it.
fn no_status_since(view: View<'_>) -> Option<MonoNs> {
    let (snapshot, diagnosis) = (view.snapshot, view.diagnosis);
    let finding = diagnosis.accused().first().filter(|_| diagnosis.verdict == Verdict::Stall)?;
    let is_runtime = finding.culprit.as_ref().is_some_and(|culprit| culprit.component.role().is_runtime());
    if is_runtime && finding.reach == REACH_RELIST && halts(finding, &diagnosis.stuck) {
        return diagnosis.since.map(|since| since.at);
    }
    let of_request = |request: &&Request| request.method() == Some(Method::Status) && request.stays;
    let oldest = snapshot.census.requests.iter().filter(of_request).map(|request| request.since.ns).max()?;
    Some(snapshot.now.minus(oldest))
}

fn is_kubelet_halted(view: View<'_>) -> bool {
    let of_kubelet = |stuck: &Stuck| match stuck.what {
        StuckKind::Stopped { component, .. } | StuckKind::Frozen { component, .. } => {
            component == Component::Kubelet
        }
        _ => false,
    };
    let is_down = |reason: &Reason| matches!(reason, Reason::Down { component: Component::Kubelet, .. });
    view.diagnosis.stuck.iter().any(of_kubelet) || view.diagnosis.reasons.iter().any(is_down)
}

/// The last list of a node on which none is late, and after what it would be NotReady.
pub(super) fn last_list(snapshot: &Snapshot) -> String {
    let minutes = snapshot.pace().threshold_ns / (60 * SECOND_NS);
    match snapshot.last_list {
        LastList::At(at) => {
            let (clock, ago) = (human::clock(snapshot.wall_ns(at)), duration(snapshot.now.since(at)));
            format!("last list {clock}, {ago} ago; NotReady after {minutes} min without one")
        }
        LastList::NotSince(at) => {
            let none = duration(snapshot.now.since(at));
            format!("no list has succeeded for {none}; NotReady after {minutes} min without one")
        }
        LastList::Untraced => "relists are not traced".to_owned(),
    }
}

/// `plegtrace 0.1.0   n1   2026-11-22 02:41:48Z`.
pub(super) fn header(snapshot: &Snapshot) -> Vec<String> {
    let mut parts = vec![format!("plegtrace {}", escape::text(&snapshot.start.tool_version))];
    if !snapshot.start.node.is_empty() {
        parts.push(escape::text_to(&snapshot.start.node, 40));
    }
    parts.push(human::moment(snapshot.wall_ns(snapshot.now)));
    parts
}

/// `kubelet 1.20.2, containerd 1.6.20, runc 1.1.4, kernel 6.18.44`.
pub(in crate::render) fn versions(snapshot: &Snapshot) -> Vec<String> {
    let mut versions: BTreeMap<Component, Vec<String>> = BTreeMap::new();
    let live = snapshot.targets.iter().filter(|target| target.state == TracedState::Live);
    let is_main = |target: &&TracedProcess| {
        target.fact.component == Component::Kubelet || target.fact.component.role().is_runtime()
    };
    for target in live.filter(is_main) {
        let list = versions.entry(target.fact.component).or_default();
        let version = version(target, snapshot);
        if !list.contains(&version) {
            list.push(version);
        }
    }
    let main =
        versions.into_iter().map(|(component, list)| format!("{} {}", component.name(), list.join(" and ")));
    let kernel = &snapshot.start.kernel;
    let kernel = (!kernel.is_empty()).then(|| format!("kernel {}", escape::text_to(kernel, 40)));
    main.chain(kernel).chain(others(snapshot)).collect()
}

fn version(target: &TracedProcess, snapshot: &Snapshot) -> String {
    let built = target.fact.go_version.as_ref().map(|go| format!("built with {go}"));
    let read = snapshot.census.goroutines.iter().find(|fact| fact.pid == target.fact.pid);
    let read = read.map(|fact| format!("built with {}", fact.go_version));
    let own = snapshot.version_of(target).map(str::to_owned);
    escape::text_to(&own.or(built).or(read).unwrap_or_else(|| "?".to_owned()), 24)
}

/// Programs that are no targets: runc, crun, systemd.
fn others(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let versions = || snapshot.census.versions.iter();
    let is_target = |name: &str| snapshot.targets.iter().any(|target| target.fact.component.name() == name);
    // What is installed as runc is not what CRI-O runs.
    let is_of_node = |fact: &&VersionFact| !(fact.program.starts_with("runc in ") && has_crio(snapshot));
    let known = versions().filter(move |fact| !is_target(&fact.program)).filter(is_of_node);
    let known = known.map(|fact| (short(&fact.program), escape::text_to(&fact.version, 24)));
    let crun = OciRuntime::Crun;
    let unknown = runs(crun, snapshot) && !versions().any(|fact| fact.program == crun.name());
    let unknown = unknown.then(|| (crun.name().to_owned(), "?".to_owned()));
    known.chain(unknown).map(|(program, version)| format!("{program} {version}"))
}

/// `runc`, of `runc in /usr/local/bin/runc`.
fn short(program: &str) -> String {
    escape::text_to(program.split(' ').next().unwrap_or_default(), 24)
}

/// Has the node run this program?
fn runs(wanted: OciRuntime, snapshot: &Snapshot) -> bool {
    let is_it = |kind: &ProcessKind| matches!(kind, ProcessKind::Runc { by, .. } if *by == wanted);
    let processes = &snapshot.processes;
    processes.rows.iter().any(|row| is_it(&row.kind)) || processes.open.iter().any(|open| is_it(&open.kind))
}

/// Does CRI-O run here?
pub(in crate::render) fn has_crio(snapshot: &Snapshot) -> bool {
    let is_crio = |target: &TracedProcess| {
        target.fact.component == Component::Crio && target.state == TracedState::Live
    };
    snapshot.targets.iter().any(is_crio)
}

/// `134 of 134 probes, 138 goroutines, nothing lost; 5.0 s at 9.2 % of one core`.
pub(super) fn seen(snapshot: &Snapshot) -> String {
    let mut parts = vec![probes(snapshot)];
    let goroutines: u64 = snapshot.census.goroutines.iter().map(|fact| u64::from(fact.total)).sum();
    if goroutines > 0 {
        parts.push(human::plural(goroutines, "goroutine"));
    }
    let lost = snapshot.real_losses().map(|loss| loss.count).fold(0, u64::saturating_add);
    parts.push(if lost == 0 {
        "nothing lost".to_owned()
    } else {
        format!("{} lost", human::plural(lost, "event"))
    });
    let cost = snapshot.cost.as_ref().map(|cost| human::percent(cost.cpu_ns, cost.wall_ns));
    let cost = cost.map(|share| format!(" at {share} of one core")).unwrap_or_default();
    let window = duration(snapshot.window.ns());
    format!("{}; {window}{cost}", parts.join(", "))
}

fn probes(snapshot: &Snapshot) -> String {
    if snapshot.window.from.is_none() {
        return "no probes".to_owned();
    }
    let sites: u64 = snapshot.hooks.iter().map(|state| u64::from(state.hook.sites)).sum();
    let refused = snapshot.refused.iter().filter(|refused| refused.matters).count() as u64;
    match refused {
        0 => human::plural(sites, "probe"),
        refused => format!("{} ({} refused: doctor)", human::plural(sites, "probe"), human::count(refused)),
    }
}
