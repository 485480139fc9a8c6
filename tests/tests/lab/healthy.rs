//! Healthy nodes are not accused: idle ones of several sizes, and one where execs, probes and pods come and go. One that
//! only looks healthy at the moment is not called so.

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use plegtrace::census::goroutines::{Limits, Reader};
use plegtrace::clock::monotonic_ns;
use plegtrace::input::Component;
use plegtrace_lab::{Knobs, Node, host, process};
use plegtrace_tests::churn;
use plegtrace_tests::program::{Ended, Running};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);
const LIMIT_NS: u64 = 120_000_000_000;
/// Pods, and containers in each.
const SIZES: [(usize, usize); 3] = [(1, 1), (10, 5), (10, 15)];
/// Every day, and in the soak.
const SHORT: Duration = Duration::from_secs(90);
const LONG: Duration = Duration::from_secs(30 * 60);
/// One more pod comes or goes.
const PERIOD: Duration = Duration::from_secs(2);
/// Execs per second and processor from which rule O2 speaks, and what it may be wrong about: it counts what ended
/// while its probes were on, we count a little longer.
const STORM_PER_CPU: f64 = 5.0;
const TOLERANCE: f64 = 0.7;

/// A plegtrace that observes this node.
pub(super) fn start(node: &Node, arguments: &[&str]) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    Running::start(&[arguments, &about].concat()).unwrap()
}

fn run(node: &Node, arguments: &[&str]) -> Ended {
    start(node, arguments).finish(LIMIT).unwrap()
}

/// A run that ends with this code.
fn report(node: &Node, code: i32) -> Value {
    report_after(node, &[], code)
}

/// The same with these further arguments.
pub(super) fn report_after(node: &Node, more: &[&str], code: i32) -> Value {
    let ended = run(node, &[&["-o", "json"], more].concat());
    let report: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", ended.stdout, ended.stderr));
    let about = ["diagnosis", "losses", "refused", "cost"].map(|part| format!("{part}: {:#}", report[part]));
    assert_eq!(ended.status.code(), Some(code), "{}", about.join("\n"));
    report
}

/// One run as on a node without a doubt; gives its findings.
pub(super) fn findings(node: &Node) -> Vec<Value> {
    let report = report(node, 0);
    let findings = report["diagnosis"]["findings"].as_array().unwrap().clone();
    let stalls = findings.iter().filter(|finding| finding["severity"] == "stall").count();
    assert_eq!(stalls, 0, "{findings:#?}");
    findings
}

/// Nothing is found on an idle node, however many containers it has.
#[test]
fn an_idle_node_has_no_findings() {
    host::require_root().unwrap();
    for (pods, containers) in SIZES {
        let node = Node::start(&Knobs { pods, containers, ..Knobs::default() }).unwrap();
        node.wait_for_relists(3, LIMIT).unwrap();
        let found = findings(&node);
        assert!(found.is_empty(), "{} containers: {found:#?}", pods * containers);
    }
}

/// A node that flaps, seen while its relists are quick: nobody waits for the command any more, but the runtime still does,
/// because a child holds the output of the command.
#[test]
fn between_two_stalls_a_node_is_not_healthy() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    let pod = node.pod("p1").unwrap();
    let leaves_a_child = ["sh", "-c", "sleep 1000 &"];
    let given_up =
        node.containerd().client().exec_sync(&pod.container, &leaves_a_child, Duration::from_secs(2));
    given_up.unwrap_err();
    let told = report(&node, 1);
    assert_eq!(told["diagnosis"]["verdict"], "stall", "{}", told["diagnosis"]);
    let relists = told["relists"].as_array().unwrap();
    // The one that is just open has no list yet.
    let lists = |word: &str| relists.iter().filter(|relist| relist["list"] == word).count();
    assert!(lists("ok") >= 3 && lists("failed") == 0, "{relists:?}");
    let first = &told["diagnosis"]["findings"][0];
    let inside = process::in_cgroup(&pod.container);
    let child = inside.iter().find(|pid| process::arguments(**pid) == ["sleep", "1000"]).unwrap();
    assert_eq!((&first["id"], &first["culprit"]["pid"]), (&"R8".into(), &(*child).into()), "{first:#}");
    let text = run(&node, &["-q"]).stdout;
    assert!(text.contains("\nSTALL R8  ") && text.contains(&format!("sleep {child}")), "{text}");
    process::signal(*child, libc::SIGKILL).unwrap();
    let reader = Reader::open(node.containerd().pid(), Component::Containerd).unwrap();
    process::wait_for("the end of the command", LIMIT, || {
        let fact = reader.read(&Limits::until(monotonic_ns() + LIMIT_NS), &monotonic_ns)?;
        let serves = |frame: &String| frame.ends_with("_RuntimeService_ExecSync_Handler");
        Ok((!fact.groups.iter().any(|group| group.frames.iter().any(serves))).then_some(()))
    })
    .unwrap();
    assert_eq!(findings(&node), [] as [Value; 0]);
}

/// Runs plegtrace again and again, two at a time, while execs, probes and pods come and go.
fn churning(duration: Duration) {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 3, exec_probes: true, ..Knobs::default() }).unwrap();
    let pods = node.kubelet().running_pods().unwrap();
    let storm = STORM_PER_CPU * std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
    let guests = node.kubelet().churn(PERIOD);
    let execs = churn::Execs::start(node.containerd(), &pods);
    let (began, mut runs, mut storms) = (Instant::now(), 0, 0);
    while began.elapsed() < duration {
        let (before, start) = (execs.done(), Instant::now());
        let found = thread::scope(|scope| {
            let other = scope.spawn(|| findings(&node));
            let mut found = findings(&node);
            found.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            found
        });
        let done = execs.done() - before;
        // The exec probes, once a second.
        let rate = done as f64 / start.elapsed().as_secs_f64() + pods.len() as f64;
        for finding in &found {
            assert!(
                finding["id"] == "O2" && rate > storm * TOLERANCE,
                "{rate:.1} execs per second:\n{finding:#}"
            );
            storms += 1;
        }
        runs += 2;
    }
    let done = execs.stop().unwrap();
    let guests = guests.stop().unwrap();
    eprintln!("{runs} runs, {storms} with O2, {done} execs, {guests} pods came and went");
    assert!(done > 0 && guests > 0);
}

/// A node where much happens has no stall.
#[test]
fn a_churning_node_has_no_stall() {
    churning(SHORT);
}

/// The same for half an hour.
#[test]
#[ignore = "takes half an hour: cargo xtask soak"]
fn a_churning_node_has_no_stall_for_long() {
    churning(LONG);
}
