//! The fault matrix: every fault of the lab is diagnosed by the program as its users run it. Order, pod and moment are
//! drawn at random; a slow but healthy CNI plugin and exec probes run beside it and must not be blamed.

use std::time::{Duration, Instant};

use plegtrace::diagnose::rules;
use plegtrace_lab::fault::{self, Facts, Kind};
use plegtrace_lab::{Knobs, Node, host, process};
use plegtrace_tests::draw::Draw;
use plegtrace_tests::matrix::{self, Row};
use plegtrace_tests::program::Running;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// A cause is named so long after it could be, at most.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
const PODS: usize = 3;
/// Names of faults, separated by commas: only those are tried, and the README is left alone.
const ONLY: &str = "PLEGTRACE_FAULTS";

/// When a fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// Before plegtrace is started.
    Before,
    /// While it observes.
    During,
}

/// How long plegtrace observes. What is certain ends it. A notice does not, and a full channel comes with the lock that
/// fills it: their report is due within the limit.
fn duration(kind: Kind) -> &'static [&'static str] {
    match kind {
        // These have to last five seconds first.
        Kind::ContainerFrozen | Kind::ExecStorm => &["-d", "12"],
        Kind::ContainerdRestarted | Kind::FullChannel => &["-d", "8"],
        // The kubelet takes its time to start.
        Kind::ManyChangedPods => &["-d", "11"],
        _ => &["-d", "60", "--until-found"],
    }
}

fn trace(node: &Node, kind: Kind) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let arguments = [&["-o", "json"], duration(kind)].concat();
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    Running::start(&[&arguments[..], &about[..]].concat()).unwrap()
}

/// What is told of relists, without their trees.
fn relists(report: &Value) -> Value {
    let mut relists = report["relists"].clone();
    for relist in relists.as_array_mut().unwrap() {
        relist.as_object_mut().unwrap().remove("tree");
    }
    relists
}

/// The moment of the report, and of the probes.
fn moments(report: &Value) -> (u64, u64) {
    let at = |moment: &Value| moment["mono_ns"].as_u64().unwrap();
    (at(&report["taken_at"]), at(&report["observed"]["from_at"]))
}

fn monotonic_ns() -> u64 {
    plegtrace::clock::monotonic_ns()
}

/// Is the culprit the one that the fault made, and the container its? `midway`: it was named before the fault was all
/// there, which for a restart means: before the new process answered.
fn check_culprit(kind: Kind, finding: &Value, facts: &Facts, midway: bool) {
    let culprit = &finding["culprit"];
    let pid = culprit["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    match kind {
        // There is no process any more, or no single one.
        Kind::ContainerdKilled | Kind::KubeletKilled | Kind::ExecStorm => {
            assert_eq!(pid, None, "{kind:?}: {culprit}");
        }
        Kind::ContainerdRestarted if midway && pid.is_none() => {
            assert!(culprit["sentence"].as_str().unwrap().contains("killed by signal 9"), "{finding}");
        }
        // What hangs, waits or is frozen is the victim itself.
        Kind::Rc93 | Kind::Rc93Standalone | Kind::OrphanedInit | Kind::ContainerFrozen => {
            assert!(facts.victims.contains(&pid.unwrap()), "{kind:?}: {facts:?}\n{finding}");
        }
        _ => {
            let pid = pid.unwrap_or_else(|| panic!("{kind:?} has no culprit: {finding}"));
            assert!(facts.culprits.contains(&pid), "{kind:?}: {facts:?}\n{finding}");
        }
    }
    let container = &culprit["container"];
    let known = |id: &Value| id.as_str().is_some_and(|id| facts.ids.iter().any(|known| known == id));
    if !facts.ids.is_empty() {
        let named = known(&container["id"]) || known(&container["sandbox"]);
        assert!(named, "{kind:?}: not {:?} in\n{finding}", facts.ids);
    }
}

