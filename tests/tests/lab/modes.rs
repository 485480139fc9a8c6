//! Each way to attach sees the same, and each generation of containerd is seen: counts are exact.

use std::time::Duration;

use plegtrace::input::Layer;
use plegtrace_lab::cri::relist;
use plegtrace_lab::{Containerd, Generation, Knobs, Node, host, packages, process};
use plegtrace_tests::truth::{Bounds, Scrape, Total, increase};
use plegtrace_tests::watching::Watching;

const LIMIT: Duration = Duration::from_secs(60);
/// Relists between the two scrapes.
const RELISTS: u32 = 5;

/// Operations that a plan of few sites has too, with the kubelet's name for them.
const OPERATIONS: [(&str, &str); 3] =
    [("ListPodSandbox", "list_podsandbox"), ("ListContainers", "list_containers"), ("ExecSync", "exec_sync")];

/// Counts relists, counted calls and handlers between two scrapes, attached in this way.
pub(super) fn mode_is_exact(node: &Node, (mode, name): (&str, &str)) {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let watching = Watching::start(&[&["-d", "600", "--attach", mode], &about[..]].concat()).unwrap();
    let armed = watching.wait_until_armed().unwrap();
    assert_eq!(armed.mode, name);
    process::wait_for("a relist that began under our eyes", LIMIT, || {
        Ok((watching.seen().of_layer(Layer::Relist).count() >= 2).then_some(()))
    })
    .unwrap();
    let scrape = || {
        let kubelet = Scrape::take(|limit| node.kubelet().metrics(limit)).unwrap();
        (kubelet, Scrape::take(|limit| node.containerd().metrics(limit)).unwrap())
    };
    let first = scrape();
    node.wait_for_relists(RELISTS, LIMIT).unwrap();
    let second = scrape();
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert!(snapshot.now.0 > second.1.end_ns, "{mode}: observed until after the second scrape");
    assert_eq!(snapshot.real_losses().count(), 0, "{mode}: {:?}", snapshot.losses);
    assert_eq!(seen.calls.iter().filter(|call| call.unwound()).count(), 0, "{mode}: every end was seen");

    let bounds = |layer: Layer, operation: Option<&str>, scrapes: (&Scrape, &Scrape)| {
        let spans = seen.of_layer(layer).filter(|(_, hook)| operation.is_none_or(|it| hook.operation == it));
        Bounds::between(spans.map(|(call, _)| (call.end.0, call.duration_ns())), scrapes.0, scrapes.1)
    };
    let relists = increase("kubelet_pleg_relist_duration_seconds", &[], &first.0, &second.0);
    assert!(relists.count >= u64::from(RELISTS));
    let mut spans = bounds(Layer::Relist, None, (&first.0, &second.0));
    (spans.inner.sum_ns, spans.outer.sum_ns) = (0, 0);
    spans.admit(Total { count: relists.count, sum_ns: 0 }).unwrap();
    for (method, operation) in OPERATIONS {
        let labels = [("operation_type", operation)];
        let counted = increase("kubelet_runtime_operations_duration_seconds", &labels, &first.0, &second.0);
        assert!(counted.count > 0, "{method} was called");
        let mut spans = bounds(Layer::KubeletCall, Some(method), (&first.0, &second.0));
        eprintln!("{mode}: {method}: counted {counted:?}, seen {spans}");
        // Sums are compared over a minute (`lab_truth`): among so few calls one preemption between our probe and the
        // kubelet's own reading of the clock outweighs the tolerance.
        (spans.inner.sum_ns, spans.outer.sum_ns) = (0, 0);
        let counted = Total { count: counted.count, sum_ns: 0 };
        spans.admit(counted).unwrap_or_else(|why| panic!("{mode}: {method}: {why}"));
        let labels = [("grpc_method", method)];
        let handled = second.1.page.sum("grpc_server_handled_total", &labels)
            - first.1.page.sum("grpc_server_handled_total", &labels);
        let mut spans = bounds(Layer::Handler, Some(method), (&first.1, &second.1));
        (spans.inner.sum_ns, spans.outer.sum_ns) = (0, 0);
        let handled = Total { count: handled.round() as u64, sum_ns: 0 };
        spans.admit(handled).unwrap_or_else(|why| panic!("{mode}: handler of {method}: {why}"));
    }
}

