//! The fault matrix: every fault of the lab is diagnosed by the program as its users run it, by one that was there before and
//! by one that came later, as text and as JSON. Order and pod are drawn at random; a slow but healthy CNI plugin and exec
//! probes run beside it and must not be blamed.

mod check;
mod said;

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use check::{Injected, check};
use plegtrace::diagnose::rules;
use plegtrace_lab::fault::{self, Facts, Kind};
use plegtrace_lab::{Generation, Knobs, Node, host, process};
use plegtrace_tests::draw::Draw;
use plegtrace_tests::matrix::{self, Row};
use plegtrace_tests::program::{Ended, Running};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// A cause is named so long after it could be, at most.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
/// After its threshold, when it begins in the middle of an observation.
const NAMED_SOON: Duration = Duration::from_secs(2);
/// So many relists a calm node is watched before.
const CALM_RELISTS: u32 = 14;
/// For the last look at the end of an observation.
const LAST_LOOK: Duration = Duration::from_secs(2);
const PODS: usize = 3;
/// Observes until a cause is certain.
const UNTIL_FOUND: &[&str] = &["-d", "60", "--until-found"];
/// So long the network plugin takes that must not be blamed, in seconds: one that takes ten is.
const DECOY: u32 = 8;
/// Names of faults, separated by commas: only those are tried, and the README is left alone.
const ONLY: &str = "PLEGTRACE_FAULTS";

/// When plegtrace is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Observer {
    /// Before the fault: it sees it begin.
    Early,
    /// When the fault is there.
    Late,
}

/// How long plegtrace has to see a fault, in seconds; `None`: what is certain ends the observation. A notice does not, and
/// a full channel comes with the lock that fills it: their report is due within the limit.
fn needed_s(kind: Kind) -> Option<u64> {
    match kind {
        // It has to last five seconds first.
        Kind::ExecStorm => Some(12),
        Kind::ContainerdRestarted | Kind::FullChannel => Some(8),
        // The kubelet takes its time to start.
        Kind::ManyChangedPods => Some(11),
        // Ten relists at least, also of a kubelet that waits half a second for each.
        Kind::Quota | Kind::Hog => Some(15),
        _ => None,
    }
}

/// How long after it could be named a fault has to be, at most.
fn named_within(kind: Kind) -> Duration {
    needed_s(kind).map_or(NAMED_WITHIN, |needed| Duration::from_secs(needed) + LAST_LOOK)
}

fn trace(node: &Node, output: &[&str], duration: &[&str]) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    Running::start(&[output, duration, &about].concat()).unwrap()
}

/// One that comes when the fault is there.
fn trace_late(node: &Node, kind: Kind, output: &[&str]) -> Running {
    match needed_s(kind) {
        Some(seconds) => trace(node, output, &["-d", &seconds.to_string()]),
        None => trace(node, output, UNTIL_FOUND),
    }
}

/// The same as the README has it: nobody says which kubelet and which runtime are meant.
fn find_late(kind: Kind, output: &[&str]) -> Running {
    let seconds = needed_s(kind).map(|seconds| seconds.to_string());
    let duration = seconds.as_ref().map_or(UNTIL_FOUND.to_vec(), |seconds| vec!["-d", seconds]);
    Running::start(&[output, &duration].concat()).unwrap()
}

/// The end of one that was there before, when it has seen the fault for as long as it needs.
fn finish_early(early: Running, kind: Kind, injected: Instant) -> Ended {
    if let Some(seconds) = needed_s(kind) {
        let needed = Duration::from_secs(seconds);
        let seen = || Ok((injected.elapsed() >= needed).then_some(()));
        process::wait_for("a fault that is seen long enough", needed + LIMIT, seen).unwrap();
        early.signal(libc::SIGINT).unwrap();
    }
    early.finish(LIMIT).unwrap()
}

fn monotonic_ns() -> u64 {
    plegtrace::clock::monotonic_ns()
}

/// It is there now, and so are those who come later.
fn injected(from_ns: u64) -> Injected {
    let to_ns = monotonic_ns();
    Injected { from_ns, to_ns, late_ns: to_ns }
}

/// Which processes of the fault there are. The hang of runc 1.0.0-rc93 would be ended by any signal.
fn alive(facts: &Facts) -> Vec<u32> {
    let all = facts.victims.iter().chain(&facts.culprits).copied();
    all.filter(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()).collect()
}

