//! Every fault of the lab is named, with its process and its container, whether it began before plegtrace or after, as
//! text and as JSON. Real programs, really stuck.

use std::time::{Duration, Instant};

use plegtrace::diagnose::rules;
use plegtrace_lab::fault::{self, Facts, Kind};
use plegtrace_lab::{Node, host, process};
use plegtrace_tests::program::Running;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// From the age at which a cause is said to the start of those that come later.
const MARGIN: Duration = Duration::from_secs(2);

/// What a report has to say of a fault.
struct Said {
    /// `kind` of what is stuck.
    kind: &'static str,
    /// Who waits, in order, as far as it matters: requests by their operation, others by their kind.
    waiters: &'static [&'static str],
    /// What must be found somewhere in it.
    words: &'static [&'static str],
    /// The node is held up, or a request is.
    stall: bool,
}

fn said(kind: Kind) -> Said {
    let of = |kind, waiters, words| Said { kind, waiters, words, stall: true };
    match kind {
        Kind::ShimStopped => of("stopped", &["ExecSync"], &["\"component\":\"shim\""]),
        Kind::ShimFrozen => of("frozen", &["ExecSync"], &["FROZEN"]),
        Kind::LockHostage => of(
            "stopped",
            &["UpdateContainerResources", "ListContainers", "relist"],
            &["container_status_lock"],
        ),
        Kind::ContainerdStopped => of("stopped", &[], &["\"component\":\"containerd\""]),
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
        Kind::Cni => of("process", &["process", "RunPodSandbox"], &["\"action\":\"ADD\""]),
        Kind::CniFlock => of("process", &["process", "RunPodSandbox"], &["\"flock\""]),
        Kind::ContainerdKilled
        | Kind::KubeletKilled
        | Kind::Poststop
        | Kind::CniSlow
        | Kind::ContainerdRestarted
        | Kind::StatusHangs
        | Kind::ExecStorm
        | Kind::FullChannel
        | Kind::ManyChangedPods => panic!("{kind:?} is not for this test"),
    }
}

fn trace(node: &Node, arguments: &[&str]) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    Running::start(&[arguments, &about[..]].concat()).unwrap()
}

/// Is it among what is stuck?
fn named<'a>(report: &'a Value, said: &Said, facts: &Facts) -> Option<&'a Value> {
    let about = |stuck: &&Value| {
        let pid = u32::try_from(stuck["pid"].as_u64().unwrap()).unwrap();
        let text = stuck.to_string();
        stuck["kind"] == said.kind
            && facts.victims.iter().chain(&facts.culprits).any(|known| *known == pid)
            && said.words.iter().all(|word| text.contains(word))
    };
    report["stuck"].as_array().unwrap().iter().find(about)
}

fn waiter(waiter: &Value) -> String {
    let operation = waiter["request"]["operation"].as_str();
    operation.unwrap_or_else(|| waiter["kind"].as_str().unwrap()).to_owned()
}

fn check_json(kind: Kind, text: &str, facts: &Facts, code: i32) {
    let report: Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{kind:?}: {error}: {text}"));
    let said = said(kind);
    let all = serde_json::to_string_pretty(&report["stuck"]).unwrap();
    let stuck = named(&report, &said, facts);
    let stuck =
        stuck.unwrap_or_else(|| panic!("{kind:?} is not named: {facts:?}\n{all}\n{}", report["census"]));
    let waiters: Vec<String> = stuck["waiters"].as_array().unwrap().iter().map(waiter).collect();
    let mut rest = waiters.iter();
    let in_order = said.waiters.iter().all(|wanted| rest.any(|waiter| waiter == wanted));
    assert!(in_order, "{kind:?}: {:?} wait, not {:?}\n{all}", waiters, said.waiters);
    let container = &stuck["container"];
    let known = |id: &Value| id.as_str().is_some_and(|id| facts.ids.iter().any(|known| known == id));
    if !facts.ids.is_empty() {
        assert!(known(&container["id"]) || known(&container["sandbox"]), "{kind:?}: {:?}\n{all}", facts.ids);
    }
    if kind == Kind::ContainerdStopped {
        assert_ne!(stuck["sockets"].as_array().unwrap().len(), 0, "requests wait in its sockets\n{all}");
    }
    if said.stall {
        assert_eq!((report["diagnosis"]["verdict"].as_str(), code), (Some("stall"), 1), "{kind:?}\n{all}");
    }
    // Nothing that is healthy is accused: whoever is late has to do with the fault.
    let mine = |stuck: &&Value| named(&report, &said, facts).is_some_and(|one| one["pid"] == stuck["pid"]);
    let processes = report["stuck"].as_array().unwrap().iter().filter(|stuck| stuck["kind"] == "process");
    for other in processes.filter(|stuck| !mine(stuck)) {
        let pid = u32::try_from(other["pid"].as_u64().unwrap()).unwrap();
        assert!(facts.culprits.contains(&pid) || facts.victims.contains(&pid), "{kind:?} accuses {other}");
    }
}