/// uprobe_multi, perf events with cookies, and perf events found by address: what forces each, and its name.
pub(super) const MULTI: (&str, &str) = ("multi", "uprobe_multi");
pub(super) const COOKIE: (&str, &str) = ("cookie", "perf events with cookies");
pub(super) const ADDRESS: (&str, &str) = ("address", "perf events by address");

/// Each forced.
#[test]
fn every_attach_mode_is_exact() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 2, exec_probes: true, ..Knobs::default() }).unwrap();
    for mode in [MULTI, COOKIE, ADDRESS] {
        mode_is_exact(&node, mode);
    }
}

fn generation_is_exact(generation: Generation, mode: &str) {
    host::require_root().unwrap();
    let knobs = Knobs { generation, ..Knobs::default() };
    let containerd = match Containerd::start(&knobs) {
        Ok(containerd) => containerd,
        Err(error) if packages::Error::is_gone(&error) => {
            return host::declare_skip(&format!("containerd {generation}"), &error);
        }
        Err(error) => panic!("containerd {generation}: {error:#}"),
    };
    handlers_are_exact(&containerd, mode);
}

/// As many handler spans as calls made, for each method of the relist loop.
pub(super) fn handlers_are_exact(containerd: &Containerd, mode: &str) {
    let generation = containerd.knobs().generation;
    let pod = containerd.run_pod("one").unwrap();
    let client = containerd.client_of(generation.api()).unwrap();
    client.version(LIMIT).unwrap();
    let runtime = containerd.pid().to_string();
    let watching = Watching::start(&["-d", "600", "--attach", mode, "--runtime-pid", &runtime]).unwrap();
    watching.wait_until_armed().unwrap();
    let relists = relist::Loop::start(client, Duration::from_millis(5), LIMIT);
    process::wait_for("turns of the loop", LIMIT, || Ok((relists.relists().len() >= 50).then_some(())))
        .unwrap();
    let relists = relists.stop();
    assert!(relists.iter().all(|relist| relist.error.is_none()), "{relists:?}");
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert_eq!(snapshot.real_losses().count(), 0, "{:?}", snapshot.losses);

    let version = format!("runtime.{}.", generation.api());
    let count = |operation: &str| {
        let handlers = seen.of_layer(Layer::Handler);
        let ours = handlers.filter(|(call, hook)| {
            hook.operation == operation && hook.service.starts_with(&version) && !call.unwound()
        });
        ours.count()
    };
    let statuses = relists.iter().map(|relist| relist.calls as usize).sum::<usize>() - 2 * relists.len();
    assert!(statuses >= 2, "the pod is new to the loop: its sandbox and its container");
    assert_eq!(count("ListPodSandbox"), relists.len(), "containerd {generation}");
    assert_eq!(count("ListContainers"), relists.len(), "containerd {generation}");
    assert_eq!(count("PodSandboxStatus") + count("ContainerStatus"), statuses, "containerd {generation}");
    let failed =
        seen.of_layer(Layer::Handler).filter(|(call, _)| call.result() != plegtrace::decode::CallResult::Ok);
    assert_eq!(failed.count(), 0, "all were answered, and seen to be");
    containerd.client().remove_pod(&pod, LIMIT).unwrap();
}

/// Go 1.15: arguments on the stack, the goroutine in thread-local storage.
#[test]
fn containerd_1_4_is_exact() {
    generation_is_exact(Generation::V1_4, "multi");
    generation_is_exact(Generation::V1_4, "address");
}

/// Go 1.24.
#[test]
fn containerd_1_7_is_exact() {
    generation_is_exact(Generation::V1_7, "multi");
}

/// The newest; `writeStatus` is private there.
#[test]
fn containerd_2_1_is_exact() {
    generation_is_exact(Generation::V2_1, "multi");
}
