//! The fault matrix: every fault of the lab is diagnosed by the program as its users run it, by one that was there before and
//! by one that came later, as text and as JSON. Order and pod are drawn at random; a slow but healthy CNI plugin and exec
//! probes run beside it and must not be blamed.

mod brief;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brief::End;
use plegtrace::diagnose::rules;
use plegtrace_lab::fault::{self, Facts, Kind};
use plegtrace_lab::{Generation, Knobs, Node, host, process};
use plegtrace_tests::claim;
use plegtrace_tests::draw::Draw;
use plegtrace_tests::faults::check::{Named, Report, check, possible_ns};
use plegtrace_tests::faults::{Case, Injected, Observer, kept, named_within, needed_s, only_early, said};
use plegtrace_tests::matrix::{self, Row};
use plegtrace_tests::packed::Draft;
use plegtrace_tests::program::{Ended, Running};
use plegtrace_tests::recordings;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// After its threshold, when it begins in the middle of an observation.
const NAMED_SOON: Duration = Duration::from_secs(2);
/// So many relists a calm node is watched before.
const CALM_RELISTS: u32 = 14;
const PODS: usize = 3;
/// So often a fault is injected that ends by itself.
const TRIES: u32 = 3;
/// Observes until a cause is certain.
const UNTIL_FOUND: &[&str] = &["-d", "60", "--until-found"];
/// So long the network plugin takes that must not be blamed, in seconds: one that takes ten is.
const DECOY: u32 = 8;
/// Names of faults, separated by commas: only those are tried, and of the table in `tracer/docs/causes.md` only their rows are looked at.
const ONLY: &str = "PLEGTRACE_FAULTS";

fn trace(node: &Node, output: &[&str], duration: &[&str]) -> Running {
    trace_into(None, node, output, duration)
}

/// The same, recorded in a file on a machine that has the name of every node.
fn trace_into(file: Option<&Path>, node: &Node, output: &[&str], duration: &[&str]) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let all = [output, duration, &about].concat();
    match file {
        Some(file) => Running::spawn(recordings::recorder(file).unwrap().args(all)).unwrap(),
        None => Running::start(&all).unwrap(),
    }
}

/// One that comes when the fault is there.
fn trace_late(file: Option<&Path>, node: &Node, kind: Kind, output: &[&str]) -> Running {
    match needed_s(kind, Observer::Late) {
        Some(seconds) => trace_into(file, node, output, &["-d", &seconds.to_string()]),
        None => trace_into(file, node, output, UNTIL_FOUND),
    }
}

/// The same as the README has it: nobody says which kubelet and which runtime are meant.
fn find_late(kind: Kind, output: &[&str]) -> Running {
    let seconds = needed_s(kind, Observer::Late).map(|seconds| seconds.to_string());
    let duration = seconds.as_ref().map_or(UNTIL_FOUND.to_vec(), |seconds| vec!["-d", seconds]);
    Running::start(&[output, &duration].concat()).unwrap()
}

