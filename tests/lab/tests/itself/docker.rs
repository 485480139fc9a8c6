//! Nodes with Docker prove themselves, as root: the kubelet relists over its dockershim, faults do what they say, and
//! nothing is left afterwards. `cargo test -p plegtrace-lab --test itself docker`

use std::path::Path;
use std::time::Duration;

use plegtrace_lab::http::Unanswered;
use plegtrace_lab::{Generation, Knobs, Network, Node, fault, process, scratch};

use crate::node::{assert_nothing_left, place, unless_gone};

/// For one call on a healthy but busy machine.
const CALL: Duration = Duration::from_secs(30);
/// For what is to hang.
const SHORT: Duration = Duration::from_secs(1);
/// For a kubelet to do what it wants to do.
const LIMIT: Duration = Duration::from_secs(60);

/// How many containers dockerd says that it runs, sandboxes among them.
fn running(node: &Node) -> usize {
    let list = node.docker().unwrap().api().get("/containers/json", CALL).unwrap();
    list.as_array().unwrap().len()
}

/// How often the kubelet has asked dockerd, by its own count, for this.
fn asked(node: &Node, operation: &str) -> f64 {
    let page = node.kubelet().metrics(CALL).unwrap();
    page.sum("kubelet_docker_operations_total", &[("operation_type", operation)])
}

/// Tears the node down; neither it nor its containers may leave anything.
fn assert_gone(node: Node) {
    let place = place(node.containerd());
    let containers = scratch::container_ids(&place.0);
    assert!(!containers.is_empty() && !scratch::container_leftovers(&containers).is_empty());
    drop(node);
    assert_nothing_left(&place);
    assert_eq!(scratch::container_leftovers(&containers), Vec::<String>::new());
}

fn docker_works(generation: Generation, network: Network) {
    let knobs = Knobs { generation, docker: true, pods: 2, network, ..Knobs::default() };
    let started = Node::start(&knobs);
    let Some(node) = unless_gone(&format!("Docker on containerd {generation}"), started) else { return };
    let docker = node.docker().unwrap();
    let version = docker.api().get("/version", CALL).unwrap();
    assert!(version["Version"].as_str().unwrap().starts_with("20.10."), "{version}");
    let runtime = node.kubelet().client().version(CALL).unwrap();
    assert_eq!(runtime.runtime_name, "docker", "the kubelet's own dockershim answers");

    let (relists, lists) = (node.relists().unwrap(), asked(&node, "list_containers"));
    node.wait_for_relists(3, CALL).unwrap();
    assert!(node.relists().unwrap() >= relists + 3.0);
    assert!(asked(&node, "list_containers") >= lists + 6.0, "each relist lists sandboxes and containers");

    assert_eq!(running(&node), 4, "two pods, each a sandbox and a container");
    let pod = node.pod("p1").unwrap();
    let answer = node.kubelet().client().exec_sync(&pod.container, &["sh", "-c", "echo out; exit 3"], CALL);
    let answer = answer.unwrap();
    assert_eq!((answer.stdout.as_slice(), answer.exit_code), (&b"out\n"[..], 3));
    let shim = node.containerd().shim_of(&pod.container).unwrap();
    let process = docker.process_of(&pod.container).unwrap();
    assert_eq!(process::parent(process), Some(shim), "a shim of our containerd runs it");
    let bridge = format!("/sys/class/net/{}", node.containerd().scratch().bridge());
    assert_eq!(Path::new(&bridge).exists(), network == Network::Bridge);

    node.kubelet().remove_pod("p2").unwrap();
    process::wait_for("the end of a pod", LIMIT, || Ok((running(&node) == 2).then_some(()))).unwrap();
    assert_gone(node);
}

#[test]
fn the_kubelet_drives_docker_of_bookworm() {
    docker_works(Generation::V1_6, Network::Bridge);
}

#[test]
fn the_kubelet_drives_docker_of_bullseye() {
    docker_works(Generation::V1_4, Network::Host);
}

#[test]
fn a_newer_suite_has_no_docker_20_10() {
    let started = Node::start(&Knobs { generation: Generation::V1_7, docker: true, ..Knobs::default() });
    let error = started.unwrap_err();
    assert!(error.to_string().contains("use generation 1.4 or 1.6"), "{error:#}");
}

