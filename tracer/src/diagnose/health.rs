//! A snapshot → what is held up and since when ([`Reason`]s), or what is missing for an answer ([`Doubt`]s). Causes are the
//! business of the rules.

use std::collections::{BTreeMap, HashSet};

use super::{
    newer, paused,
    reason::{Doubt, Peer, Reason},
    stale, unnamed,
};
use crate::{
    correlate::{
        Caller, LastList, OpenCall, OpenMessage, OpenProcess, ProcessKind, Relist, RequestTree, Snapshot,
        TracedProcess, TracedState,
        thresholds::{LAST_LIST_NS, RELIST_OPEN_NS, STILL_NS, docker_stuck_after_ns, stuck_after_ns},
    },
    decode::MonoNs,
    input::{Component, Layer, Presence},
    span::{Span, critical_path},
    stuck::{self, Stuck},
    words::{self, human::count},
};

/// Components that answer CRI calls, or stand behind one that does.
pub(super) const RUNTIMES: [Component; 4] =
    [Component::Containerd, Component::Crio, Component::Dockerd, Component::CriDockerd];

/// What the census calls the question for goroutines, in the list of those who did not answer.
const GOROUTINES: &str = "goroutines";

/// The kernel gives starts in ticks of 10 ms, and by another clock than ends.
const SAME_MOMENT_NS: u64 = 20_000_000;

/// What is held up, the weightiest first.
pub(super) fn reasons(snapshot: &Snapshot, stuck: &[Stuck]) -> Vec<Reason> {
    let mut reasons = down(snapshot);
    let matter = stuck.iter().filter(|stuck| stuck::matters(stuck, snapshot));
    reasons.extend(matter.map(|stuck| Reason::Stuck(Box::new(stuck.clone()))));
    let of_pods = snapshot.requests.iter().map(RequestTree::root).filter(|root| root.is_any_relist());
    let relists = snapshot.relists.iter().map(Relist::root).chain(of_pods);
    reasons.extend(relists.filter_map(|root| relist_open(root, snapshot)));
    reasons.extend(stale::find(snapshot));
    reasons.extend(abandoned(snapshot));
    reasons.extend(calls_open(snapshot));
    reasons.extend(requests_open(snapshot));
    reasons.extend(processes_open(snapshot, stuck));
    reasons.sort_by_key(Reason::weight);
    reasons
}

pub(super) fn is_live(snapshot: &Snapshot, component: Component) -> bool {
    let live =
        |target: &&TracedProcess| target.fact.component == component && target.state == TracedState::Live;
    snapshot.targets.iter().any(|target| live(&target))
}

/// Components that belong to the node and do not run. A runtime that merely left a directory behind does not belong to
/// it as long as another one runs.
fn down(snapshot: &Snapshot) -> Vec<Reason> {
    let any_runtime = RUNTIMES.iter().any(|component| is_live(snapshot, *component));
    let mut reasons = Vec::new();
    for component in [Component::Kubelet].into_iter().chain(RUNTIMES) {
        if is_live(snapshot, component) {
            continue;
        }
        let gone = snapshot.targets.iter().filter(|target| target.fact.component == component);
        let last = gone.filter_map(|target| match &target.state {
            TracedState::Gone { at, how } => Some((*at, format!("pid {} {how}", target.fact.pid))),
            TracedState::Live => None,
        });
        let last = last.max_by_key(|(at, _)| *at);
        let gone = last.as_ref().map(|(at, _)| *at);
        if gone.is_some_and(|at| has_successor(snapshot, component, at)) || runs(component, snapshot, gone) {
            continue;
        }
        let mut evidence = last.map(|(_, how)| how);
        if evidence.is_none() && (component == Component::Kubelet || !any_runtime) {
            let left = snapshot.presences.iter().find(|presence| presence.component == component);
            evidence = left.map(Presence::words);
        }
        reasons.extend(evidence.map(|evidence| Reason::Down { component, evidence }));
    }
    reasons
}

/// Does something show that it runs, whatever its process is called?
fn runs(component: Component, snapshot: &Snapshot, gone: Option<MonoNs>) -> bool {
    if component == Component::Kubelet {
        return unnamed::kubelet(snapshot, gone).is_some();
    }
    unnamed::lists_succeed(snapshot, gone) || unnamed::runtime(component, snapshot, gone).is_some()
}

