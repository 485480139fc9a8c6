//! What a report has to say of a fault, beside its cause: what is stuck, who waits for it, and how bad it is.

use plegtrace_lab::fault::{FORK_STORM, Facts, Kind};
use serde_json::Value;

use super::Case;

/// What must be found in the list of what is stuck.
struct Said {
    /// `kind` of what is stuck.
    kind: &'static str,
    /// Who waits, in order, as far as it matters: requests by their operation, others by their kind.
    waiters: &'static [&'static str],
    /// What must be found somewhere in it.
    words: &'static [&'static str],
}

fn said(kind: Kind) -> Option<Said> {
    let of = |kind, waiters, words| Some(Said { kind, waiters, words });
    match kind {
        Kind::ShimStopped => of("stopped", &["ExecSync"], &["\"component\":\"shim\""]),
        Kind::ShimFrozen => of("frozen", &["ExecSync"], &["FROZEN"]),
        Kind::LockHostage => of(
            "stopped",
            &["UpdateContainerResources", "ListContainers", "relist"],
            &["container_status_lock"],
        ),
        Kind::OldShim => of("stopped", &["startup"], &["\"component\":\"shim\"", "\"sockets\":[{"]),
        Kind::ContainerdStopped => of("stopped", &[], &["\"component\":\"containerd\"", "\"sockets\":[{"]),
        Kind::KubeletStopped => of("stopped", &[], &["\"component\":\"kubelet\""]),
        // The genuine one: it writes into a pipe whose other end is its own.
        Kind::Rc93 => {
            of("process", &["process", "process"], &["\"write\"", "\"sub\":\"init\"", "pipe_write"])
        }
        Kind::Rc93Standalone => of("process", &["process"], &["\"write\"", "\"sub\":\"init\"", "pipe_write"]),
        Kind::OrphanedInit => of("process", &[], &["exec.fifo", "\"sub\":\"init\"", "\"open"]),
        Kind::Hook => of("process", &["process", "process"], &["nanosleep"]),
        Kind::ExecPipe => of("output_held", &["ExecSync"], &["\"orphan\":true"]),
        Kind::ContainerFrozen => of("frozen", &["StopContainer"], &["FROZEN"]),
        Kind::Freezing => of("process", &[], &["\"sub\":\"init\"", "\"execve\"", "begin_new_exec"]),
        Kind::TracedExit => of("unreported", &["StopContainer"], &["\"zombie\":true", "\"comm\":\"sleep\""]),
        Kind::LostExit => of("unreported", &["StopContainer"], &["\"zombie\":false", "\"tracer\":null"]),
        // Which request a plugin belongs to is not always seen. Who waits for it has nothing to do with what is wrong.
        Kind::Cni | Kind::CniReload => of("process", &["process"], &["\"action\":\"ADD\""]),
        Kind::CniAgent => of("process", &["process"], &["agent.sock", "\"pending\":false"]),
        Kind::CniAgentStopped => {
            of("process", &["process"], &["agent.sock", "\"pending\":true", "\"peer_state\":\"T\""])
        }
        Kind::SelfLockedShim => of("silent_shim", &["StartContainer"], &["handleProcessExit", "Mutex"]),
        Kind::DeadlockedShim => of("silent_shim", &["ExecSync", "ExecSync"], &["reaper.Reap", "chansend"]),
        Kind::SilentOldShim => of("silent_shim", &["startup"], &["handleProcessExit"]),
        Kind::JammedSocket => of("jammed", &["ContainerStats"], &["poll.(*FD).Write"]),
        // Which of the two is stuck depends on the moment: the one that holds the lock is so first.
        Kind::CniFlock => of("process", &["process"], &[]),
        Kind::SilentAgent => of("process", &["process", "process"], &["\"openat\"", "fanotify"]),
        Kind::DeadFuse => of("process", &["process", "process"], &["\"openat\"", "request_wait_answer"]),
        Kind::HangingVolume => of("process", &["process"], &["nanosleep"]),
        Kind::DevicePlugin => {
            of("loop", &[], &["\"name\":\"sync_loop\"", "\"waits_for\":\"device_plugin\"", "\"Allocate\""])
        }
        Kind::SilentApiServer => of("loop", &[], &["\"waits_for\":\"api_server\""]),
        Kind::LockedKubelet => of("loop", &[], &["\"name\":\"sync_loop\"", "\"waits_for\":\"lock\""]),
        Kind::DeadMount => of("request", &[], &["CreateContainer", "os.Stat"]),
        // What is gone, answers slowly or merely does too much is not stuck.
        Kind::ContainerdKilled
        | Kind::KubeletKilled
        | Kind::Poststop
        | Kind::CniSlow
        | Kind::CniDeadlock
        | Kind::NriLocks
        | Kind::Unkillable
        | Kind::DeadVolume
        | Kind::AgentBeforeKubelet
        | Kind::ContainerdRestarted
        | Kind::LateRuntime
        | Kind::SlowUmount
        | Kind::UmountHostage
        | Kind::SilentRegistry
        | Kind::StatusHangs
        | Kind::ExecStorm
        | Kind::Quota
        | Kind::Hog
        | Kind::ForkStorm
        | Kind::FullChannel
        | Kind::LargeList
        | Kind::ManyChangedPods => None,
    }
}

