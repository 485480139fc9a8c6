//! The fault matrix: every fault of the lab is diagnosed by the program as its users run it, by one that was there before and
//! by one that came later, as text and as JSON. Order and pod are drawn at random; a slow but healthy CNI plugin and exec
//! probes run beside it and must not be blamed.

mod brief;
mod check;
mod said;

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use brief::End;
use check::{Injected, check, possible_ns};
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
/// Since when a thread waits in the kernel, nobody reads from a socket, or a shim runs nothing, only looks tell, of which the
/// first is due when its request is three seconds old.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// For the last look at the end of an observation.
const LAST_LOOK: Duration = Duration::from_secs(2);
const PODS: usize = 3;
/// So often a fault is injected that ends by itself.
const TRIES: u32 = 3;
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
        // A relist that was there before is seen to stand for five seconds, from the first look at the kubelet's goroutines.
        Kind::FullChannel => Some(12),
        // As the next ones; and two looks at the goroutines of a shim that does not answer, three seconds apart.
        Kind::SilentOldShim => Some(12),
        // One that was there before sees it made: for seconds containerd and kubelet are busy, and on a busy machine held off (O1).
        Kind::LargeList => Some(8),
        // One that was there before sees first that containerd is gone.
        Kind::ContainerdRestarted | Kind::LateRuntime | Kind::OldShim => Some(8),
        // One that was there before sees the shim stopped, which is how the fault is made, on a busy machine for seconds.
        Kind::JammedSocket | Kind::SelfLockedShim => Some(8),
        // The kubelet takes its time to start.
        Kind::ManyChangedPods => Some(11),
        // Ten relists at least, also of a kubelet that waits half a second for each.
        Kind::Quota | Kind::Hog | Kind::ForkStorm => Some(15),
        _ => None,
    }
}

/// The same for one that comes when the fault is there. It has not seen how the fault was made: that containerd was gone, the shim
/// stopped, or the list grew. A runtime that came back late is over by itself within half a minute: what is not certain by then would
/// never be told.
fn needed_late_s(kind: Kind) -> Option<u64> {
    let ends = matches!(
        kind,
        Kind::JammedSocket | Kind::SelfLockedShim | Kind::LargeList | Kind::OldShim | Kind::SilentOldShim
    );
    needed_s(kind).filter(|_| !ends)
}

/// How long after it could be named a fault has to be, at most.
fn named_within(kind: Kind) -> Duration {
    if matches!(kind, Kind::SlowUmount | Kind::JammedSocket | Kind::DeadlockedShim) {
        return NAMED_WITHIN + FIRST_LOOK;
    }
    needed_s(kind).map_or(NAMED_WITHIN, |needed| Duration::from_secs(needed) + LAST_LOOK)
}

fn trace(node: &Node, output: &[&str], duration: &[&str]) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    Running::start(&[output, duration, &about].concat()).unwrap()
}

/// One that comes when the fault is there.
fn trace_late(node: &Node, kind: Kind, output: &[&str]) -> Running {
    match needed_late_s(kind) {
        Some(seconds) => trace(node, output, &["-d", &seconds.to_string()]),
        None => trace(node, output, UNTIL_FOUND),
    }
}