/// Has the census found one that was started since? It is only not followed yet. Another one that was there all the time is
/// not the one that is missed.
fn has_successor(snapshot: &Snapshot, component: Component, gone: MonoNs) -> bool {
    let since = |started: u64| started.saturating_add(SAME_MOMENT_NS) >= gone.0;
    snapshot.census.processes.iter().map(|seen| &seen.fact).any(|fact| {
        let has_ended =
            |target: &TracedProcess| target.fact.pid == fact.pid && target.state != TracedState::Live;
        fact.component == component
            && fact.state != 'Z'
            && fact.started_ns.is_some_and(since)
            && !snapshot.targets.iter().any(has_ended)
    })
}

fn relist_open(root: &Span, snapshot: &Snapshot) -> Option<Reason> {
    let age_ns = root.duration_ns(snapshot.now);
    if !root.is_open() || age_ns <= RELIST_OPEN_NS {
        return None;
    }
    let path = critical_path(root, snapshot.now);
    let inner = path.iter().skip(1).rfind(|span| span.is_open());
    let waiting_in = inner.map(|span| span.operation().to_owned());
    Some(Reason::RelistOpen { age_ns, waiting_in, of_pod: root.layer() == Layer::PodRelist })
}

fn abandoned(snapshot: &Snapshot) -> Vec<Reason> {
    let given_up = snapshot.open.iter().filter(|call| call.is_abandoned(snapshot.now));
    let groups = group(given_up);
    let reason = |((component, operation), calls): ((Component, String), Vec<&OpenCall>)| Reason::Abandoned {
        operation,
        component,
        count: calls.len() as u64,
        oldest_ns: calls.iter().map(|call| call.age_ns).max().unwrap_or(0),
    };
    groups.into_iter().map(reason).collect()
}

fn calls_open(snapshot: &Snapshot) -> Vec<Reason> {
    let on = |call: &OpenCall| (call.span.id.tgid, call.span.id.goid);
    let counted: HashSet<_> =
        snapshot.open.iter().filter(|call| call.span.layer() == Layer::KubeletCall).map(on).collect();
    // An open relist speaks for what is open inside it.
    let relists: HashSet<_> = snapshot.open.iter().filter(|call| call.span.is_any_relist()).map(on).collect();
    let stuck = snapshot.open.iter().filter(|call| {
        let layer = match call.span.layer() {
            Layer::KubeletCall => !relists.contains(&on(call)),
            // Inside a counted call it is the same call once more.
            Layer::KubeletClient => !relists.contains(&on(call)) && !counted.contains(&on(call)),
            Layer::Handler => !call.replied && !matches!(call.caller, Caller::Gone(_) | Caller::Own),
            Layer::Relist
            | Layer::PodRelist
            | Layer::ListPhase
            | Layer::StatusPhase
            | Layer::RuncPhase
            | Layer::Mark
            | Layer::Process => false,
        };
        let late = stuck::is_late(call.span.operation(), call.age_ns, Some(call.caller), snapshot);
        layer && late && !call.span.is_long_lived()
    });
    let groups = group(stuck);
    let reason = |((component, operation), calls): ((Component, String), Vec<&OpenCall>)| {
        let oldest = calls.iter().max_by_key(|call| (call.age_ns, call.span.id))?;
        let (count, oldest_ns) = (calls.len() as u64, oldest.age_ns);
        Some(Reason::CallsOpen { operation, component, count, oldest_ns, oldest: oldest.span.id })
    };
    groups.into_iter().filter_map(reason).collect()
}

