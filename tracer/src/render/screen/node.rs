//! What becomes of the node, and when.

use super::View;
use crate::{
    correlate::{LastList, Request, Snapshot, thresholds::SECOND_NS},
    cri::Method,
    decode::MonoNs,
    diagnose::{Finding, Reason, Verdict},
    input::Component,
    render::human::{self, duration},
    stuck::{REACH_RELIST, Stuck, StuckKind},
};

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

pub(super) fn is_kubelet_halted(view: View<'_>) -> bool {
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

/// Is the runtime itself stopped, or not there?
pub(super) fn halts(finding: &Finding, stuck: &[Stuck]) -> bool {
    let pid = finding.culprit.as_ref().and_then(|culprit| culprit.pid);
    let is_halted = |stuck: &Stuck| {
        let halted = matches!(stuck.what, StuckKind::Stopped { .. } | StuckKind::Frozen { .. });
        halted && Some(stuck.what.pid()) == pid
    };
    pid.is_none() || stuck.iter().any(is_halted)
}