/// The end of one that was there before, when it has seen the fault for as long as it needs.
fn finish_early(early: Running, kind: Kind, injected: Instant) -> Ended {
    if let Some(seconds) = needed_s(kind, Observer::Early) {
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
    let until: &[&str] = if needed_s(kind, Observer::Early).is_some() { &["-d", "600"] } else { UNTIL_FOUND };
    let kept = [Observer::Early, Observer::Late].map(|observer| kept::wanted(kind, observer));
    let [early_file, late_file] = kept.each_ref().map(|draft| draft.as_ref().map(Draft::file));
    let mut early = trace_into(early_file, node, &["-v", "-o", "json"], until);
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
            trace_late(late_file, node, kind, json),
            if is_loud(kind) { find_late(kind, text) } else { trace_late(None, node, kind, text) },
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
        && end.came_too_early(possible_ns(kind, &Report::of(json), &injected))
    {
        return None;
    }

    let case = |observer| Case { kind, observer, facts: facts.clone(), injected, tester: std::process::id() };
    let mut after = is_right(&case(Observer::Early), &early, early_file).after;
    let mut since_start = None;
    if let Some([json, text]) = late {
        let case = case(Observer::Late);
        let named = is_right(&case, &json, late_file);
        after = after.max(named.after);
        since_start = needed_s(kind, Observer::Late).is_none().then_some(named.since_start);
        said::check_text(&case, &text.stdout);
    }
    let id = kind.root_cause().expect("a fault has a cause");
    Some(Row { fault: kind.name(), id, proof: rules::by_id(id).unwrap().proof.name(), after, since_start })
}

/// What an observer reported is right, and soon; then its recording is kept, if there is one.
fn is_right(case: &Case, ended: &Ended, recording: Option<&Path>) -> Named {
    let Case { kind, observer, .. } = case;
    let report = Report::of(ended);
    let named = check(case, &report);
    // Where nothing ends the observation but its length, the report comes at its end.
    claim::soon_within(
        &format!("{}_named_{observer:?}", kind.name()),
        named.after,
        named_within(*kind, *observer),
    );
    let (id, headline) = (kind.root_cause(), &report.document["diagnosis"]["findings"][0]["headline"]);
    let after = named.after.as_secs_f64();
    matrix::log(&format!(
        "{kind:?} {observer:?}: {} {after:.1} s after it could be named: {headline}",
        id.unwrap_or_default()
    ));
    if let Some(file) = recording {
        kept::keep(case, file).unwrap_or_else(|error| panic!("{kind:?} {observer:?}: {error:#}"));
    }
    named
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
            | Kind::NriLocks
            | Kind::LostExit
            | Kind::SlowUmount
            | Kind::UmountHostage
            | Kind::DevicePlugin
            | Kind::SilentApiServer
            | Kind::LockedKubelet
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

/// A node that this fault needs for itself; the decoys are there as well.
fn own_node(kind: Kind) -> Node {
    let needed = kind.knobs();
    let pods = needed.pods.max(2);
    // Probes in all of many pods would be a storm (O2).
    let probes = Knobs { exec_probes: true, probed_pods: PODS, ..needed };
    // The slow plugin writes to the disk of containerd: when that is slow, it is a fault of its own (R2).
    Node::start(&Knobs { pods, gates: !needed.disk, ..probes }).unwrap()
}

/// What went wrong, fault by fault: one that is not named hides no other.
static WRONG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Names a fault of this node; `None` when that went wrong, and the node is not to be used any more.
fn named(node: &Node, kind: Kind, pod: &str) -> Option<Row> {
    let row = catch_unwind(AssertUnwindSafe(|| {
        let row = inject_and_name(node, kind, pod);
        wait_until_well(node);
        row
    }));
    row.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text =
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        matrix::log(&format!("{kind:?} of {pod} WRONG: {text}"));
        if let Some(dir) = node.keep_logs(&format!("matrix-{}", kind.name())) {
            matrix::log(&format!("LOGS {}", dir.display()));
        }
        WRONG.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    })
    .ok()
}

/// A fault that needs a node of its own, which is gone afterwards.
fn on_its_own_node(kind: Kind, rows: &mut Vec<Row>) {
    if is_wanted(kind) && is_possible(&kind) {
        let node = own_node(kind);
        if kind == Kind::ManyChangedPods {
            fault::fill_pods(&node).unwrap();
        }
        rows.extend(named(&node, kind, "p1"));
    }
}

/// A fault of containerd 2 on a node of its own, and one that goes through other functions there than in its predecessors.
fn on_the_newest_runtime(rows: &mut Vec<Row>) {
    let kind = Kind::CniReload;
    if is_wanted(kind) {
        let node = own_node(kind);
        let row = named(&node, kind, "p1");
        if row.is_some() {
            named(&node, Kind::LockHostage, "p2");
        }
        rows.extend(row);
    }
}

/// When all is healed, nothing is stuck any more.
pub(super) fn is_healed(node: &Node) {
    let ended = trace(node, &["-q", "-o", "json"], &["-d", "5"]).finish(LIMIT).unwrap();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["stuck"].as_array().unwrap().as_slice(), [] as [Value; 0], "{}", report["stuck"]);
    assert_eq!(ended.status.code(), Some(0), "{}", report["diagnosis"]);
}

/// A fault, and the pod that it shall hit.
type Target = (Kind, String);

/// Most faults, in any order, each in any pod.
fn drawn(generation: Generation, is_mine: fn(Kind) -> bool) -> Vec<Target> {
    let mut draw = Draw::from_environment();
    matrix::log(&format!("containerd {generation}, {draw}"));
    let mut kinds: Vec<Kind> = Kind::all().iter().copied().filter(of_gates).collect();
    kinds.retain(|kind| is_mine(*kind) && is_wanted(*kind) && is_possible(kind));
    draw.shuffle(&mut kinds);
    kinds.into_iter().map(|kind| (kind, format!("p{}", 1 + draw.below(PODS)))).collect()
}