#[test]
fn a_killed_dockerd_comes_back_to_its_containers() {
    let node = Node::start(&Knobs { docker: true, ..Knobs::default() }).unwrap();
    let docker = node.docker().unwrap();
    let (pod, before) = (node.pod("p1").unwrap(), docker.pid());
    let process = docker.process_of(&pod.container).unwrap();
    docker.daemon().kill().unwrap();
    assert!(docker.api().get("/version", SHORT).is_err());
    docker.daemon().restart().unwrap();
    process::wait_for("a new dockerd", LIMIT, || Ok(docker.api().get("/version", SHORT).ok())).unwrap();
    assert_ne!(docker.pid(), before);
    node.wait_for_relists(2, CALL).unwrap();
    // Without live-restore a new dockerd ends what the old one has left, and the kubelet starts its pod again.
    let limit = Duration::from_secs(120);
    process::wait_for("a pod of the new dockerd", limit, || Ok(node.pod("p1").ok())).unwrap();
    assert!(process::state(process).is_none(), "the container of the old one has ended");
    assert_gone(node);
}

#[test]
fn the_lock_of_one_container_hides_its_state_and_stalls_relists() {
    let node = Node::start(&Knobs { docker: true, pods: 2, containers: 2, ..Knobs::default() }).unwrap();
    let api = node.docker().unwrap().api();
    let (pod, other) = (node.pod("p1").unwrap(), node.pod("p2").unwrap());
    let state = |container: &str| format!("/containers/{container}/json");
    // A relist that has not seen the start of the containers yet would ask for their state at once.
    node.wait_for_relists(2, CALL).unwrap();
    let mut lock = fault::container_lock(&node, &pod).unwrap();
    assert_eq!(process::state(lock.shim()), Some('T'));
    assert_eq!(running(&node), 6, "the list is answered");
    api.get(&state(&other.container), CALL).unwrap();
    assert!(Unanswered::is_in(&api.get(&state(&pod.container), SHORT).unwrap_err()));
    let client = node.kubelet().client();
    assert!(client.container_status(&pod.container, SHORT).unwrap_err().is_deadline());
    client.container_status(&other.container, CALL).unwrap();
    node.wait_for_relists(2, CALL).unwrap();

    lock.stall_relist(&node).unwrap();
    assert!(lock.is_held());
    assert_eq!(client.list_containers(CALL).unwrap().len(), 4, "the lists of the CRI are answered");
    assert!(node.wait_for_relists(2, Duration::from_secs(5)).is_err(), "the relist hangs");
    lock.release().unwrap();
    api.get(&state(&pod.container), CALL).unwrap();
    node.wait_for_relists(2, LIMIT).unwrap();
    process::wait_for("the other container to run again", LIMIT, || Ok((running(&node) == 6).then_some(())))
        .unwrap();

    // The end of the node must not wait for a stopped shim.
    let lock = fault::container_lock(&node, &pod).unwrap();
    let start = std::time::Instant::now();
    assert_gone(node);
    assert!(start.elapsed() < Duration::from_secs(30), "teardown took {:?}", start.elapsed());
    drop(lock);
}

#[test]
fn a_cni_plugin_that_never_ends_stalls_relists_of_the_dockershim() {
    let knobs = Knobs { docker: true, gates: true, network: Network::Bridge, ..Knobs::default() };
    let node = Node::start(&knobs).unwrap();
    let client = node.kubelet().client();
    let fault = fault::sleeping_cni_of_dockershim(&node).unwrap();
    let facts = fault.facts().clone();
    assert_eq!(process::parent(facts.culprits[0]), Some(node.kubelet().pid()), "the kubelet runs the plugin");
    assert!(client.pod_sandbox_status(&facts.ids[0], SHORT).unwrap_err().is_deadline());
    let pod = node.pod("p1").unwrap();
    client.pod_sandbox_status(&pod.sandbox, CALL).unwrap();
    let state = format!("/containers/{}/json", facts.ids[0]);
    node.docker().unwrap().api().get(&state, CALL).unwrap();
    assert!(node.wait_for_relists(2, Duration::from_secs(5)).is_err(), "the relist hangs");

    fault.heal().unwrap();
    node.wait_for_relists(2, LIMIT).unwrap();
    assert_ne!(process::state(facts.culprits[0]), Some('S'));
    process::wait_for("the end of the pod", LIMIT, || {
        let sandboxes = client.list_pod_sandbox(CALL)?;
        Ok(sandboxes.iter().all(|found| found.pod_name() != facts.pod).then_some(()))
    })
    .unwrap();
    assert_gone(node);
}
