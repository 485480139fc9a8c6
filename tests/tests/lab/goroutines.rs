//! The goroutines of real daemons, read from outside, are those in their own dumps; and in a stall they say who waits
//! for whom.

use std::process::Command;
use std::time::Duration;

use plegtrace::census::goroutines::{Limits, Reader};
use plegtrace::clock::monotonic_ns;
use plegtrace::input::{Component, GoroutinesFact};
use plegtrace_lab::packages;
use plegtrace_lab::{Containerd, Generation, Knobs, Node, fault, host, process};
use plegtrace_tests::claim;
use plegtrace_tests::goroutines::compare;
use plegtrace_tests::program::Running;

const LIMIT: Duration = Duration::from_secs(60);
const LIMIT_NS: u64 = 60_000_000_000;
const PAGE: &str = "/debug/pprof/goroutine?debug=2";

fn read(reader: &Reader) -> GoroutinesFact {
    reader.read(&Limits::until(monotonic_ns() + LIMIT_NS), &monotonic_ns).unwrap()
}

/// Ours, its own, ours. At least so many goroutines must have stood still.
fn check(pid: u32, component: Component, at_least: usize, dump: impl Fn() -> String) {
    let reader = Reader::open(pid, component).unwrap();
    let before = read(&reader);
    let first = dump();
    let after = read(&reader);
    let comparison = compare(&before, &first, &after, &dump());
    eprintln!(
        "{} of {}: {} goroutines, {} compared, {} differ, {} unread, read in {:?}",
        component.name(),
        before.go_version,
        before.total,
        comparison.compared,
        comparison.different.len(),
        before.unread + after.unread,
        Duration::from_nanos(before.took_ns)
    );
    comparison.assert_equal(at_least);
    let unread = f64::from(before.unread + after.unread);
    claim::soon(
        &format!("{}_goroutines_unread", component.name()),
        unread,
        f64::from(before.total / 100 + 1),
        "goroutines",
    );
}

/// containerd of one generation and the shim of a pod.
fn check_generation(generation: Generation) {
    host::require_root().unwrap();
    let containerd = match Containerd::start(&Knobs { generation, ..Knobs::default() }) {
        Ok(containerd) => containerd,
        Err(error) if packages::Error::is_gone(&error) => {
            return host::declare_skip(&format!("containerd {generation}"), &error);
        }
        Err(error) => panic!("{error:#}"),
    };
    containerd_and_shim_are_read(&containerd);
}

/// A containerd against its own dump, and the shim of a pod.
pub(super) fn containerd_and_shim_are_read(containerd: &Containerd) {
    let pod = containerd.run_pod("read").unwrap();
    check(containerd.pid(), Component::Containerd, 20, || containerd.dump_goroutines().unwrap());
    let shim = containerd.shim_of(&pod.sandbox).unwrap();
    let reader = Reader::open(shim, Component::Shim).unwrap();
    // A goroutine that moves while it is read is left out and counted: this reading has all.
    let fact = claim::works("a reading of the whole shim", || {
        let fact = read(&reader);
        Ok((fact.unread == 0).then_some(fact))
    });
    let serves = |frame: &String| frame.contains("ttrpc.(*Server).Serve");
    assert!(fact.groups.iter().any(|group| group.frames.iter().any(serves)), "{fact:#?}");
    assert!(fact.groups.iter().all(|group| group.broken.is_none() || group.state == "running"), "{fact:#?}");
    containerd.client().remove_pod(&pod, LIMIT).unwrap();
}

/// Go 1.15.
#[test]
fn containerd_1_4() {
    check_generation(Generation::V1_4);
}

/// Go 1.24.
#[test]
fn containerd_1_7() {
    check_generation(Generation::V1_7);
}

/// Go 1.26 or what sid builds with.
#[test]
fn containerd_2_1() {
    check_generation(Generation::V2_1);
}

/// kubelet and containerd of a node with pods; then a stall, in which the dump names the lock, its holder, and who
/// waits.
#[test]
fn a_node_before_and_in_a_stall() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    daemons_are_read(&node);
    let containerd = node.containerd();
    let hostage = fault::lock_hostage(containerd, &node.pod("p1").unwrap()).unwrap();
    let reader = Reader::open(containerd.pid(), Component::Containerd).unwrap();
    let has = |fact: &GoroutinesFact, words: &str, names: [&str; 2]| {
        fact.groups.iter().any(|group| {
            let named = |name: &&str| group.frames.iter().any(|frame| frame.ends_with(name));
            group.wait_reason.as_deref() == Some(words) && names.iter().all(named)
        })
    };
    process::wait_for("a list that waits for the lock", LIMIT, || {
        let waits =
            has(&read(&reader), "semacquire", ["(*statusStorage).Get", "(*criService).ListContainers"]);
        Ok(waits.then_some(()))
    })
    .unwrap();
    let holds = ["(*statusStorage).UpdateSync", "(*criService).UpdateContainerResources"];
    assert!(has(&read(&reader), "select", holds), "{:#?}", read(&reader));

    let ended =
        Running::start(&["goroutines", &containerd.pid().to_string()]).unwrap().finish(LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("(*criService).ListContainers"), "{}", ended.stdout);
    hostage.release().unwrap();
}

/// Both daemons of a node against their own dumps.
pub(super) fn daemons_are_read(node: &Node) {
    host::ensure(&["curl"]).unwrap();
    node.wait_for_relists(2, LIMIT).unwrap();
    let (containerd, kubelet) = (node.containerd(), node.kubelet());
    check(containerd.pid(), Component::Containerd, 20, || containerd.dump_goroutines().unwrap());
    check(kubelet.pid(), Component::Kubelet, 60, || {
        let page = format!("https://{}{PAGE}", kubelet.api_address());
        host::run(Command::new("curl").args(["-sSfk", "--max-time", "60", &page])).unwrap()
    });
}
