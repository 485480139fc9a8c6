//! [`Failing`]: nothing hangs, but this fails every time; or the runtime itself says that it is not ready. No pod starts, or none ends, on
//! a node that otherwise looks healthy.

use crate::{
    correlate::{CallError, ProcessKind, Snapshot, Streak, thresholds::SECOND_NS},
    cri::{DEADLINE_NS, Deadline, Lasts, Method, Program},
    input::RuntimeCondition,
};

/// So many failures in a row, without a success since, are no accident: …
const MANY: u64 = 3;
/// … of what the kubelet tries again only after ten seconds and more (`backOffPeriod`, kubelet.go), so many.
const FEW: u64 = 2;
/// What failed last before that is over: the longest that the kubelet waits between two tries is five minutes (`MaxContainerBackOff`).
const OVER_NS: u64 = 6 * 60 * SECOND_NS;

/// The kubelet ends a pod more than once, its housekeeping by a list of what ran two seconds ago: some of it is gone by then. Such failures
/// follow each other within so long, …
const ENDS_AGAIN_NS: u64 = 10 * SECOND_NS;
/// … and each comes at once (seen: 0.5 ms for the kubelet, 60 µs in containerd): to end something takes a program or a plugin.
const NOTHING_TRIED_NS: u64 = SECOND_NS / 50;

/// Something that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failing {
    /// A condition that the CRI requires is false, as the runtime says itself.
    Condition {
        /// The runtime.
        pid: u32,
        /// Which, and why; hostile text.
        condition: RuntimeCondition,
    },
    /// Calls of one method, every time.
    Calls {
        /// Which, how many, since when.
        streak: Streak,
        /// The program that ran for them and failed as well, if one did every time.
        program: Option<FailedProgram>,
        /// What the runtime said of the last of them whose words were seen; hostile text.
        error: Option<CallError>,
    },
}

/// A program that failed as often as it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedProgram {
    /// Which.
    pub kind: ProcessKind,
    /// How often.
    pub count: u64,
}

/// What fails now: conditions first, because they explain the calls; then what has failed most often.
pub(super) fn find(snapshot: &Snapshot) -> Vec<Failing> {
    let mut calls: Vec<&Streak> = snapshot.failing.iter().filter(|streak| counts(streak, snapshot)).collect();
    calls.sort_by_key(|streak| (std::cmp::Reverse(streak.failed), streak.method));
    let calls = calls.into_iter().map(|streak| calls_of(streak, snapshot));
    conditions(snapshot).chain(calls).collect()
}

fn calls_of(streak: &Streak, snapshot: &Snapshot) -> Failing {
    let error = error_of(streak, snapshot).cloned();
    Failing::Calls { streak: *streak, program: program_of(streak.method, snapshot), error }
}

/// Required conditions that do not hold, by the last whole look at the runtime.
fn conditions(snapshot: &Snapshot) -> impl Iterator<Item = Failing> {
    let says = snapshot.census.round.iter().filter_map(|round| round.says.as_ref());
    says.flat_map(|says| {
        let required = says.conditions.iter().filter(|condition| condition.is_required());
        let false_ones = required.filter(|condition| !condition.holds);
        false_ones.map(|condition| Failing::Condition { pid: says.pid, condition: condition.clone() })
    })
}

fn counts(streak: &Streak, snapshot: &Snapshot) -> bool {
    // A list that fails is told as what it is for the kubelet's health, and by what it fails.
    let facts = streak.method.facts();
    let is_list = facts.needed_by_relist;
    // Who asks for one thing by its id may come too late: that it is not there any more is an answer.
    let is_look =
        matches!(streak.method, Method::ImageStatus | Method::ContainerStats | Method::PodSandboxStats);
    let enough = match facts.lasts {
        // One that the kubelet gave up after minutes was no accident.
        _ if is_given_up(streak, snapshot) => 1,
        Lasts::Network => FEW,
        _ => MANY,
    };
    let is_over = snapshot.now.since(streak.last) > OVER_NS;
    !is_list && !is_look && failures(streak) >= enough && !is_over
}

/// How often did it fail for another reason than that what was asked about is not there any more? That is an answer. The runtime says which
/// were so; of those whose words were not seen it is known when the kubelet ended several at once, and nothing was tried.
fn failures(streak: &Streak) -> u64 {
    let ends = matches!(
        streak.method,
        Method::StopContainer | Method::RemoveContainer | Method::StopPodSandbox | Method::RemovePodSandbox
    );
    let at_once = streak.last.since(streak.since) < ENDS_AGAIN_NS && streak.longest_ns < NOTHING_TRIED_NS;
    let wordless = if ends && at_once { 0 } else { streak.failed.saturating_sub(streak.said_gone) };
    wordless.max(streak.said_other)
}

/// What the runtime said of the last of these failures.
fn error_of<'a>(streak: &Streak, snapshot: &'a Snapshot) -> Option<&'a CallError> {
    snapshot.errors.get(&streak.method).filter(|error| error.at >= streak.since)
}

/// Has the kubelet waited in vain for as long as it ever waits? An image has no deadline, and a command the one that its pod gives it.
fn is_given_up(streak: &Streak, snapshot: &Snapshot) -> bool {
    let has_deadline = streak.method.facts().deadline != Deadline::None && streak.method != Method::ExecSync;
    // A deadline also runs out while nothing runs.
    let paused = snapshot.paused_ns(streak.since, streak.last);
    has_deadline && streak.longest_ns.saturating_sub(paused) >= DEADLINE_NS
}

/// The program that a request of this method starts and that has failed each time that it ran.
fn program_of(method: Method, snapshot: &Snapshot) -> Option<FailedProgram> {
    let facts = method.facts();
    let starts = facts.starts.iter().chain(facts.cleans_up_with);
    let rows =
        || snapshot.processes.rows.iter().filter(|row| row.failed > 0 && row.failed == row.latency.count());
    let row = starts.flat_map(|program| rows().filter(|row| is(*program, &row.kind))).next()?;
    Some(FailedProgram { kind: row.kind.clone(), count: row.failed })
}

fn is(program: Program, kind: &ProcessKind) -> bool {
    let runc = |name: &str| matches!(kind, ProcessKind::Runc { sub, .. } if sub == name);
    let cni = |name: &str| matches!(kind, ProcessKind::Cni { action, .. } if action.as_deref() == Some(name));
    let shim = |name: &str| matches!(kind, ProcessKind::Shim { action } if action.as_deref() == Some(name));
    match program {
        Program::CniAdd => cni("ADD"),
        Program::CniDel => cni("DEL"),
        Program::RuncCreate => runc("create"),
        Program::RuncStart => runc("start"),
        Program::RuncExec => runc("exec"),
        Program::RuncUpdate => runc("update"),
        Program::RuncKill => runc("kill"),
        Program::RuncDelete => runc("delete"),
        Program::ShimStart => shim("start"),
        Program::ShimDelete => shim("delete"),
    }
}
