//! The lock hostage: a stopped shim holds an UpdateContainerResources, which holds the lock that every ListContainers
//! needs, which holds up the relist. Seen by a plegtrace that was there before, and by one that came too late.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plegtrace_lab::cri::Api;
use plegtrace_lab::knobs::REQUEST_TIMEOUT;
use plegtrace_lab::promtext::Page;
use plegtrace_lab::{Knobs, Node, fault, host, http, process};
use plegtrace_tests::program::Running;
use serde_json::Value;

/// The deadline of the kubelet for a list: every day, and in the soak its own (`pkg/kubelet/cri/remote`, 1.20).
const SHORT: Duration = Duration::from_secs(50);
const LONG: Duration = REQUEST_TIMEOUT;
/// After the deadline: for its consequences to be seen.
const AFTERMATH: Duration = Duration::from_secs(12);
const LIMIT: Duration = Duration::from_secs(60);
/// From the last look of a run to its end, on a busy machine.
const ENDING: Duration = Duration::from_secs(10);
const RELISTS: &str = "kubelet_pleg_relist_duration_seconds_count";

/// Observes the node until `seconds` are over, or a signal.
fn trace(node: &Node, seconds: &str) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    Running::start(&[&["-v", "-o", "json", "-d", seconds], &about[..]].concat()).unwrap()
}

/// Ends a run and gives its document, with the exit code checked.
fn document(running: Running, limit: Duration, code: i32) -> Value {
    let ended = running.finish(limit).unwrap();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    assert_eq!(ended.status.code(), Some(code), "{}\n{}", report["diagnosis"], report["open"]);
    report
}

/// The figures of the design: 40 MiB while observing, 80 MiB at the start.
fn assert_small(report: &Value) {
    let mebibytes = |field: &str| report["cost"][field].as_u64().unwrap() >> 20;
    assert!(mebibytes("rss_bytes") < 40 && mebibytes("rss_peak_bytes") < 80, "{}", report["cost"]);
    assert!((1..80).contains(&mebibytes("child_peak_bytes")), "the census: {}", report["cost"]);
}

/// The open calls of a layer and operation, oldest first.
fn open<'a>(report: &'a Value, layer: &str, operation: &str) -> Vec<&'a Value> {
    let calls = report["open"]["calls"].as_array().unwrap().iter();
    calls.filter(|call| call["layer"] == layer && call["operation"] == operation).collect()
}

fn age(call: &Value) -> Duration {
    Duration::from_nanos(call["age_ns"].as_u64().unwrap())
}

/// How long the relist that is open is open.
fn open_relist(report: &Value) -> Option<Duration> {
    let relists = report["relists"].as_array().unwrap();
    let open = relists.iter().find(|relist| relist["open"] == true)?;
    Some(Duration::from_nanos(open["duration_ns"].as_u64().unwrap()))
}

fn last_list(report: &Value) -> Duration {
    Duration::from_nanos(report["last_successful_list"]["age_ns"].as_u64().unwrap())
}

/// Asks for the kubelet's own count of relists. Its page asks the runtime for a list as well, so in the stall it comes
/// only when that list has failed or the stall is over; the count in it is that of the moment it was asked for.
fn ask_relist_count(node: &Node) -> JoinHandle<f64> {
    let (address, patience) =
        (node.kubelet().read_only_address(), node.containerd().knobs().request_timeout + LIMIT);
    std::thread::spawn(move || {
        let page = http::get(address, "/metrics", patience).unwrap();
        Page::parse(&page).sum(RELISTS, &[])
    })
}

/// A run that came too late for the relist and the update still sees who waits: the lists that are begun now.
fn too_late_sees_the_lists(node: &Node, stalled: Instant) {
    let mut late = trace(node, "13");
    late.wait_until_armed(LIMIT).unwrap();
    let client = node.containerd().client_of(Api::V1alpha2).unwrap();
    let asking = std::thread::spawn(move || client.list_containers(Duration::from_secs(20)));
    let report = document(late, LIMIT, 1);
    assert!(!open(&report, "handler", "ListContainers").is_empty(), "{}", report["open"]);
    assert_eq!(report["diagnosis"]["verdict"], "stall", "{}", report["diagnosis"]);
    // The kubelet itself keeps when its last list succeeded.
    assert_eq!(report["last_successful_list"]["state"], "seen");
    assert_eq!(report["last_successful_list"]["at_least"], false);
    let (age, stalled) = (last_list(&report), stalled.elapsed());
    assert!((stalled..stalled + LIMIT).contains(&(age + ENDING)), "{age:?} of {stalled:?}");
    assert!(asking.join().unwrap().unwrap_err().is_deadline());
}

