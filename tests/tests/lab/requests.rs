//! Which container a request is about is read from the stack of its handler: with two pods that are slow, each request
//! is told behind its own shim, and what waits for a healthy one is told behind none.

use std::time::Duration;

use plegtrace::census::goroutines::{Limits, Reader};
use plegtrace::clock::monotonic_ns;
use plegtrace::input::{Component, GoroutineGroup, GoroutinesFact};
use plegtrace_lab::cri::{Call, Pod};
use plegtrace_lab::{Containerd, Generation, Knobs, Node, fault, host, packages, process};
use plegtrace_tests::program::Running;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const HANGING: Duration = Duration::from_secs(600);

fn read(reader: &Reader) -> GoroutinesFact {
    let limit = u64::try_from(LIMIT.as_nanos()).unwrap();
    reader.read(&Limits::until(monotonic_ns() + limit), &monotonic_ns).unwrap()
}

/// A command in a container that does not end by itself.
fn exec(containerd: &Containerd, pod: &Pod, seconds: &'static str) -> Call {
    let container = pod.container.clone();
    let client = containerd.client_of(containerd.knobs().generation.api()).unwrap();
    let work = move |client: &plegtrace_lab::cri::Client| {
        client.exec_sync(&container, &["sleep", seconds], HANGING).map(drop)
    };
    Call::start(&client, "ExecSync", work).unwrap()
}

/// The process of such a command, as soon as it runs.
fn running(pod: &Pod, seconds: &str) -> u32 {
    process::wait_for("a command to run", LIMIT, || {
        let inside = process::in_cgroup(&pod.container);
        Ok(inside.into_iter().find(|&pid| process::arguments(pid) == ["sleep", seconds]))
    })
    .unwrap()
}

/// The ids of the outermost function that has any, of every goroutine that serves `method`.
fn ids(fact: &GoroutinesFact, method: &str) -> Vec<Vec<String>> {
    let handler = format!("._RuntimeService_{method}_Handler");
    let serves = |group: &&GoroutineGroup| group.frames.iter().any(|frame| frame.contains(&handler));
    let mut found = Vec::new();
    for subject in fact.groups.iter().filter(serves).flat_map(|group| &group.subjects) {
        let first = subject.ids.first().map(|one| one.frame);
        let ids = subject.ids.iter().filter(|one| Some(one.frame) == first);
        let ids: Vec<String> = ids.map(|one| one.id.clone()).collect();
        (0..subject.count).for_each(|_| found.push(ids.clone()));
    }
    found.sort();
    found
}

fn check_generation(generation: Generation) {
    host::require_root().unwrap();
    let containerd = match Containerd::start(&Knobs { generation, ..Knobs::default() }) {
        Ok(containerd) => containerd,
        Err(error) if packages::Error::is_gone(&error) => {
            return host::declare_skip(&format!("containerd {generation}"), &error);
        }
        Err(error) => panic!("{error:#}"),
    };
    containers_are_read(&containerd);
}

/// Which container each request is about, of those that a stopped shim holds up and those that it does not.
pub(super) fn containers_are_read(containerd: &Containerd) {
    let pods = ["p1", "p2"].map(|name| containerd.run_pod(name).unwrap());
    // Stacks are used again: what earlier requests left on them must not be believed.
    for pod in pods.iter().cycle().take(20) {
        containerd.client().exec_sync(&pod.container, &["true"], LIMIT).unwrap();
    }
    let reader = Reader::open(containerd.pid(), Component::Containerd).unwrap();
    let hostage = fault::lock_hostage(containerd, &pods[0]).unwrap();
    let calls = [
        exec(containerd, &pods[0], "600"),
        exec(containerd, &pods[1], "601"),
        exec(containerd, &pods[1], "602"),
    ];
    // A goroutine that moves while it is read is left out and counted: this reading has all.
    let fact = process::wait_for("three commands and a list", LIMIT, || {
        let fact = read(&reader);
        let enough = ids(&fact, "ExecSync").len() == 3 && !ids(&fact, "ListContainers").is_empty();
        Ok(enough.then_some(fact))
    })
    .unwrap();
    let [one, two] = [&pods[0].container, &pods[1].container].map(|id| vec![id.clone()]);
    let mut wanted = [one.clone(), two.clone(), two.clone()];
    wanted.sort();
    assert_eq!(ids(&fact, "ExecSync"), wanted);
    assert_eq!(ids(&fact, "UpdateContainerResources"), std::slice::from_ref(&one));
    let lists = ids(&fact, "ListContainers");
    assert!(lists.iter().all(|ids| *ids == one), "{lists:?}");
    drop(calls);
    hostage.release().unwrap();
    // Who counts requests after this must not count the ends of these.
    let serves = |frame: &String| frame.ends_with("._RuntimeService_ExecSync_Handler");
    let is_served = || read(&reader).groups.iter().any(|group| group.frames.iter().any(serves));
    let ended = || Ok((!is_served()).then_some(()));
    process::wait_for("the end of the commands", LIMIT, ended).unwrap();
}