/// The same as the README has it: nobody says which kubelet and which runtime are meant.
fn find_late(kind: Kind, output: &[&str]) -> Running {
    let seconds = needed_late_s(kind).map(|seconds| seconds.to_string());
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

/// Which processes of the fault there are, but those that end by themselves. The hang of runc 1.0.0-rc93 would be ended by any signal.
fn alive(kind: Kind, facts: &Facts) -> Vec<u32> {
    let victims = facts.victims.iter().filter(|_| !brief::ends_by_itself(kind));
    let all = victims.chain(&facts.culprits).copied();
    all.filter(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()).collect()
}

/// One injection that lasts long enough for all its observers.
pub(super) fn inject_and_name(node: &Node, kind: Kind, pod: &str) -> Row {
    let named = (0..TRIES).find_map(|_| {
        let row = try_to_name(node, kind, pod);
        if row.is_none() {
            matrix::log(&format!("{kind:?} was over too early, and is injected again"));
            wait_until_well(node);
        }
        row
    });
    named.unwrap_or_else(|| panic!("{kind:?} was over too early {TRIES} times"))
}

/// One injection, three observers: one that was there before, and two that came when it had happened, of which one writes
/// for a person. `None`: the fault was over by itself before these could name it.
fn try_to_name(node: &Node, kind: Kind, pod: &str) -> Option<Row> {
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
    let (there, end) = (alive(kind, &facts), End::of(kind, &facts));
    let early = finish_early(early, kind, done);
    let late = late.map(|late| late.map(|run| run.finish(LIMIT).unwrap()));
    assert_eq!(alive(kind, &facts), there, "{kind:?}: to be observed changes nothing");
    fault.heal().unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
    drop(decoy);
    let is_unnamed = |run: &Ended| run.status.code() == Some(0);
    if let (Some([json, text]), Some(end)) = (&late, end)
        && (is_unnamed(json) || is_unnamed(text))
        && end.came_too_early(possible_ns(kind, json, &injected))
    {
        return None;
    }

    let mut after = check(kind, Observer::Early, &early, &facts, &injected).after;
    let mut since_start = None;
    if let Some([json, text]) = late {
        let named = check(kind, Observer::Late, &json, &facts, &injected);
        after = after.max(named.after);
        since_start = needed_late_s(kind).is_none().then_some(named.since_start);
        said::check_text(kind, &text.stdout, &facts);
    }
    let id = kind.root_cause().expect("a fault has a cause");
    Some(Row { fault: kind.name(), id, proof: rules::by_id(id).unwrap().proof.name(), after, since_start })
}

/// After a fault the node is what it was.
pub(super) fn wait_until_well(node: &Node) {
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
            | Kind::SlowUmount
            | Kind::JammedSocket
            | Kind::SelfLockedShim
            | Kind::DeadlockedShim
            | Kind::SilentOldShim
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
    // The slow plugin writes to the disk of containerd: when that is slow, it is a fault of its own (R2).
    Node::start(&Knobs { pods, gates: !needed.disk, ..probes }).unwrap()
}

/// A fault that needs a node of its own, which is gone afterwards.
fn on_its_own_node(kind: Kind, rows: &mut Vec<Row>) {
    if is_wanted(kind) && is_possible(&kind) {
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
pub(super) fn is_healed(node: &Node) {
    let ended = trace(node, &["-q", "-o", "json"], &["-d", "5"]).finish(LIMIT).unwrap();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["stuck"].as_array().unwrap().as_slice(), [] as [Value; 0], "{}", report["stuck"]);
    assert_eq!(ended.status.code(), Some(0), "{}", report["diagnosis"]);
}

/// A fault, and the pod that it hits.
type Case = (Kind, String);

/// Most faults, in any order, each in any pod.
fn drawn(generation: Generation, is_mine: fn(Kind) -> bool) -> Vec<Case> {
    let mut draw = Draw::from_environment();
    matrix::log(&format!("containerd {generation}, {draw}"));
    let mut kinds: Vec<Kind> = Kind::all().iter().copied().filter(of_gates).collect();
    kinds.retain(|kind| is_mine(*kind) && is_wanted(*kind) && is_possible(kind));
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
/// plegtrace on the machine finds it. They have the machine to themselves.
fn is_loud(kind: Kind) -> bool {
    let loud = matches!(kind, Kind::OrphanedInit | Kind::Rc93Standalone | Kind::Freezing);
    loud || matches!(kind, Kind::ExecStorm | Kind::Hog | Kind::ForkStorm | Kind::ManyChangedPods)
}

/// All that are not loud. Nearly all of the time they are waited for, so two nodes have them at the same time: the first one most of
/// those that share a node, the second one the rest, and those that need a node of their own.
fn quiet_rows() -> Vec<Row> {
    let generation = Generation::default();
    let mut quiet: Vec<Case> = drawn(generation, |kind| !is_loud(kind));
    let second = quiet.split_off(quiet.len() * 3 / 5);
    thread::scope(|scope| {
        let first = scope.spawn(|| on_a_shared_node(generation, &quiet));
        let mut rows = on_a_shared_node(generation, &second);
        on_its_own_node(Kind::Rc93, &mut rows);
        on_its_own_node(Kind::LostExit, &mut rows);
        on_its_own_node(Kind::CniDeadlock, &mut rows);
        on_its_own_node(Kind::SlowUmount, &mut rows);
        on_its_own_node(Kind::JammedSocket, &mut rows);
        on_its_own_node(Kind::SelfLockedShim, &mut rows);
        on_its_own_node(Kind::DeadlockedShim, &mut rows);
        on_its_own_node(Kind::SilentOldShim, &mut rows);
        on_its_own_node(Kind::FullChannel, &mut rows);
        on_the_newest_runtime(&mut rows);
        rows.extend(first.join().unwrap_or_else(|panic| resume_unwind(panic)));
        rows
    })
}

/// Every fault, named first, with the right culprit, within its time, whatever runs beside it, whether plegtrace was there
/// before or came later. Those that an observer of another node would notice are in `matrix_loud`.
#[test]
fn every_fault_is_named() {
    host::require_root().unwrap();
    finish(quiet_rows(), |kind| !is_loud(kind));
}

/// The loud ones, on the only node of the machine, which plegtrace has to find by itself.
pub(super) fn loud_faults_are_named() {
    host::require_root().unwrap();
    let generation = Generation::default();
    let mut rows = on_a_shared_node(generation, &drawn(generation, is_loud));
    on_its_own_node(Kind::ManyChangedPods, &mut rows);
    finish(rows, is_loud);
}

/// Half of the README's table.
fn finish(mut rows: Vec<Row>, is_mine: fn(Kind) -> bool) {
    matrix::log_median(&rows);
    let mine: Vec<Kind> = Kind::all().iter().copied().filter(|kind| is_mine(*kind)).collect();
    if mine.iter().all(|kind| is_wanted(*kind)) {
        let names: Vec<String> = mine.iter().map(|kind| kind.name()).collect();
        matrix::publish(&mut rows, &names);
    }
}

/// The same with the other containerds, from 1.4 to 2.1.
#[test]
#[ignore = "takes twenty minutes: cargo xtask soak"]
fn every_fault_is_named_on_each_generation() {
    host::require_root().unwrap();
    for generation in Generation::ALL.into_iter().filter(|one| *one != Generation::default()) {
        on_a_shared_node(generation, &drawn(generation, |_| true));
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