/// These faults one after the other on one node with this containerd.
fn on_a_shared_node(generation: Generation, cases: &[Target]) -> Vec<Row> {
    if cases.is_empty() {
        return Vec::new();
    }
    let knobs = Knobs { generation, gates: true, exec_probes: true, pods: PODS, ..Knobs::default() };
    let (mut node, mut rows) = (None, Vec::new());
    for (kind, pod) in cases {
        let own = node.take().unwrap_or_else(|| Node::start(&knobs).unwrap());
        if let Some(row) = named(&own, *kind, pod) {
            rows.push(row);
            node = Some(own);
        }
    }
    node.iter().for_each(is_healed);
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
    let mut quiet: Vec<Target> = drawn(generation, |kind| !is_loud(kind));
    let second = quiet.split_off(quiet.len() * 3 / 5);
    thread::scope(|scope| {
        let first = scope.spawn(|| on_a_shared_node(generation, &quiet));
        let mut rows = on_a_shared_node(generation, &second);
        on_its_own_node(Kind::Rc93, &mut rows);
        on_its_own_node(Kind::LostExit, &mut rows);
        on_its_own_node(Kind::CniDeadlock, &mut rows);
        on_its_own_node(Kind::NriLocks, &mut rows);
        on_its_own_node(Kind::SlowUmount, &mut rows);
        on_its_own_node(Kind::UmountHostage, &mut rows);
        on_its_own_node(Kind::DevicePlugin, &mut rows);
        on_its_own_node(Kind::SilentApiServer, &mut rows);
        on_its_own_node(Kind::LockedKubelet, &mut rows);
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
    finish(&quiet_rows(), |kind| !is_loud(kind));
}

/// The loud ones, on the only node of the machine, which plegtrace has to find by itself.
pub(super) fn loud_faults_are_named() {
    host::require_root().unwrap();
    let generation = Generation::default();
    let mut rows = on_a_shared_node(generation, &drawn(generation, is_loud));
    on_its_own_node(Kind::ManyChangedPods, &mut rows);
    finish(&rows, is_loud);
}

/// Nothing of what ran since the last time went wrong.
fn assert_none_is_wrong() {
    let wrong = std::mem::take(&mut *WRONG.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(wrong.is_empty(), "{} faults went wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Half of that table.
fn finish(rows: &[Row], is_mine: fn(Kind) -> bool) {
    assert_none_is_wrong();
    matrix::log_median(rows);
    let mine = Kind::all().iter().filter(|kind| is_mine(**kind) && is_wanted(**kind));
    let names: Vec<String> = mine.map(|kind| kind.name()).collect();
    matrix::publish(rows, &names);
}

/// The same with another containerd.
fn every_fault_is_named_on(generation: Generation) {
    host::require_root().unwrap();
    let cases = drawn(generation, |_| true);
    let rows = on_a_shared_node(generation, &cases);
    assert_none_is_wrong();
    assert!(!cases.is_empty(), "no fault was drawn");
    assert_eq!(rows.len(), cases.len());
}

#[test]
#[ignore = "takes ten minutes: cargo xtask soak"]
fn every_fault_is_named_on_containerd_1_4() {
    every_fault_is_named_on(Generation::V1_4);
}

#[test]
#[ignore = "takes ten minutes: cargo xtask soak"]
fn every_fault_is_named_on_containerd_1_7() {
    every_fault_is_named_on(Generation::V1_7);
}

#[test]
#[ignore = "takes ten minutes: cargo xtask soak"]
fn every_fault_is_named_on_containerd_2_1() {
    every_fault_is_named_on(Generation::V2_1);
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
        let case = Case { kind, observer: Observer::Early, facts, injected, tester: std::process::id() };
        let after = is_right(&case, &ended, None).after;
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
    let late = [&["-q", "-o", "json"][..], &["-q"]].map(|output| trace_late(None, &node, kind, output));
    let [json, text] = late.map(|run| run.finish(LIMIT).unwrap());
    let facts = frozen.facts().clone();
    frozen.heal().unwrap();
    let case = Case { kind, observer: Observer::Late, facts, injected, tester: std::process::id() };
    is_right(&case, &json, None);
    said::check_text(&case, &text.stdout);
    let report = Report::of(&json).document;
    assert_eq!(said::check_stuck(kind, &report, &case.facts).unwrap()["freezer"]["version"], 2, "{report}");
    node.wait_for_relists(3, LIMIT).unwrap();
    is_healed(&node);
}