/// Go 1.15: arguments are on the stack.
#[test]
fn containerd_1_4() {
    check_generation(Generation::V1_4);
}

/// Go 1.19.
#[test]
fn containerd_1_6() {
    check_generation(Generation::V1_6);
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

/// A plegtrace that comes too late; its report.
fn report(node: &Node, more: &[&str]) -> Value {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["-q", "-o", "json", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let ended = Running::start(&[&about[..], more].concat()).unwrap().finish(LIMIT).unwrap();
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr))
}

/// What waits for a process that is stuck: the operation of each request, the containers it is about, and whether that
/// is certain.
fn behind(report: &Value, pid: u32) -> Vec<(String, Vec<String>, bool)> {
    let all = report["stuck"].as_array().unwrap();
    let stuck = all.iter().find(|stuck| stuck["pid"] == pid);
    let stuck = stuck.unwrap_or_else(|| panic!("{pid} is not told: {all:#?}"));
    let requests = stuck["waiters"].as_array().unwrap().iter().map(|waiter| &waiter["request"]);
    let told = requests.filter(|request| request.is_object()).map(|request| {
        let ids = request["containers"].as_array().unwrap().iter();
        let ids = ids.map(|container| container["id"].as_str().unwrap().to_owned()).collect();
        let certain = request["target_known"].as_bool().unwrap();
        (request["operation"].as_str().unwrap().to_owned(), ids, certain)
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    told
}

/// Two shims are stopped with one request each; a command in a third pod takes its time, and so does one that was
/// started in the first before its shim was stopped.
#[test]
fn each_request_is_told_behind_its_own_shim() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 3, ..Knobs::default() }).unwrap();
    let containerd = node.containerd();
    let pods = ["p1", "p2", "p3"].map(|name| node.pod(name).unwrap());
    let reader = Reader::open(containerd.pid(), Component::Containerd).unwrap();
    let commands = [exec(containerd, &pods[0], "600"), exec(containerd, &pods[2], "601")];
    let running = |count: usize| {
        process::wait_for("commands in flight", LIMIT, || {
            Ok((ids(&read(&reader), "ExecSync").len() == count).then_some(()))
        })
        .unwrap();
    };
    running(2);
    self::running(&pods[0], "600");
    let shims = [&pods[0], &pods[1]].map(|pod| containerd.shim_of(&pod.sandbox).unwrap());
    let stopped = shims.map(|shim| fault::stop_process(shim).unwrap());
    let container = pods[0].container.clone();
    let update = Call::start(containerd.client(), "UpdateContainerResources", move |client| {
        client.update_container_resources(&container, 512, HANGING)
    })
    .unwrap();
    let waiting = exec(containerd, &pods[1], "602");
    running(3);
    let report = report(&node, &[]);
    let all = serde_json::to_string_pretty(&report["stuck"]).unwrap();
    let [one, two] = shims.map(|shim| behind(&report, shim));
    let of = |operation: &str, pod: &Pod| (operation.to_owned(), vec![pod.container.clone()], true);
    assert_eq!(two, [of("ExecSync", &pods[1])], "{all}");
    // The lists wait for the lock of the container that is updated.
    let lists = |told: &&(String, Vec<String>, bool)| told.0 == "ListContainers";
    assert!(one.iter().any(|told| lists(&told)) && one.iter().filter(lists).all(|told| told.2), "{all}");
    let others: Vec<_> = one.into_iter().filter(|told| !lists(&told)).collect();
    let wanted = [of("ExecSync", &pods[0]), of("UpdateContainerResources", &pods[0])];
    assert_eq!(others, wanted, "{all}");
    assert!(!all.contains(&pods[2].container), "the third pod is healthy: {all}");
    drop(stopped);
    drop((commands, update, waiting));
}

