//! Trees of real requests: what a slow sandbox and a slow command spent their time with, down to the process.

use std::time::Duration;

use plegtrace::correlate::{Caller, RequestTree, Snapshot};
use plegtrace::decode::Call;
use plegtrace::diagnose::diagnose;
use plegtrace::input::Layer;
use plegtrace::render::text::{self, TextOptions};
use plegtrace::span::{Account, Span, account, critical_path, violation};
use plegtrace_lab::fault::Kind;
use plegtrace_lab::{Knobs, Node, fault, host, process};
use plegtrace_tests::watching::Watching;
use plegtrace_tests::{claim, program};

const LIMIT: Duration = Duration::from_secs(60);
const S: u64 = 1_000_000_000;
/// Share of a slow request that must be measured.
const EXPLAINED: f64 = 0.95;
/// Commands of a second. Another may be a probe's of the kubelet, at that moment: then nobody knows which `runc exec` is whose.
const EXECS: usize = 3;

fn watch(node: &Node, seconds: &str) -> Watching {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let watching =
        Watching::start(&["-d", seconds, "--kubelet-pid", &kubelet, "--runtime-pid", &runtime]).unwrap();
    watching.wait_until_armed().unwrap();
    watching
}

/// The report, kept to be looked at.
fn page(snapshot: &Snapshot, name: &str) -> String {
    let mut out = Vec::new();
    let options = TextOptions { verbose: true, ..TextOptions::default() };
    text::report(snapshot, &diagnose(snapshot), &options, &mut out).unwrap();
    std::fs::write(program::target_dir().join(name), &out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Requests of this operation whose root is of this layer.
fn of<'a>(snapshot: &'a Snapshot, layer: Layer, operation: &'a str) -> impl Iterator<Item = &'a RequestTree> {
    let mine = move |request: &&RequestTree| {
        request.root().operation() == operation && request.root().layer() == layer
    };
    snapshot.requests.iter().filter(mine)
}

/// The longest of them.
fn longest<'a>(snapshot: &'a Snapshot, layer: Layer, operation: &'a str) -> &'a RequestTree {
    let found = of(snapshot, layer, operation).max_by_key(|request| request.root().duration_ns(snapshot.now));
    found.unwrap_or_else(|| panic!("no {operation}: {:#?}", snapshot.requests))
}

/// Leaves add up to the request; how much of it was measured is told.
fn explained(request: &RequestTree, snapshot: &Snapshot) -> Account {
    assert_eq!(violation(request.root()), None);
    let time = account(request.root(), snapshot.now);
    let share = time.explained_ns() as f64 / time.total_ns() as f64;
    eprintln!("{}: measured {share:.4}, {time:?}", request.root().operation());
    assert_eq!(time.total_ns(), request.root().duration_ns(snapshot.now));
    claim::soon(
        &format!("unmeasured_of_{}", request.root().operation()),
        1.0 - share,
        1.0 - EXPLAINED,
        "of_1",
    );
    time
}

fn programs(request: &RequestTree) -> Vec<(&str, &Span)> {
    let programs = request.root().walk().filter(|span| span.layer() == Layer::Process);
    programs.map(|span| (span.operation(), span)).collect()
}

#[test]
fn slow_requests_of_a_real_node() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 1, ..Kind::CniSlow.knobs() }).unwrap();
    slow_requests_are_whole(&node);
}