/// One stall from its beginning to its end, longer than the kubelet waits.
#[test]
fn a_lock_hostage_is_seen_growing_failing_abandoned_and_healed() {
    grows_fails_is_abandoned_and_heals(SHORT);
}

/// The same with the deadline that a kubelet has by itself.
#[test]
#[ignore = "takes three minutes: cargo xtask soak"]
fn a_lock_hostage_outlasts_the_deadline_of_two_minutes() {
    grows_fails_is_abandoned_and_heals(LONG);
}

fn grows_fails_is_abandoned_and_heals(deadline: Duration) {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 2, request_timeout: deadline, ..Knobs::default() }).unwrap();
    let pod = node.pod("p1").unwrap();
    node.wait_for_relists(2, LIMIT).unwrap();

    let (mut early, mut whole) = (trace(&node, "16"), trace(&node, "600"));
    early.wait_until_armed(LIMIT).unwrap();
    whole.wait_until_armed(LIMIT).unwrap();
    node.wait_for_relists(2, LIMIT).unwrap();
    let hostage = fault::lock_hostage(node.containerd(), &pod).unwrap();
    let stalled = Instant::now();
    let early_count = ask_relist_count(&node);

    // The first picture: everything is open, and as old as the stall.
    let report = document(early, LIMIT, 1);
    let seen_for = stalled.elapsed();
    let update = open(&report, "handler", "UpdateContainerResources");
    let lists = open(&report, "handler", "ListContainers");
    assert_eq!(update.len(), 1, "{}", report["open"]);
    assert!(!lists.is_empty() && age(lists[0]) <= age(update[0]), "{}", report["open"]);
    assert_eq!(update[0]["goroutine_checked"], true, "its goroutine was found alive: {}", update[0]);
    let first_relist = open_relist(&report).expect("the relist is open");
    let client = open(&report, "kubelet_client", "ListContainers");
    // Other loops of the kubelet ask for the same list, so some may be older than the relist; its own is not.
    assert!(client.iter().any(|call| age(call) <= first_relist), "the relist waits: {}", report["open"]);
    assert!(first_relist <= seen_for + LIMIT, "{first_relist:?}");
    assert_eq!(report["diagnosis"]["verdict"], "stall");
    let first_last = last_list(&report);

    too_late_sees_the_lists(&node, stalled);

    // The second picture: the kubelet's patience is over.
    let wait_until = |age: Duration| {
        let what = format!("a stall {age:?} old");
        process::wait_for(&what, age + LIMIT, || Ok((stalled.elapsed() >= age).then_some(()))).unwrap();
    };
    wait_until(deadline - AFTERMATH);
    let late_count = ask_relist_count(&node);
    wait_until(deadline + AFTERMATH);
    whole.signal(libc::SIGINT).unwrap();
    let report = document(whole, LIMIT, 1);
    assert_small(&report);
    let lists = open(&report, "handler", "ListContainers");
    assert!(age(lists[0]) >= deadline, "the oldest list lives on: {}", report["open"]);
    assert!(lists.iter().any(|list| list["abandoned"] == true), "abandoned: {}", report["open"]);
    assert!(age(open(&report, "handler", "UpdateContainerResources")[0]) >= deadline);
    let relists = report["relists"].as_array().unwrap();
    let failed: Vec<&Value> = relists.iter().filter(|relist| relist["list"] == "failed").collect();
    assert_eq!(failed.len(), 1, "the first relist of the stall failed");
    let duration = Duration::from_nanos(failed[0]["duration_ns"].as_u64().unwrap());
    assert!(duration >= deadline - Duration::from_secs(1) && duration < deadline + AFTERMATH);
    assert!(open_relist(&report).is_some(), "and the next one hangs as well");
    assert!(last_list(&report) > first_last + deadline / 2, "the last list grows older");

    hostage.release().unwrap();
    let counts = [early_count, late_count].map(|count| count.join().unwrap());
    assert_eq!(counts[0], counts[1], "meanwhile the kubelet's own counter stood still");
    node.wait_for_relists(3, LIMIT + deadline).unwrap();
    let report = document(trace(&node, "6"), LIMIT, 0);
    assert_eq!(report["diagnosis"]["verdict"], "healthy", "{}", report["diagnosis"]);
    assert!(open(&report, "handler", "UpdateContainerResources").is_empty());
}
