//! Since when, and who suffers; who looked, and how well.

use super::{
    View,
    node::{halts, is_kubelet_halted},
};
use crate::{
    correlate::{LastList, Snapshot},
    cri::Method,
    diagnose::{Finding, Reason, Since},
    input::{Command, Component},
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
