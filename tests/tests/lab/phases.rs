//! A real runc that hangs says in which phase: it waits for a hook, or its init loads a seccomp filter that it never gets
//! loaded; and when all is well again nothing of that stays.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use plegtrace::correlate::{Phase, ProcessKind, Snapshot};
use plegtrace::diagnose::diagnose;
use plegtrace::input::{Component, Layer, RefusedFact};
use plegtrace::render::{
    json,
    text::{self, TextOptions},
};
use plegtrace::words;
use plegtrace_lab::fault::Kind;
use plegtrace_lab::packages::Suite;
use plegtrace_lab::{Containerd, Knobs, Network, Node, host, process};
use plegtrace_tests::watching::Watching;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// Seconds; an observation ends when there is no more to be seen.
const LONG: &str = "120";
/// Far below what the kernel waits for a lease to be given up (`/proc/sys/fs/lease-break-time`, 45 s).
const GIVES_WAY: Duration = Duration::from_secs(5);

/// A runc that hangs.
struct Case {
    fault: Kind,
    runc: Suite,
    /// What is in the phase.
    process: &'static str,
    /// Function of that phase, by version.
    operations: &'static [&'static str],
    /// The phase around it, if there is one in all versions.
    around: Option<&'static str>,
}

const HOOKS: &[&str] = &["configs.HookList.RunHooks", "configs.Hooks.Run"];

fn watch(node: &Node, arguments: &[&str]) -> Watching {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let watching = Watching::start(&[arguments, &about[..]].concat()).unwrap();
    watching.wait_until_armed().unwrap();
    watching.wait_until_runc_is_probed().unwrap();
    watching
}

fn name(kind: &ProcessKind) -> String {
    kind.to_string()
}

/// The phases of the process that hangs.
fn phases<'a>(snapshot: &'a Snapshot, case: &Case, pids: &[u32]) -> &'a [Phase] {
    let open = &snapshot.processes.open;
    let hangs = |process: &&plegtrace::correlate::OpenProcess| {
        name(&process.kind) == case.process && pids.contains(&process.pid) && !process.phases.is_empty()
    };
    let process = open.iter().find(hangs);
    &process
        .unwrap_or_else(|| {
            panic!("{}: no phase of {} {pids:?} in {open:#?}", case.fault.name(), case.process)
        })
        .phases
}

fn check(snapshot: &Snapshot, case: &Case, pids: &[u32]) {
    let fault = case.fault.name();
    let phases = phases(snapshot, case, pids);
    let innermost = phases.last().unwrap();
    eprintln!("{fault}, runc of {}: {} > {:?}", case.runc, case.process, words::phase_path(phases));
    assert!(case.operations.contains(&innermost.operation.as_str()), "{fault}: {phases:?}");
    if let Some(around) = case.around {
        assert!(phases.iter().any(|phase| phase.operation.ends_with(around)), "{fault}: {phases:?}");
    }
    let inside = |pair: &[Phase]| pair[0].start <= pair[1].start;
    assert!(phases.windows(2).all(inside), "outermost first: {phases:?}");
    let diagnosis = diagnose(snapshot);
    let mut out = Vec::new();
    json::report(snapshot, &diagnosis, &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    let open = document["processes"]["open"].as_array().unwrap();
    let told = open.iter().any(|process| {
        let last = process["phase"].as_array().and_then(|phases| phases.last());
        last.is_some_and(|last| {
            last["operation"] == *innermost.operation && last["age_ns"].as_u64() > Some(0)
        })
    });
    assert!(told, "{fault}: {open:#?}");
    let mut out = Vec::new();
    text::report(
        snapshot,
        &diagnosis,
        &TextOptions { verbose: true, width: 200, ..TextOptions::default() },
        &mut out,
    )
    .unwrap();
    let page = String::from_utf8(out).unwrap();
    // As who waits, or as what does not end; not only in the list of processes.
    let said = words::phase(phases).unwrap();
    assert!(page.contains(said.split(", ").next().unwrap()), "{fault}: {said} is not in\n{page}");
}

/// One fault from its begin to after its end.
fn hangs(case: &Case) {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { runc: case.runc, ..case.fault.knobs() }).unwrap();
    let all = watch(&node, &["-d", LONG]);
    let until_found = watch(&node, &["-d", LONG, "--until-found"]);
    let fault = case.fault.inject(&node, "p1").unwrap_or_else(|error| panic!("{:?}: {error:#}", case.fault));
    let (snapshot, _) = until_found.finish().unwrap();
    // A delete that takes too long is tried again: the runc of the fault's begin may have been killed.
    let mut pids = fault.facts().victims.clone();
    pids.extend(&fault.facts().culprits);
    pids.extend(
        snapshot.processes.open.iter().map(|process| process.pid).filter(|_| case.fault == Kind::Poststop),
    );
    check(&snapshot, case, &pids);
    match fault.heal() {
        // containerd may be between two tries of that delete, and not let the container be removed before the next.
        Err(error) if case.fault == Kind::Poststop => eprintln!("{error:#}"),
        healed => healed.unwrap(),
    }
    process::wait_for("the end of all phases", LIMIT, || {
        let seen = all.seen();
        Ok(seen.open_phases().next().is_none().then_some(()))
    })
    .unwrap();
    let (after, seen) = all.interrupt().unwrap();
    let left: Vec<_> = seen.open_phases().collect();
    assert!(left.is_empty(), "{}: {left:?}", case.fault.name());
    assert!(
        after.processes.open.iter().all(|process| process.phases.is_empty()),
        "{:#?}",
        after.processes.open
    );
    assert_eq!(after.real_losses().count(), 0, "{:?}", after.losses);
    let no_phases = |refused: &RefusedFact| refused.matters && refused.component == Some(Component::Runc);
    assert!(!seen.refused.iter().any(no_phases), "{:?}", seen.refused);
}