/// One injection, three observers: one that was there before, and two that came when it had happened, of which one writes
/// for a person.
fn inject_and_name(node: &Node, kind: Kind, pod: &str) -> Row {
    let until: &[&str] = if needed_s(kind).is_some() { &["-d", "600"] } else { UNTIL_FOUND };
    let mut early = trace(node, &["-v", "-o", "json"], until);
    early.wait_until_armed(LIMIT).unwrap();
    // A decoy: a network plugin that is slow, and nearly as slow as one that hangs.
    let decoy = node.containerd().knobs().gates.then(|| fault::slow_cni(node, DECOY).unwrap());
    let from_ns = monotonic_ns();
    let fault = kind.inject(node, pod).unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
    let (injected, done) = (injected(from_ns), Instant::now());
    let facts = fault.facts().clone();
    let outputs: [&[&str]; 2] = [&["-q", "-o", "json"], &["-q"]];
    let late = (!only_early(kind)).then(|| {
        let [json, text] = outputs;
        [
            trace_late(node, kind, json),
            if is_loud(kind) { find_late(kind, text) } else { trace_late(node, kind, text) },
        ]
    });
    let there = alive(&facts);
    let early = finish_early(early, kind, done);
    let late = late.map(|late| late.map(|run| run.finish(LIMIT).unwrap()));
    assert_eq!(alive(&facts), there, "{kind:?}: to be observed changes nothing");
    fault.heal().unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
    drop(decoy);

    let mut after = check(kind, Observer::Early, &early, &facts, &injected).after;
    let mut since_start = None;
    if let Some([json, text]) = late {
        let named = check(kind, Observer::Late, &json, &facts, &injected);
        after = after.max(named.after);
        since_start = needed_s(kind).is_none().then_some(named.since_start);
        said::check_text(kind, &text.stdout, &facts);
    }
    let id = kind.root_cause().expect("a fault has a cause");
    Row { fault: kind.name(), id, proof: rules::by_id(id).unwrap().proof.name(), after, since_start }
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
    let own = matches!(
        kind,
        Kind::Rc93
            | Kind::FullChannel
            | Kind::ManyChangedPods
            | Kind::CniReload
            | Kind::CniDeadlock
            | Kind::LostExit
    );
    !own && *kind != Kind::CniSlow
}

/// Those that the environment names, else all.
fn is_wanted(kind: Kind) -> bool {
    let only = std::env::var(ONLY).unwrap_or_default();
    only.is_empty() || only.split(',').any(|name| name == kind.name())
}

/// Those that this machine can have; the others are declared.
fn is_possible(kind: &Kind) -> bool {
    kind.check().map_err(|why| host::declare_skip(&kind.name(), &why)).is_ok()
}

/// Of a daemon that was not there when we came nothing but its files could tell; and what is over, is over.
fn only_early(kind: Kind) -> bool {
    let restarted = matches!(kind, Kind::ContainerdRestarted | Kind::ManyChangedPods);
    restarted || matches!(kind, Kind::ContainerdKilled | Kind::KubeletKilled)
}

/// A node that this fault needs for itself; the decoys are there as well.
fn own_node(kind: Kind) -> Node {
    let needed = kind.knobs();
    let pods = needed.pods.max(2);
    // Probes in all of many pods would be a storm (O2).
    let probes = Knobs { exec_probes: true, probed_pods: PODS, ..needed };
    Node::start(&Knobs { pods, gates: true, ..probes }).unwrap()
}

/// A fault that needs a node of its own, which is gone afterwards.
fn on_its_own_node(kind: Kind, rows: &mut Vec<Row>) {
    if is_wanted(kind) {
        let node = own_node(kind);
        if kind == Kind::ManyChangedPods {
            fault::fill_pods(&node).unwrap();
        }
        rows.push(inject_and_name(&node, kind, "p1"));
    }
}

/// A fault of containerd 2 on a node of its own, and one that goes through other functions there than in its predecessors.
fn on_the_newest_runtime(rows: &mut Vec<Row>) {
    let kind = Kind::CniReload;
    if is_wanted(kind) {
        let node = own_node(kind);
        rows.push(inject_and_name(&node, kind, "p1"));
        wait_until_well(&node);
        inject_and_name(&node, Kind::LockHostage, "p2");
    }
}

/// When all is healed, nothing is stuck any more.
fn is_healed(node: &Node) {
    let ended = trace(node, &["-q", "-o", "json"], &["-d", "5"]).finish(LIMIT).unwrap();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["stuck"].as_array().unwrap().as_slice(), [] as [Value; 0], "{}", report["stuck"]);
    assert_eq!(ended.status.code(), Some(0), "{}", report["diagnosis"]);
}

/// A fault, and the pod that it hits.
type Case = (Kind, String);

/// Most faults, in any order, each in any pod.
fn drawn(generation: Generation) -> Vec<Case> {
    let mut draw = Draw::from_environment();
    matrix::log(&format!("containerd {generation}, {draw}"));
    let mut kinds: Vec<Kind> = Kind::all().iter().copied().filter(of_gates).collect();
    kinds.retain(|kind| is_wanted(*kind) && is_possible(kind));
    draw.shuffle(&mut kinds);
    kinds.into_iter().map(|kind| (kind, format!("p{}", 1 + draw.below(PODS)))).collect()
}

/// These faults one after the other on one node with this containerd.
fn on_a_shared_node(generation: Generation, cases: &[Case]) -> Vec<Row> {
    if cases.is_empty() {
        return Vec::new();
    }
    let knobs = Knobs { generation, gates: true, exec_probes: true, pods: PODS, ..Knobs::default() };
    let node = Node::start(&knobs).unwrap();
    let named = |(kind, pod): &Case| {
        let row = inject_and_name(&node, *kind, pod);
        wait_until_well(&node);
        row
    };
    let rows = cases.iter().map(named).collect();
    is_healed(&node);
    rows
}

