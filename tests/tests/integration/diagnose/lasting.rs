//! What takes its time on a sound node: a threshold follows who waits, what is asked for, and the size of the node.

use plegtrace::diagnose::{Verdict, diagnose};
use plegtrace::input::{CensusFact, Command, Component, Fact, Layer, ProcessFact, RuntimeSays, RuntimeState};
use plegtrace_common::rec::{CALL_OK, PROCESS_EXECED};
use plegtrace_common::role::Role;
use plegtrace_tests::found::process;
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, MS, PLEG, S, Story, at};

use super::{CHILD, RUNC, SHIM, ids};

/// A handler that is open since half a second; the kubelet's call behind it, if that is who asked.
fn open_for(method: &str, seconds: u64, kubelet: bool) -> Verdict {
    let mut story = Story::node();
    for layer in [Layer::KubeletCall, Layer::Handler] {
        story.hook(layer, method);
    }
    for n in 0..seconds {
        story.relist(n * S, 0);
    }
    if kubelet {
        story.begin(Layer::KubeletCall, method, 70, 100, 500 * MS);
    }
    story.begin(Layer::Handler, method, 700, 100, 501 * MS);
    let now = seconds * S + 600 * MS;
    diagnose(&story.read_open(now).snapshot(now)).verdict
}

/// To remove a large image, to write the memory of a container, and to add up what thousands of them have written takes minutes.
#[test]
fn calls_that_take_their_time() {
    for method in
        ["CheckpointContainer", "RemoveImage", "ListContainerStats", "ListPodSandboxStats", "ImageFsInfo"]
    {
        assert_eq!(open_for(method, 60, true), Verdict::Healthy, "{method}");
        let late = if method == "CheckpointContainer" { Verdict::Healthy } else { Verdict::Stall };
        assert_eq!(open_for(method, 125, true), late, "{method}: longer than the kubelet waits for anything");
    }
    assert_eq!(open_for("RemoveContainer", 60, true), Verdict::Stall);
}

/// Whoever typed `crictl rmi` waits for it, and the node does not; what hangs for anybody hangs for the kubelet, too.
#[test]
fn calls_of_somebody_else() {
    assert_eq!(open_for("RemoveImage", 600, false), Verdict::Healthy);
    assert_eq!(open_for("ImageStatus", 60, false), Verdict::Stall);
}

fn cni(plugin: &str) -> Command {
    Command::Cni { plugin: plugin.into(), action: Some("ADD".into()), container: Some("s1".into()) }
}

/// A plugin of the runtime that runs for so long, with a census or without.
fn plugin(name: &str, seconds: u64, looked: bool) -> Verdict {
    let (mut story, now) = (Story::node(), seconds * S);
    story.found(CONTAINERD, Role::Containerd).fork(CONTAINERD, CHILD, 0);
    story.exec(CHILD, Role::Helper, PROCESS_EXECED, 0).told(CHILD, &cni(name));
    for n in 0..seconds {
        story.relist(n * S, 0);
    }
    if looked {
        let seen =
            ProcessFact { command: Some(cni(name)), ..process(Component::Helper, CHILD, CONTAINERD, 0) };
        story.census(now - S, std::slice::from_ref(&seen), &[], &[]).census(now, &[seen], &[], &[]);
    }
    story.read_processes(now).read_open(now);
    diagnose(&story.snapshot(now)).verdict
}

/// A plugin that has a device attached by a cloud takes longer than one that makes a bridge.
#[test]
fn plugins_that_attach_devices() {
    for looked in [false, true] {
        for name in ["aws-cni", "sriov", "multus"] {
            assert_eq!(plugin(name, 25, looked), Verdict::Healthy, "{name}");
            assert_eq!(plugin(name, 31, looked), Verdict::Stall, "{name}");
        }
        assert_eq!(plugin("bridge", 25, looked), Verdict::Stall);
    }
}