/// `runc create` waits for its hook: built with Go 1.19, and with Go 1.15, whose goroutines are found otherwise.
#[test]
fn a_hook_is_the_phase_of_its_runc() {
    for runc in [Suite::Bookworm, Suite::Bullseye] {
        let around = Some("start");
        hangs(&Case { fault: Kind::Hook, runc, process: "runc create", operations: HOOKS, around });
    }
}

/// `runc delete` waits for its hook.
#[test]
fn a_poststop_hook_is_the_phase_of_its_runc() {
    let around = Some("destroy");
    let runc = Suite::Bookworm;
    hangs(&Case { fault: Kind::Poststop, runc, process: "runc delete", operations: HOOKS, around });
}

/// The genuine rc93 hangs in its own init, while it loads a filter.
#[test]
fn rc93_hangs_in_its_filter() {
    let (fault, runc) = (Kind::Rc93, Suite::Bookworm);
    let operations = &["patchbpf.PatchAndLoad"];
    hangs(&Case { fault, runc, process: "runc init", operations, around: Some("Init") });
}

/// Who wants to write to the file of runc does not wait for the end of the observation, and the next runc works. Nothing
/// is written.
#[test]
fn a_writer_gets_the_file() {
    host::require_root().unwrap();
    let knobs = Knobs { pods: 0, network: Network::Host, runc: Suite::Bullseye, ..Knobs::default() };
    let containerd = Containerd::start(&knobs).unwrap();
    let pod = containerd.run_pod("writer").unwrap();
    let exec = || {
        let answer = containerd.client().exec_sync(&pod.container, &["true"], LIMIT).unwrap();
        assert_eq!(answer.exit_code, 0);
    };
    let pid = containerd.pid().to_string();
    let watching = Watching::start(&["-d", LONG, "--runtime-pid", &pid]).unwrap();
    watching.wait_until_armed().unwrap();
    watching.wait_until_runc_is_probed().unwrap();
    exec();
    let began = Instant::now();
    let file = process::wait_for("the file of runc, open for writing", LIMIT, || {
        match OpenOptions::new().write(true).open(containerd.runc_program()) {
            Ok(file) => Ok(Some(file)),
            // It runs just now.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .unwrap();
    assert!(began.elapsed() < GIVES_WAY, "a writer waited for {:?}", began.elapsed());
    drop(file);
    exec();
    let (_, seen) = watching.interrupt().unwrap();
    let told = seen
        .refused
        .iter()
        .any(|refused| refused.what.ends_with("/runc") && refused.why.contains("detached"));
    assert!(told, "{:?}", seen.refused);
    let starts = seen.of_layer(Layer::RuncPhase).filter(|(_, hook)| hook.operation == "start").count();
    assert_eq!(starts, 1, "of the exec before");
}