/// Two shims are stopped; the first process of the one's container is killed, and a command in the other's: the kernel
/// knows, and the runtime says for ever that the container runs, and waits for the command. A container that ends the
/// usual way is not told of, nor a command that runs. Names are those of the runtime.
#[test]
fn an_end_that_the_runtime_never_learns_of() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 4, ..Knobs::default() }).unwrap();
    let containerd = node.containerd();
    let [one, two, three, four] = ["p1", "p2", "p3", "p4"].map(|name| node.pod(name).unwrap());
    let commands = [exec(containerd, &four, "600"), exec(containerd, &three, "601")];
    let [command, _] = [(&four, "600"), (&three, "601")].map(|(pod, seconds)| running(pod, seconds));
    let stopped = [&one, &four].map(|pod| {
        let shim = containerd.shim_of(&pod.sandbox).unwrap();
        fault::stop_process(shim).unwrap()
    });
    let init = |pod: &Pod| process::in_cgroup(&pod.container).into_iter().min().unwrap();
    let victim = init(&one);
    for pid in [victim, command, init(&two)] {
        process::signal(pid, libc::SIGKILL).unwrap();
    }
    let dead = |pid| process::state(pid) == Some('Z');
    process::wait_for("the dead", LIMIT, || Ok((dead(victim) && dead(command)).then_some(()))).unwrap();
    let report = report(&node, &["-d", "15"]);
    let all = serde_json::to_string_pretty(&report["stuck"]).unwrap();
    let told: Vec<&Value> =
        report["stuck"].as_array().unwrap().iter().filter(|stuck| stuck["kind"] == "unreported").collect();
    let (execs, told): (Vec<&Value>, Vec<&Value>) =
        told.into_iter().partition(|told| told["unreported"]["exec"].is_string());
    let ([ended], [told]) = (&execs[..], &told[..]) else { panic!("{all}\n{}", report["census"]["round"]) };
    assert_eq!(
        (ended["pid"].as_u64(), ended["container"]["id"].as_str()),
        (Some(command.into()), Some(four.container.as_str())),
        "{all}"
    );
    assert_eq!(behind(&report, command), [("ExecSync".to_owned(), vec![four.container.clone()], true)]);
    assert_eq!(
        (told["pid"].as_u64(), told["unreported"]["state"].as_str()),
        (Some(victim.into()), Some("running"))
    );
    let container = &told["container"];
    assert_eq!(container["id"], one.container.as_str(), "{all}");
    assert_eq!((container["source"].as_str(), container["name"].as_str()), (Some("cri"), Some("c")), "{all}");
    assert!(container["pod"].as_str().unwrap().starts_with("p1"), "{all}");
    let says = &report["census"]["round"]["says"];
    let asked: Vec<&str> =
        says["calls"].as_array().unwrap().iter().filter_map(|call| call["operation"].as_str()).collect();
    assert_eq!(
        (says["version"].as_str(), asked),
        (Some("v1"), vec!["ListPodSandbox", "ListContainers", "Status"]),
        "{says}"
    );
    assert!(report["cost"]["child_peak_bytes"].as_u64().unwrap() >> 20 < 80, "{}", report["cost"]);
    drop((stopped, commands));
}

/// A runtime that answers nobody: it is asked once, the rest of the census is there, and nothing of ours is accused.
#[test]
fn a_runtime_that_does_not_answer() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 1, ..Knobs::default() }).unwrap();
    let hostage = fault::lock_hostage(node.containerd(), &node.pod("p1").unwrap()).unwrap();
    let report = report(&node, &["-d", "12"]);
    let round = &report["census"]["round"];
    let unanswered = round["unanswered"].as_array().unwrap();
    let asked = |one: &&Value| one["what"] == plegtrace::census::RUNTIME;
    let why: Vec<&str> = unanswered.iter().filter(asked).map(|one| one["why"].as_str().unwrap()).collect();
    assert!(why.iter().all(|why| why.starts_with("not asked: a list waits")), "{unanswered:?}");
    assert!(round["says"].is_null(), "{round}");
    let lists = report["census"]["requests"].as_array().unwrap();
    let ours = lists.iter().filter(|request| request["operation"] == "ListPodSandbox");
    assert_eq!(ours.count(), 0, "{lists:?}");
    assert!(!behind(&report, hostage.shim()).is_empty(), "{}", report["stuck"]);
    hostage.release().unwrap();
}