/// Nothing but the fault is blamed: neither decoy, nor what merely waits.
fn check_others(kind: Kind, findings: &[Value], facts: &Facts) {
    for other in &findings[1..] {
        let pid = other["culprit"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let mine = pid.is_some_and(|pid| facts.culprits.contains(&pid) || facts.victims.contains(&pid));
        let notice = other["severity"] == "notice";
        assert!(mine || notice, "{kind:?} also blames\n{other:#}");
    }
}

fn inject_and_name(node: &Node, kind: Kind, moment: Moment, pod: &str) -> Row {
    // A decoy takes its three seconds while plegtrace starts or observes.
    let gates = node.containerd().knobs().gates;
    let decoy = gates.then(|| Kind::CniSlow.inject(node, pod).unwrap());
    let mut early = (moment == Moment::During).then(|| trace(node, kind));
    if let Some(early) = early.as_mut() {
        early.wait_until_armed(LIMIT).unwrap();
    }
    let injecting = monotonic_ns();
    let fault = kind.inject(node, pod).unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
    let facts = fault.facts().clone();
    let injected = monotonic_ns();
    let ended = early.unwrap_or_else(|| trace(node, kind)).finish(LIMIT).unwrap();
    fault.heal().unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
    drop(decoy);

    let report: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{kind:?}: {error}: {}\n{}", ended.stdout, ended.stderr));
    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let id = kind.root_cause().expect("a fault has a cause");
    let told = serde_json::to_string_pretty(&report["diagnosis"]).unwrap();
    let stuck = serde_json::to_string_pretty(&report["stuck"]).unwrap();
    let first = findings.first().unwrap_or_else(|| {
        panic!("{kind:?} {moment:?}: nothing is named\n{told}\n{stuck}\n{}", relists(&report))
    });
    assert_eq!(first["id"], id, "{kind:?} {moment:?}\n{told}\n{stuck}");
    let (taken, armed) = moments(&report);
    check_culprit(kind, first, &facts, taken < injected);
    check_others(kind, findings, &facts);
    let code = if first["severity"] == "stall" { 1 } else { 0 };
    assert_eq!(ended.status.code(), Some(code), "{kind:?}: {told}");

    let rule = rules::by_id(id).unwrap();
    // The innermost process may be as old as the begin of the injection.
    let possible = armed.max(injecting + rule.min_age_ns);
    let after = Duration::from_nanos(taken.saturating_sub(possible));
    assert!(
        after <= NAMED_WITHIN + Duration::from_nanos(injected - injecting),
        "{kind:?} {moment:?}: {after:?} later\n{told}"
    );
    let (headline, after_s) = (&first["headline"], after.as_secs_f64());
    eprintln!("{kind:?} {moment:?} in {pod}: {id}, {after_s:.1} s after it could be named: {headline}");
    Row { fault: kind.name(), id, proof: rule.proof.name(), after }
}

/// After a fault the node is what it was.
fn wait_until_well(node: &Node) {
    node.wait_for_relists(3, LIMIT).unwrap();
    let began = Instant::now();
    let gone = || Ok((process::marked(node.containerd().scratch().path()).len() < 200).then_some(()));
    process::wait_for("a quiet node", LIMIT, gone).unwrap();
    assert!(began.elapsed() < LIMIT);
}

/// Faults that hit everything, of a node with gates.
fn of_gates(kind: &Kind) -> bool {
    !matches!(kind, Kind::Rc93 | Kind::CniSlow | Kind::FullChannel | Kind::ManyChangedPods)
}

/// Those that the environment names, else all.
fn is_wanted(kind: Kind) -> bool {
    let only = std::env::var(ONLY).unwrap_or_default();
    only.is_empty() || only.split(',').any(|name| name == kind.name())
}

/// Of a daemon that was not there when we came nothing but its files could tell; and what is over, is over.
fn only_during(kind: Kind) -> bool {
    let restarted = matches!(kind, Kind::ContainerdRestarted | Kind::ManyChangedPods);
    restarted || matches!(kind, Kind::ContainerdKilled | Kind::KubeletKilled)
}

/// A fault that needs a node of its own, which is gone afterwards; the decoys are there as well.
fn on_its_own_node(kind: Kind, rows: &mut Vec<Row>) {
    if is_wanted(kind) {
        let needed = kind.knobs();
        let pods = needed.pods.max(2);
        let node = Node::start(&Knobs { pods, gates: true, exec_probes: true, ..needed }).unwrap();
        if kind == Kind::ManyChangedPods {
            fault::fill_pods(&node).unwrap();
        }
        let moment = if only_during(kind) { Moment::During } else { Moment::Before };
        rows.push(inject_and_name(&node, kind, moment, "p1"));
    }
}

/// Every fault, named first, with the right culprit, within its time, whatever runs beside it.
#[test]
fn every_fault_is_named() {
    host::require_root().unwrap();
    let mut draw = Draw::from_environment();
    eprintln!("{draw}");
    let mut kinds: Vec<Kind> = Kind::all().iter().copied().filter(of_gates).collect();
    kinds.retain(|kind| is_wanted(*kind));
    draw.shuffle(&mut kinds);
    let knobs = Knobs { gates: true, exec_probes: true, pods: PODS, ..Knobs::default() };
    let node = Node::start(&knobs).unwrap();
    let mut rows = Vec::new();
    for kind in kinds {
        let pod = format!("p{}", 1 + draw.below(PODS));
        let moment = if only_during(kind) || draw.below(2) == 0 { Moment::During } else { Moment::Before };
        rows.push(inject_and_name(&node, kind, moment, &pod));
        wait_until_well(&node);
    }
    drop(node);
    on_its_own_node(Kind::Rc93, &mut rows);
    on_its_own_node(Kind::FullChannel, &mut rows);
    on_its_own_node(Kind::ManyChangedPods, &mut rows);
    if Kind::all().iter().all(|kind| is_wanted(*kind)) {
        matrix::publish(&mut rows);
    }
}
