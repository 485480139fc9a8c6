//! Our figures against those that the kubelet and containerd keep of themselves, on a busy node.
//!
//! A counter is read somewhere between the begin and the end of a scrape. So its increase between two scrapes is at
//! least the number of spans that end between the scrapes, and at most the number of those that end between the begin
//! of the first and the end of the second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use plegtrace::correlate::{Side, Snapshot};
use plegtrace::diagnose::diagnose;
use plegtrace::input::{Component, Layer};
use plegtrace::render::text;
use plegtrace_lab::promtext::Page;
use plegtrace_lab::{Knobs, Node, host, process};
use plegtrace_tests::program;
use plegtrace_tests::truth::{Bounds, Disagree, Scrape, Total, increase};
use plegtrace_tests::watching::{Seen, Watching};

const PODS: usize = 10;
/// What lies between the scrapes.
const INTERVAL: Duration = Duration::from_secs(62);
/// Arming is not part of it; calls of before must have ended before the first scrape, and the second needs its time.
const OBSERVED: &str = "76";
const SETTLED_AFTER: usize = 4;
/// A new pod comes and goes in this time.
const CHURN: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(30);

const OPERATIONS: &str = "kubelet_runtime_operations_duration_seconds";
const RELISTS: &str = "kubelet_pleg_relist_duration_seconds";
const HANDLED: &str = "grpc_server_handled_total";

/// The CRI method behind an `operation_type` of `pkg/kubelet/kuberuntime/instrumented_services.go` (1.20).
fn method(operation_type: &str) -> Option<&'static str> {
    Some(match operation_type {
        "attach" => "Attach",
        "container_stats" => "ContainerStats",
        "container_status" => "ContainerStatus",
        "create_container" => "CreateContainer",
        "exec" => "Exec",
        "exec_sync" => "ExecSync",
        "image_fs_info" => "ImageFsInfo",
        "image_status" => "ImageStatus",
        "list_container_stats" => "ListContainerStats",
        "list_containers" => "ListContainers",
        "list_images" => "ListImages",
        "list_podsandbox" => "ListPodSandbox",
        "podsandbox_status" => "PodSandboxStatus",
        "port_forward" => "PortForward",
        "pull_image" => "PullImage",
        "remove_container" => "RemoveContainer",
        "remove_image" => "RemoveImage",
        "remove_podsandbox" => "RemovePodSandbox",
        "reopen_container_log" => "ReopenContainerLog",
        "run_podsandbox" => "RunPodSandbox",
        "start_container" => "StartContainer",
        "status" => "Status",
        "stop_container" => "StopContainer",
        "stop_podsandbox" => "StopPodSandbox",
        "update_container" => "UpdateContainerResources",
        "update_runtime_config" => "UpdateRuntimeConfig",
        "version" => "Version",
        _ => return None,
    })
}

/// One busy minute of a node.
struct Minute {
    kubelet: [Scrape; 2],
    containerd: [Scrape; 2],
    seen: Seen,
    snapshot: Snapshot,
}

impl Minute {
    fn observe() -> Minute {
        host::require_root().unwrap();
        let node = Node::start(&Knobs { pods: PODS, exec_probes: true, ..Knobs::default() }).unwrap();
        let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
        let watching =
            Watching::start(&["-d", OBSERVED, "--kubelet-pid", &kubelet, "--runtime-pid", &runtime]).unwrap();
        watching.wait_until_armed().unwrap();
        process::wait_for("relists that began under our eyes", LIMIT, || {
            Ok((watching.seen().of_layer(Layer::Relist).count() >= SETTLED_AFTER).then_some(()))
        })
        .unwrap();
        let churn = node.kubelet().churn(CHURN);
        let scrape = || {
            let kubelet = Scrape::take(|limit| node.kubelet().metrics(limit)).unwrap();
            (kubelet, Scrape::take(|limit| node.containerd().metrics(limit)).unwrap())
        };
        let (first, began) = (scrape(), Instant::now());
        // This is the interval that is measured, not a wait for something.
        std::thread::sleep(INTERVAL.saturating_sub(began.elapsed()));
        let second = scrape();
        let (snapshot, seen) = watching.finish().unwrap();
        assert!(churn.stop().unwrap() >= 5, "pods came and went");
        Minute { kubelet: [first.0, second.0], containerd: [first.1, second.1], seen, snapshot }
    }