/// Requests that only the sockets show: of a kubelet or runtime in which no probe can be set. What a probe shows is said
/// once, by the calls. What was lost since one was sent may have been its answer.
fn requests_open(snapshot: &Snapshot) -> Vec<Reason> {
    let by_probe: HashSet<&str> = snapshot
        .open
        .iter()
        .filter(|call| {
            matches!(call.span.layer(), Layer::KubeletCall | Layer::KubeletClient | Layer::Handler)
        })
        .map(|call| call.span.operation())
        .collect();
    let late = snapshot.grpc.open.iter().filter(|request| {
        let method = request.fact.method.as_str();
        // Nobody knows how long one without a name may last.
        let named = !request.fact.service.is_empty();
        let late = stuck_after_ns(method).is_some_and(|limit| request.age_ns > limit);
        named && late && request.should_end() && !by_probe.contains(method)
    });
    // Behind each of them is a call that the probes show, if there are any.
    let of_docker = snapshot.docker.open.iter().filter(|request| {
        by_probe.is_empty()
            && request.should_end()
            && request.age_ns > docker_stuck_after_ns(&request.fact.method)
    });
    let late = late.chain(of_docker);
    let mut groups: BTreeMap<(&str, u32), Vec<&OpenMessage>> = BTreeMap::new();
    let lost =
        snapshot.losses.iter().zip(&snapshot.lost_at).filter(|(loss, _)| loss.is_loss && loss.count > 0);
    let lost_at = lost.map(|(_, at)| at.0).max();
    for it in late.filter(|it| lost_at.is_none_or(|lost_at| lost_at < it.fact.start_ns)) {
        groups.entry((&it.fact.method, it.fact.answerer)).or_default().push(it);
    }
    let reason = |((method, pid), requests): ((&str, u32), Vec<&OpenMessage>)| {
        let oldest = requests.iter().max_by_key(|request| request.age_ns)?;
        Some(Reason::RequestsOpen {
            method: method.to_owned(),
            count: requests.len() as u64,
            oldest_ns: oldest.age_ns,
            asker: peer(oldest.fact.asker, snapshot),
            answerer: (pid != 0).then(|| peer(pid, snapshot)),
        })
    };
    groups.into_iter().filter_map(reason).collect()
}

fn peer(pid: u32, snapshot: &Snapshot) -> Peer {
    let target = snapshot.targets.iter().find(|target| target.fact.pid == pid);
    Peer { pid, component: target.map(|target| target.fact.component) }
}

fn processes_open(snapshot: &Snapshot, stuck: &[Stuck]) -> Vec<Reason> {
    let mut groups: BTreeMap<&ProcessKind, Vec<&OpenProcess>> = BTreeMap::new();
    // What the census found stuck, or waiting for that, is told already, and better.
    let mut told: HashSet<u32> = stuck.iter().flat_map(stuck::processes).collect();
    // Whoever typed a command waits for it; the kubelet does not.
    told.extend(snapshot.census.by_hand.iter().map(|seen| seen.fact.pid));
    // Nobody waits for a daemon.
    let daemons = snapshot.census.processes.iter().filter(|seen| seen.fact.detached);
    told.extend(daemons.map(|seen| seen.fact.pid));
    let late = snapshot.processes.open.iter().filter(|process| process.late && !told.contains(&process.pid));
    for process in late {
        groups.entry(&process.kind).or_default().push(process);
    }
    let reason = |(kind, processes): (&ProcessKind, Vec<&OpenProcess>)| {
        let oldest = processes.iter().max_by_key(|process| (process.age_ns, process.pid))?;
        Some(Reason::ProcessesOpen {
            kind: kind.clone(),
            count: processes.len() as u64,
            oldest_ns: oldest.age_ns,
            pid: oldest.pid,
            container: oldest.container.clone(),
        })
    };
    groups.into_iter().filter_map(reason).collect()
}

fn group<'a>(calls: impl Iterator<Item = &'a OpenCall>) -> BTreeMap<(Component, String), Vec<&'a OpenCall>> {
    let mut groups: BTreeMap<(Component, String), Vec<&OpenCall>> = BTreeMap::new();
    for call in calls {
        let key = (call.span.component(), call.span.operation().to_owned());
        groups.entry(key).or_default().push(call);
    }
    groups
}