fn check_text(kind: Kind, text: &str, facts: &Facts) {
    let mut known = facts.victims.iter().chain(&facts.culprits);
    assert!(known.any(|pid| text.contains(&pid.to_string())), "{kind:?}: {facts:?} not in {text}");
    // The verdict says which cause it is.
    let id = kind.root_cause().expect("a fault has a cause");
    let verdict = if said(kind).stall { format!("\nSTALL {id}  ") } else { format!("notice    {id}  ") };
    assert!(text.contains(&verdict), "{kind:?}: no {verdict:?} in {text}");
}

/// Injects while one plegtrace observes, lets it get late, and starts two more.
fn named_before_and_after(node: &Node, kind: Kind) {
    let mut early = trace(node, &["-v", "-o", "json", "-d", "600"]);
    early.wait_until_armed(LIMIT).unwrap();
    let fault = kind.inject(node, "p1").unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
    let began = Instant::now();
    let facts = fault.facts().clone();
    let rule = kind.root_cause().and_then(rules::by_id).expect("a fault has a cause");
    let late = Duration::from_nanos(rule.min_age_ns) + MARGIN;
    let old = || Ok((began.elapsed() >= late).then_some(()));
    process::wait_for("a fault that is late", late + LIMIT, old).unwrap();
    let late = [trace(node, &["-q", "-o", "json"]), trace(node, &["-q"])];
    let [json, text] = late.map(|run| run.finish(LIMIT).unwrap());
    early.signal(libc::SIGINT).unwrap();
    let early = early.finish(LIMIT).unwrap();
    fault.heal().unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));

    check_json(kind, &json.stdout, &facts, json.status.code().unwrap());
    check_text(kind, &text.stdout, &facts);
    check_json(kind, &early.stdout, &facts, early.status.code().unwrap());
}

/// After all of that nothing is stuck any more.
fn is_healed(node: &Node) {
    node.wait_for_relists(3, LIMIT).unwrap();
    let report = trace(node, &["-q", "-o", "json", "-d", "5"]).finish(LIMIT).unwrap();
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["stuck"].as_array().unwrap().as_slice(), [] as [Value; 0], "{}", report["stuck"]);
}

fn named_on_one_node(kinds: &[Kind]) {
    host::require_root().unwrap();
    let node = Node::start(&kinds[0].knobs()).unwrap();
    for kind in kinds {
        named_before_and_after(&node, *kind);
    }
    is_healed(&node);
}

/// Stopped and frozen daemons, the lock hostage, an output held open, an init nobody starts.
#[test]
fn what_stands_still_is_named() {
    named_on_one_node(&[
        Kind::ShimStopped,
        Kind::LockHostage,
        Kind::ShimFrozen,
        Kind::ContainerFrozen,
        Kind::ExecPipe,
        Kind::OrphanedInit,
        Kind::ContainerdStopped,
        Kind::KubeletStopped,
    ]);
}

/// The freezer of cgroups version 2, whatever version the node's containers are in.
#[test]
fn a_shim_that_version_2_froze_is_named() {
    host::require_root().unwrap();
    let node = Node::start(&Kind::ShimFrozen.knobs()).unwrap();
    let Some(frozen) = fault::frozen_shim_unified(&node, &node.pod("p1").unwrap()).unwrap() else {
        let why = anyhow::anyhow!("no cgroup2 is mounted");
        return host::declare_skip("a shim frozen by version 2", &why);
    };
    let late = [trace(&node, &["-q", "-o", "json"]), trace(&node, &["-q"])];
    let [json, text] = late.map(|run| run.finish(LIMIT).unwrap());
    let facts = frozen.facts().clone();
    frozen.heal().unwrap();
    check_json(Kind::ShimFrozen, &json.stdout, &facts, json.status.code().unwrap());
    check_text(Kind::ShimFrozen, &text.stdout, &facts);
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    let stuck = named(&report, &said(Kind::ShimFrozen), &facts).unwrap();
    assert_eq!(stuck["freezer"]["version"], 2, "{stuck}");
    is_healed(&node);
}

/// Hooks and network plugins that do not end.
#[test]
fn what_does_not_end_is_named() {
    named_on_one_node(&[Kind::Hook, Kind::Cni, Kind::CniFlock]);
}

/// The genuine hang of runc 1.0.0-rc93, which any signal would end: it is still there when we are gone.
#[test]
fn a_hanging_rc93_is_named_and_left_alone() {
    named_on_one_node(&[Kind::Rc93]);
}