    /// Bounds that the spans of a layer give, of those hooks that `wanted` takes.
    fn bounds(&self, scrapes: &[Scrape; 2], layer: Layer, wanted: impl Fn(&str, &str) -> bool) -> Bounds {
        let spans = self.seen.of_layer(layer).filter(|(_, hook)| wanted(&hook.service, &hook.operation));
        let spans = spans.map(|(call, _)| (call.end.0, call.duration_ns()));
        Bounds::between(spans, &scrapes[0], &scrapes[1])
    }

    /// Every operation that the kubelet counts, at the layer where it counts.
    fn compare_operations(&self, wrong: &mut Wrong) {
        let [first, second] = &self.kubelet;
        let types = values(&second.page, &format!("{OPERATIONS}_count"), "operation_type");
        assert!(types.len() >= 10, "a churning node does more than {types:?}");
        let mut compared = BTreeSet::new();
        for operation in &types {
            let Some(method) = method(operation) else {
                wrong
                    .counts
                    .push(format!("{operation}: a counter of the kubelet that this test does not know"));
                continue;
            };
            compared.insert(method);
            let total = increase(OPERATIONS, &[("operation_type", operation)], first, second);
            let bounds = self.bounds(&self.kubelet, Layer::KubeletCall, |_, name| name == method);
            report(wrong, operation, total, bounds);
        }
        for (_, hook) in self.seen.of_layer(Layer::KubeletCall) {
            if !compared.contains(hook.operation.as_str()) {
                wrong.counts.push(format!("{}: calls that the kubelet does not count", hook.operation));
            }
        }
    }

    /// Each handler of the minute answers the one call of the kubelet that has its stream, however many calls there are at once;
    /// but for those that plegtrace itself called. At the edges one side may be older than its probe.
    fn compare_joins(&self) {
        let joins = self.snapshot.joins;
        eprintln!("handlers: {joins:?}");
        assert_eq!(joins.ambiguous, 0, "{joins:?}");
        let inside = self.containerd[0].end_ns..self.containerd[1].begin_ns;
        let clients: Vec<_> = self.seen.of_layer(Layer::KubeletClient).collect();
        let handlers = self.seen.of_layer(Layer::Handler).filter(|(call, _)| inside.contains(&call.start.0));
        let (mut compared, mut alone) = (0, 0);
        for (handler, of) in handlers {
            let its = clients.iter().filter(|(call, hook)| {
                let around = call.start <= handler.start && handler.answered() <= call.end;
                call.stream == handler.stream && hook.operation == of.operation && around
            });
            compared += 1;
            match its.count() {
                0 => alone += 1,
                1 => assert!(handler.stream.is_some(), "no stream: {handler:?}"),
                many => panic!("{many} calls have the stream of {handler:?}"),
            }
        }
        assert!(compared >= 500 && alone <= joins.own, "{alone} of {compared} have no caller: {joins:?}");
    }

    fn compare_relists(&self, wrong: &mut Wrong) {
        let [first, second] = &self.kubelet;
        let total = increase(RELISTS, &[], first, second);
        assert!(total.count >= 30, "only {} relists in {INTERVAL:?}", total.count);
        report(wrong, "relist", total, self.bounds(&self.kubelet, Layer::Relist, |_, _| true));
    }

    /// Every CRI method that containerd has handled, of both services and versions.
    fn compare_handlers(&self, wrong: &mut Wrong) {
        let [first, second] = &self.containerd;
        let mut methods = 0;
        for service in values(&second.page, HANDLED, "grpc_service") {
            if !service.starts_with("runtime.v1") {
                continue;
            }
            for method in values_of(&second.page, HANDLED, ("grpc_service", &service), "grpc_method") {
                let labels = [("grpc_service", service.as_str()), ("grpc_method", method.as_str())];
                let handled = second.page.sum(HANDLED, &labels) - first.page.sum(HANDLED, &labels);
                let mut bounds = self.bounds(&self.containerd, Layer::Handler, |owner, name| {
                    owner == service && name == method
                });
                // containerd counts them but does not time them.
                (bounds.inner.sum_ns, bounds.outer.sum_ns) = (0, 0);
                let total = Total { count: handled.round() as u64, sum_ns: 0 };
                report(wrong, &format!("{service}/{method}"), total, bounds);
                methods += u32::from(handled > 0.0);
            }
        }
        assert!(methods >= 10, "containerd handled only {methods} methods");
    }