/// Faults that an observer of another node would notice: they take the processors, or their runc belongs to no runtime, so every
/// plegtrace on the machine finds it.
fn is_loud(kind: Kind) -> bool {
    matches!(kind, Kind::ExecStorm | Kind::Hog | Kind::OrphanedInit | Kind::Rc93Standalone | Kind::Freezing)
}

/// All faults. Nearly all of the time they are waited for, so two nodes have them at the same time: the first one most of
/// those that share a node, the second one the rest, and those that need a node of their own. The loud ones come last; then there is
/// one node alone, which plegtrace has to find by itself.
fn all_rows() -> Vec<Row> {
    let generation = Generation::default();
    let (loud, mut quiet): (Vec<Case>, Vec<Case>) =
        drawn(generation).into_iter().partition(|(kind, _)| is_loud(*kind));
    let second = quiet.split_off(quiet.len() * 3 / 5);
    let mut rows = thread::scope(|scope| {
        let first = scope.spawn(|| on_a_shared_node(generation, &quiet));
        let mut rows = on_a_shared_node(generation, &second);
        on_its_own_node(Kind::Rc93, &mut rows);
        on_its_own_node(Kind::LostExit, &mut rows);
        on_its_own_node(Kind::CniDeadlock, &mut rows);
        on_its_own_node(Kind::FullChannel, &mut rows);
        on_the_newest_runtime(&mut rows);
        rows.extend(first.join().unwrap_or_else(|panic| resume_unwind(panic)));
        rows
    });
    rows.extend(on_a_shared_node(generation, &loud));
    on_its_own_node(Kind::ManyChangedPods, &mut rows);
    rows
}

/// Every fault, named first, with the right culprit, within its time, whatever runs beside it, whether plegtrace was there
/// before or came later.
#[test]
fn every_fault_is_named() {
    host::require_root().unwrap();
    let mut rows = all_rows();
    matrix::log_median(&rows);
    if Kind::all().iter().all(|kind| is_wanted(*kind)) {
        matrix::publish(&mut rows);
    }
}

/// The same with the other containerds, from 1.4 to 2.1.
#[test]
#[ignore = "takes twenty minutes: cargo xtask soak"]
fn every_fault_is_named_on_each_generation() {
    host::require_root().unwrap();
    for generation in Generation::ALL.into_iter().filter(|one| *one != Generation::default()) {
        on_a_shared_node(generation, &drawn(generation));
    }
}

/// Faults that begin while a calm node has been watched for a while are named as soon as they may be: a stop when it has
/// lasted longer than a debugger would hold a process, a `runc` when it is late.
#[test]
fn what_begins_later_is_named_soon() {
    host::require_root().unwrap();
    let still = Duration::from_nanos(plegtrace::correlate::thresholds::STILL_NS);
    let node = Node::start(&Knobs { gates: true, pods: PODS, ..Knobs::default() }).unwrap();
    let late = Duration::ZERO;
    for (kind, threshold) in [(Kind::ShimStopped, still), (Kind::Hook, late), (Kind::Poststop, late)] {
        let mut early = trace(&node, &["-v", "-o", "json"], UNTIL_FOUND);
        early.wait_until_armed(LIMIT).unwrap();
        // Longer than the first looks of a census, which follow each other soon.
        node.wait_for_relists(CALM_RELISTS, LIMIT).unwrap();
        let from_ns = monotonic_ns();
        let fault = kind.inject(&node, "p2").unwrap();
        let injected = injected(from_ns);
        let facts = fault.facts().clone();
        let ended = early.finish(LIMIT).unwrap();
        fault.heal().unwrap();
        let after = check(kind, Observer::Early, &ended, &facts, &injected).after;
        assert!(after <= threshold + NAMED_SOON, "{kind:?}: {after:?}");
        wait_until_well(&node);
    }
}

/// The freezer of cgroups version 2, whatever version the node's containers are in.
#[test]
fn a_shim_that_version_2_froze_is_named() {
    host::require_root().unwrap();
    let kind = Kind::ShimFrozen;
    let node = Node::start(&kind.knobs()).unwrap();
    let from_ns = monotonic_ns();
    let Some(frozen) = fault::frozen_shim_unified(&node, &node.pod("p1").unwrap()).unwrap() else {
        let why = anyhow::anyhow!("no cgroup2 is mounted");
        return host::declare_skip("a shim frozen by version 2", &why);
    };
    let injected = injected(from_ns);
    let late = [trace_late(&node, kind, &["-q", "-o", "json"]), trace_late(&node, kind, &["-q"])];
    let [json, text] = late.map(|run| run.finish(LIMIT).unwrap());
    let facts = frozen.facts().clone();
    frozen.heal().unwrap();
    check(kind, Observer::Late, &json, &facts, &injected);
    said::check_text(kind, &text.stdout, &facts);
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(said::check_stuck(kind, &report, &facts).unwrap()["freezer"]["version"], 2, "{report}");
    node.wait_for_relists(3, LIMIT).unwrap();
    is_healed(&node);
}
