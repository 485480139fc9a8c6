//! Which container a request is about is read from the stack of its handler: with two pods that are slow, each request
//! is told behind its own shim, and what waits for a healthy one is told behind none.

use std::time::Duration;

use plegtrace::census::goroutines::{Limits, Reader};
use plegtrace::input::{Component, GoroutineGroup, GoroutinesFact};
use plegtrace::session::clock::monotonic_ns;
use plegtrace_lab::cri::{Call, Pod};
use plegtrace_lab::{Containerd, Generation, Knobs, fault, host, packages, process};

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
    let pods = ["p1", "p2"].map(|name| containerd.run_pod(name).unwrap());
    // Stacks are used again: what earlier requests left on them must not be believed.
    for pod in pods.iter().cycle().take(20) {
        containerd.client().exec_sync(&pod.container, &["true"], LIMIT).unwrap();
    }
    let reader = Reader::open(containerd.pid(), Component::Containerd).unwrap();
    let hostage = fault::lock_hostage(&containerd, &pods[0]).unwrap();
    let calls = [
        exec(&containerd, &pods[0], "600"),
        exec(&containerd, &pods[1], "601"),
        exec(&containerd, &pods[1], "602"),
    ];
    process::wait_for("three commands", LIMIT, || {
        Ok((ids(&read(&reader), "ExecSync").len() == 3).then_some(()))
    })
    .unwrap();
    let fact = read(&reader);
    let [one, two] = [&pods[0].container, &pods[1].container].map(|id| vec![id.clone()]);
    let mut wanted = [one.clone(), two.clone(), two.clone()];
    wanted.sort();
    assert_eq!(ids(&fact, "ExecSync"), wanted);
    assert_eq!(ids(&fact, "UpdateContainerResources"), [one.clone()]);
    let lists = ids(&fact, "ListContainers");
    assert!(!lists.is_empty() && lists.iter().all(|ids| *ids == one), "{lists:?}");
    drop(calls);
    hostage.release().unwrap();
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