/// A CNI plugin that sleeps three seconds is the leaf that its RunPodSandbox spent its time in; a command that sleeps for
/// one is a park of its ExecSync, beside its `runc exec`; and a pod of the kubelet has everything from the kubelet's call
/// down to the `runc start` of its sandbox.
pub(super) fn slow_requests_are_whole(node: &Node) {
    let pod = node.pod("p1").unwrap();
    node.wait_for_relists(2, LIMIT).unwrap();
    let before = node.kubelet().running_pods().unwrap().len();
    let watching = watch(node, "600");
    let client = node.containerd().client();
    for _ in 0..EXECS {
        client.exec_sync(&pod.container, &["sleep", "1"], LIMIT).unwrap();
    }
    node.kubelet().add_pod("x1").unwrap();
    process::wait_for("a pod of the kubelet", LIMIT, || {
        Ok((node.kubelet().running_pods().is_ok_and(|pods| pods.len() == before + 1)).then_some(()))
    })
    .unwrap();
    let mut slow = fault::slow_cni(node, 3).unwrap();
    process::wait_for("the end of the slow plugin", LIMIT, || Ok(slow.hanging().is_empty().then_some(())))
        .unwrap();
    process::wait_for("the end of its sandbox", LIMIT, || {
        let seen = watching.seen();
        let mut handlers = seen.of_layer(Layer::Handler);
        let slow = |call: &Call| call.end.since(call.start) >= 3 * S;
        Ok(handlers.any(|(call, hook)| hook.operation == "RunPodSandbox" && slow(call)).then_some(()))
    })
    .unwrap();
    let (snapshot, _) = watching.interrupt().unwrap();
    slow.heal().unwrap();
    node.kubelet().remove_pod("x1").unwrap();
    process::wait_for("the end of that pod", LIMIT, || {
        Ok((node.kubelet().running_pods().is_ok_and(|pods| pods.len() == before)).then_some(()))
    })
    .unwrap();
    let page = page(&snapshot, "lab-request-trees.txt");
    let losses: Vec<_> = snapshot.real_losses().collect();
    assert!(losses.is_empty(), "{losses:?}");

    let sandbox = longest(&snapshot, Layer::Handler, "RunPodSandbox");
    assert_eq!(sandbox.caller, Caller::Foreign, "our own client asked");
    let time = explained(sandbox, &snapshot);
    let plugin = critical_path(sandbox.root(), snapshot.now).last().copied().unwrap();
    assert_eq!((plugin.layer(), plugin.operation()), (Layer::Process, "CNI lab-gate ADD"), "{page}");
    let slept = plugin.duration_ns(snapshot.now);
    assert!(slept >= 3 * S && time.process_ns >= slept, "{slept}");
    claim::soon_within("plugin_that_sleeps_3_s", Duration::from_nanos(slept), Duration::from_secs(4));
    assert!(page.contains(&format!("CNI lab-gate ADD, pid {}", plugin.id.tgid)), "{page}");
    assert_eq!(sandbox.container.as_ref().map(String::len), Some(64), "the id of the sandbox");

    let slept = |request: &&RequestTree| {
        request.container.as_ref() == Some(&pod.container) && request.root().duration_ns(snapshot.now) >= S
    };
    let exec = of(&snapshot, Layer::Handler, "ExecSync").find(slept);
    let exec = exec.unwrap_or_else(|| panic!("each command may be a probe's:\n{page}"));
    let time = explained(exec, &snapshot);
    let all = programs(exec);
    assert_eq!(all.iter().filter(|(name, _)| *name == "runc exec").count(), 1, "{page}");
    assert!(time.parked_ns > S * 8 / 10, "a command that sleeps is waited for: {time:?}");

    let asked = longest(&snapshot, Layer::KubeletCall, "RunPodSandbox");
    explained(asked, &snapshot);
    let names: Vec<&str> = programs(asked).iter().map(|(name, _)| *name).collect();
    for wanted in ["shim start", "runc create", "runc start"] {
        assert!(names.contains(&wanted), "{wanted}: {names:?}\n{page}");
    }
    let handler = asked.root().walk().find(|span| span.layer() == Layer::Handler);
    assert!(handler.is_some_and(|span| !span.children.is_empty()), "{page}");
}

/// Three sandboxes wait for their network at once: each has its own plugin below it, and the container of that plugin.
#[test]
fn open_sandboxes_have_their_own_plugins() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 1, ..Kind::Cni.knobs() }).unwrap();
    node.wait_for_relists(2, LIMIT).unwrap();
    let watching = watch(&node, "600");
    let faults = [(); 3].map(|()| fault::sleeping_cni(&node).unwrap());
    let plugins: Vec<u32> = faults.iter().map(|fault| fault.facts().culprits[0]).collect();
    let ids = plugins.iter().map(|pid| process::variable(*pid, "CNI_CONTAINERID"));
    let ids: Vec<Option<String>> = ids.collect();
    let relists = || watching.seen().of_layer(Layer::Relist).count();
    let before = relists();
    // One begins a second after the one before it.
    process::wait_for("plugins that last", LIMIT, || Ok((relists() >= before + 3).then_some(()))).unwrap();
    let (snapshot, _) = watching.interrupt().unwrap();
    faults.into_iter().for_each(|fault| fault.heal().unwrap());
    let page = page(&snapshot, "lab-request-trees-open.txt");

    let waiting = |r: &&RequestTree| r.root().is_open() && r.root().operation() == "RunPodSandbox";
    let open: Vec<&RequestTree> = snapshot.requests.iter().filter(waiting).collect();
    let ends: Vec<u32> = open
        .iter()
        .filter_map(|request| critical_path(request.root(), snapshot.now).last().map(|span| span.id.tgid))
        .collect();
    assert_eq!(ends, plugins, "in the order in which they were asked for\n{page}");
    let about: Vec<Option<String>> = open.iter().map(|request| request.container.clone()).collect();
    assert_eq!(about, ids, "{page}");
    for request in open {
        let time = explained(request, &snapshot);
        assert!(time.process_ns > S, "{time:?}");
    }
}