/// What forbids to call the node healthy.
pub(super) fn doubts(snapshot: &Snapshot) -> Vec<Doubt> {
    let mut why = Vec::new();
    if !is_live(snapshot, Component::Kubelet) {
        let sign = unnamed::kubelet(snapshot, unnamed::gone_at(Component::Kubelet, snapshot));
        why.push(sign.map_or(Doubt::NoKubelet, |sign| Doubt::KubeletUnknown { sign }));
    } else if snapshot.window.from.is_none() {
        why.push(Doubt::NotArmed);
    } else if !snapshot.sees_relists() {
        why.push(Doubt::RelistUntraced);
    } else if snapshot.awaits_relist() {
        // Of a kubelet that lists every few minutes an observation need not see one.
    } else if let Some(silent_ns) = silent_at_unknown_pace(snapshot) {
        why.push(Doubt::PaceUnknown { silent_ns });
    } else if snapshot.relists_now().next().is_none() {
        let period_ns = snapshot.pace().period_ns;
        why.push(Doubt::NoRelist { window_ns: seen_for_ns(snapshot), period_ns });
    } else if !matches!(snapshot.last_list, LastList::At(_)) {
        why.push(Doubt::ListUnknown);
    }
    if is_live(snapshot, Component::Kubelet) && snapshot.window.from.is_some() && !snapshot.sees_calls() {
        why.push(Doubt::CallsUntraced);
    }
    why.extend(newer::than_known(snapshot));
    if snapshot.open_read_at.is_none() || !snapshot.open_complete {
        why.push(Doubt::OpenUnread);
    }
    why.extend(unnamed::of_runtime(snapshot).map(|sign| Doubt::RuntimeUnknown { sign }));
    why.extend(census_doubts(snapshot));
    why.extend(loop_waits(snapshot));
    why.extend(paused::lately(snapshot).map(|pause| Doubt::Paused { ns: pause.ns() }));
    let lost: Vec<_> = snapshot.fresh_losses().collect();
    if let Some(worst) = lost.iter().max_by_key(|loss| loss.count) {
        let count = lost.iter().map(|loss| loss.count).fold(0, u64::saturating_add);
        why.push(Doubt::Lost { count, sentence: worst.sentence.clone() });
    }
    why
}

/// A loop on which every pod or the node depends, and that has not gone on for longer than a moment.
fn loop_waits(snapshot: &Snapshot) -> Option<Doubt> {
    let busy = snapshot.census.loops.iter().flat_map(|loops| &loops.busy);
    let waits =
        busy.filter(|one| one.kind.reach() == 2 && one.limit_ns().is_some() && one.wait_ns() >= STILL_NS);
    let worst = waits.min_by_key(|one| (one.kind, one.since))?;
    Some(Doubt::LoopWaits { what: words::busy_loop(worst), ns: worst.wait_ns() })
}

/// For how long no list has succeeded, of a kubelet of which it is not known whether that is long.
fn silent_at_unknown_pace(snapshot: &Snapshot) -> Option<u64> {
    let none = snapshot.relists_now().next().is_none();
    let silent_ns = match snapshot.last_list {
        LastList::At(at) if !none => snapshot.now.since(at),
        _ if none => seen_for_ns(snapshot),
        _ => return None,
    };
    (snapshot.may_be_slow() && (none || silent_ns > LAST_LIST_NS)).then_some(silent_ns)
}

/// For how long relists of a kubelet that runs would have been seen.
fn seen_for_ns(snapshot: &Snapshot) -> u64 {
    let known = kubelets(snapshot).into_iter().map(|kubelet| snapshot.now.since(kubelet.seen)).max();
    snapshot.relist_window.ns().min(known.unwrap_or(u64::MAX))
}

/// Kubelets that run.
fn kubelets(snapshot: &Snapshot) -> Vec<&TracedProcess> {
    let live = |target: &&TracedProcess| {
        target.fact.component == Component::Kubelet && target.state == TracedState::Live
    };
    snapshot.targets.iter().filter(live).collect()
}

/// What the census could not tell. A cut round is no doubt after a whole one: what that found is kept.
fn census_doubts(snapshot: &Snapshot) -> Vec<Doubt> {
    let census = &snapshot.census;
    if snapshot.refused.iter().any(|refused| refused.source == "census") && census.rounds == 0 {
        return vec![Doubt::NoCensus];
    }
    let mut why = Vec::new();
    if census.rounds > 0 && census.whole_rounds == 0 {
        why.push(Doubt::CensusCut);
    }
    let unread = |target: &&TracedProcess| {
        let component = target.fact.component;
        let daemon = component == Component::Kubelet || component.role().is_runtime();
        daemon && target.state == TracedState::Live && !census.read.contains(&target.fact.pid)
    };
    let unanswered = census.round.iter().flat_map(|round| &round.unanswered);
    let asked: Vec<_> = unanswered.filter(|one| one.what == GOROUTINES).collect();
    why.extend(snapshot.targets.iter().filter(unread).filter_map(|target| {
        let (pid, component) = (target.fact.pid, target.fact.component);
        let partly = census.partly.get(&pid).map(|(unread, total)| match unread {
            0 => "not all of them were kept: they wait in too many different ways".to_owned(),
            unread => format!("{} of {} were not read", count((*unread).into()), count((*total).into())),
        });
        let why = asked.iter().find(|one| one.pid == pid).map(|one| one.why.clone()).or(partly)?;
        Some(Doubt::GoroutinesUnread { component, why })
    }));
    why
}