/// How bad it is, as an operator must be told: does it hold up the node or a request, or is it merely worth a look?
#[must_use]
pub fn severity(kind: Kind) -> &'static str {
    match kind {
        Kind::ExecStorm | Kind::ManyChangedPods | Kind::ContainerdRestarted => "notice",
        Kind::Quota | Kind::Hog | Kind::ForkStorm => "slow",
        _ => "stall",
    }
}

fn is_of(pid: &Value, facts: &Facts) -> bool {
    let pid = pid.as_u64().and_then(|pid| u32::try_from(pid).ok());
    pid.is_some_and(|pid| facts.victims.contains(&pid) || facts.culprits.contains(&pid))
}

fn waiter(waiter: &Value) -> String {
    let operation = waiter["request"]["operation"].as_str();
    operation.unwrap_or_else(|| waiter["kind"].as_str().unwrap()).to_owned()
}

/// What is stuck in a report because of the fault, if the fault makes something stuck; nothing else is late.
///
/// # Panics
///
/// It is not in the report, or something else is late.
pub fn check_stuck<'a>(kind: Kind, report: &'a Value, facts: &Facts) -> Option<&'a Value> {
    let said = said(kind)?;
    let all = serde_json::to_string_pretty(&report["stuck"]).unwrap();
    let mut stuck = report["stuck"].as_array().unwrap().iter();
    let about = |stuck: &&Value| {
        let text = stuck.to_string();
        stuck["kind"] == said.kind
            && is_of(&stuck["pid"], facts)
            && said.words.iter().all(|word| text.contains(word))
    };
    let found = stuck.find(about).unwrap_or_else(|| panic!("{kind:?} is not stuck: {facts:?}\n{all}"));
    let waiters: Vec<String> = found["waiters"].as_array().unwrap().iter().map(waiter).collect();
    let mut rest = waiters.iter();
    let in_order = said.waiters.iter().all(|wanted| rest.any(|waiter| waiter == wanted));
    assert!(in_order, "{kind:?}: {waiters:?} wait, not {:?}\n{all}", said.waiters);
    let container = &found["container"];
    let known = |id: &Value| id.as_str().is_some_and(|id| facts.ids.iter().any(|known| known == id));
    if !facts.ids.is_empty() {
        assert!(known(&container["id"]) || known(&container["sandbox"]), "{kind:?}: {:?}\n{all}", facts.ids);
    }
    let processes = report["stuck"].as_array().unwrap().iter().filter(|stuck| stuck["kind"] == "process");
    for other in processes {
        assert!(is_of(&other["pid"], facts), "{kind:?} accuses {other:#}");
    }
    Some(found)
}

/// The report as a person reads it: its verdict is the cause, and a process of the fault is named.
///
/// # Panics
///
/// They are not.
pub fn check_text(case: &Case, text: &str) {
    let (kind, facts) = (case.kind, &case.facts);
    let mut known = facts.victims.iter().chain(&facts.culprits).peekable();
    let is_named = known.peek().is_none() || known.any(|pid| text.contains(&pid.to_string()));
    assert!(is_named, "{kind:?}: {facts:?} not in {text}");
    if kind == Kind::Hog {
        let ourselves = format!(" {} ran ", case.tester);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("others run, most of all ") && words.contains(&ourselves), "{text}");
    }
    if kind == Kind::ForkStorm {
        let others = format!("others run, most of all {FORK_STORM} ");
        // Lines are wrapped.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&others) && words.contains(" and the programs that it starts"), "{text}");
    }
    let id = kind.root_cause().expect("a fault has a cause");
    // What is slow may be held up at the moment of this report, and by a quota also what it is not accused of: see `check`.
    let verdicts = match (kind, severity(kind)) {
        (_, "stall") => vec![format!("\nSTALL {id}  ")],
        (Kind::Quota, _) => vec![
            format!("\nSLOW {id}  "),
            format!("\nSTALL {id}  "),
            format!(" {id}  containerd is throttled"),
        ],
        (_, "slow") => vec![format!("\nSLOW {id}  "), format!("\nSTALL {id}  ")],
        _ => vec![format!("\nnotice   {id}  ")],
    };
    let is_said = verdicts.iter().any(|verdict| text.contains(verdict));
    assert!(is_said, "{kind:?}: none of {verdicts:?} in {text}");
}