/// The start of a container, whose `runc create` waits for this hook.
fn hook(program: &str, seconds: u64, looked: bool) -> (Verdict, Vec<&'static str>) {
    let (mut story, now) = (Story::node(), seconds * S);
    for layer in [Layer::KubeletCall, Layer::Handler] {
        story.hook(layer, "StartContainer");
    }
    story.begin(Layer::KubeletCall, "StartContainer", 70, 100, 0);
    story.begin(Layer::Handler, "StartContainer", 700, 100, MS);
    let create = Command::Runc { sub: "create".into(), container: Some("c1".into()), bundle: None };
    let own = Command::Other { program: program.into() };
    story.found(SHIM, Role::Shim).fork(SHIM, RUNC, 2 * MS);
    story.exec(RUNC, Role::Runc, PROCESS_EXECED, 2 * MS).told(RUNC, &create).fork(RUNC, CHILD, 3 * MS);
    story.exec(CHILD, Role::Helper, PROCESS_EXECED, 3 * MS).told(CHILD, &own);
    for n in 0..seconds {
        story.relist(n * S, 0);
    }
    if looked {
        let runc = ProcessFact { command: Some(create), ..process(Component::Runc, RUNC, SHIM, 2 * MS) };
        let hook = ProcessFact { command: Some(own), ..process(Component::Helper, CHILD, RUNC, 3 * MS) };
        let seen = [process(Component::Shim, SHIM, 1, 0), runc, hook];
        story.census(now - S, &seen, &[], &[]).census(now, &seen, &[], &[]);
    }
    story.read_processes(now).read_open(now);
    let diagnosis = diagnose(&story.snapshot(now));
    (diagnosis.verdict, ids(&diagnosis))
}

/// The driver of eight GPUs takes its time to start, and runc and containerd wait for the hook that starts it.
#[test]
fn hooks_that_start_drivers() {
    for looked in [false, true] {
        for program in ["nvidia-container-cli", "nvidia-containe"] {
            assert_eq!(hook(program, 25, looked), (Verdict::Healthy, Vec::new()), "{program}");
            assert_eq!(hook(program, 31, looked).0, Verdict::Stall);
        }
        assert_eq!(hook("hook.sh", 25, looked).0, Verdict::Stall);
    }
    assert_eq!(hook("nvidia-container-cli", 31, true).1, ["U10"]);
    assert_eq!(hook("hook.sh", 7, true).1, ["U10"]);
}

/// Relists of so many milliseconds, ten of them, of two lists.
fn relists(length: u64, tell: impl FnOnce(&mut Story)) -> Verdict {
    let (mut story, ns) = (Story::node(), length * MS);
    tell(&mut story);
    for from in (0..10).map(|n| n * S) {
        story.begin(Layer::Relist, "Relist", PLEG, 100, from);
        story.rpc("ListPodSandbox", PLEG, from + MS, from + ns / 2);
        story.rpc("ListContainers", PLEG, from + ns / 2, from + ns - MS);
        story.end(Layer::Relist, "Relist", PLEG, from + ns, CALL_OK);
    }
    story.read_open(10 * S);
    diagnose(&story.snapshot(10 * S)).verdict
}

/// The runtime says that there are so many containers.
fn says(story: &mut Story, count: u32) {
    let state = RuntimeState { container: <_>::default(), state: "running".into(), runs: true };
    let containers = vec![state; count.min(4096) as usize];
    let left_out = count.saturating_sub(4096);
    let says = RuntimeSays { containers, left_out, version: "v1".into(), ..RuntimeSays::default() };
    let round =
        CensusFact { began_ns: at(0).0, ended_ns: at(0).0, says: Some(says), ..CensusFact::default() };
    story.fact(0, &Fact::Census(round));
}

/// 250 ms for two lists are much on a node with some pods, and little on one with 5,000 containers, or where each list asks Docker.
#[test]
fn lists_of_large_nodes() {
    assert_eq!(relists(250, |_| ()), Verdict::Slow);
    assert_eq!(relists(250, |story| says(story, 100)), Verdict::Slow);
    assert_eq!(relists(250, |story| says(story, 5_000)), Verdict::Healthy);
    assert_eq!(relists(900, |story| says(story, 5_000)), Verdict::Slow);
    let mib = |story: &mut Story| {
        story.request_of(3, "runtime.v1.RuntimeService/ListContainers", 0, MS, 5 << 20);
    };
    assert_eq!(relists(250, mib), Verdict::Healthy);
    let docker = |story: &mut Story| {
        story.target(Component::CriDockerd, 77, "0.3.4");
    };
    assert_eq!((relists(250, docker), relists(900, docker)), (Verdict::Healthy, Verdict::Slow));
}