    /// Calls of the bare service, outside of counted calls, have rows of their own, and no call is in two rows.
    fn bare_calls_are_apart(&self) {
        let rows = |side: Side| self.snapshot.rows.iter().filter(move |row| row.key.side == side);
        let bare: u64 = rows(Side::Bare).map(|row| row.latency.count()).sum();
        assert!(bare > 0, "the kubelet of 1.20 asks for statistics through the bare service");
        let clients = self.seen.of_layer(Layer::KubeletClient).filter(|(call, _)| !call.unwound()).count();
        assert_eq!(bare + self.snapshot.tally.covered, clients as u64, "bare and covered calls are all");
        let counted: u64 = rows(Side::Counted).map(|row| row.latency.count()).sum();
        let spans = self.seen.of_layer(Layer::KubeletCall).filter(|(call, _)| !call.unwound()).count();
        assert_eq!(counted, spans as u64, "the table has the counted calls and no others");
    }

    fn nothing_is_lost(&self) {
        let losses: Vec<_> = self.snapshot.real_losses().collect();
        assert!(losses.is_empty(), "{losses:?}");
        assert_eq!(self.seen.undecoded, 0);
        let layers = [Layer::Relist, Layer::KubeletCall, Layer::KubeletClient, Layer::Handler];
        let unwound =
            layers.map(|layer| self.seen.of_layer(layer).filter(|(call, _)| call.unwound()).count());
        assert_eq!(unwound, [0; 4], "every end was seen");
        let gone = |component| {
            let mut targets = self.snapshot.targets.iter().filter(|t| t.fact.component == component);
            !targets.any(|t| t.state == plegtrace::correlate::TracedState::Live)
        };
        assert!(!gone(Component::Kubelet) && !gone(Component::Containerd));
    }

    /// Keeps the report of this minute: it is the sample of the README.
    fn keep_report(&self) {
        let options = text::TextOptions { verbose: true, ..text::TextOptions::default() };
        let mut page = Vec::new();
        text::report(&self.snapshot, &diagnose(&self.snapshot), &options, &mut page).unwrap();
        std::fs::write(program::target_dir().join("lab-report.txt"), page).unwrap();
    }
}

/// Where a minute's figures disagree.
#[derive(Default)]
struct Wrong {
    counts: Vec<String>,
    /// What was measured and in which way its sum is off.
    sums: BTreeMap<String, String>,
    /// What was measured and has the sum that the program gives.
    right: BTreeSet<String>,
}

fn report(wrong: &mut Wrong, what: &str, counter: Total, spans: Bounds) {
    eprintln!("{what}: counted {} in {} ns; seen {spans}", counter.count, counter.sum_ns);
    match spans.admit(counter) {
        Ok(()) if counter.count > 0 => drop(wrong.right.insert(what.to_owned())),
        Ok(()) => {}
        Err(Disagree::Count(why)) => wrong.counts.push(format!("{what}: {why}")),
        Err(Disagree::Sum(why)) => drop(wrong.sums.insert(what.to_owned(), why)),
    }
}

/// The values of a label on the samples of a name.
fn values(page: &Page, name: &str, label: &str) -> BTreeSet<String> {
    page.find(name, &[]).filter_map(|sample| sample.label(label)).map(str::to_owned).collect()
}

fn values_of(page: &Page, name: &str, of: (&str, &str), label: &str) -> BTreeSet<String> {
    page.find(name, &[of]).filter_map(|sample| sample.label(label)).map(str::to_owned).collect()
}

/// Minutes that may be tried. Counts must be right in each. A sum may be spoilt by a preemption between our probe and the
/// program's own reading of its clock, which weighs in operations that happen only a few times a minute: such an
/// operation is measured again, and has to agree then. A probe at the wrong place is off in every minute.
const MINUTES: u32 = 3;

/// Ten probed pods and churn for a minute: relists, counted calls and handlers agree with both programs' own metrics.
#[test]
fn spans_agree_with_the_metrics_of_kubelet_and_containerd() {
    let mut doubted: Option<BTreeSet<String>> = None;
    for minute_number in 1..=MINUTES {
        let minute = Minute::observe();
        minute.keep_report();
        let mut wrong = Wrong::default();
        minute.compare_relists(&mut wrong);
        minute.compare_operations(&mut wrong);
        minute.compare_handlers(&mut wrong);
        minute.compare_joins();
        minute.bare_calls_are_apart();
        minute.nothing_is_lost();
        assert!(wrong.counts.is_empty(), "{}", wrong.counts.join("\n"));
        wrong.sums.iter().for_each(|(what, why)| eprintln!("minute {minute_number}: {what}: {why}"));
        let doubted = doubted.get_or_insert_with(|| wrong.sums.keys().cloned().collect());
        doubted.retain(|what| !wrong.right.contains(what));
        if doubted.is_empty() {
            return;
        }
    }
    panic!("sums disagree in each of {MINUTES} minutes: {doubted:?}");
}
