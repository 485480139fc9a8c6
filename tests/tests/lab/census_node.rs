//! The census of a real node: kubelet, containerd, shims, and whose they are.

use std::time::Duration;

use plegtrace::{
    census::{self, Request},
    input::{Command, Component, ContainerFact, Fact, ProcessFact},
};
use plegtrace_lab::{Knobs, Node, fault, host, process::wait_for};
use plegtrace_tests::program::{self, Running};

const LIMIT: Duration = Duration::from_secs(60);

fn census() -> Vec<Fact> {
    census::round(&Request::new(program::path().unwrap()))
}

fn process(facts: &[Fact], pid: u32) -> &ProcessFact {
    let process = facts.iter().find_map(|fact| match fact {
        Fact::Process(process) if process.pid == pid => Some(process),
        _ => None,
    });
    process.unwrap_or_else(|| panic!("{pid} is missing in {facts:#?}"))
}

/// Static pods have the name of their node behind their own.
fn is_p1(container: &ContainerFact) -> bool {
    container.pod.as_deref().is_some_and(|name| name.starts_with("p1-"))
}

/// A stopped shim with a request nobody reads, and the pod it belongs to. The other shim is well.
#[test]
fn a_stopped_shim_and_its_pod() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    let (pod, other) = (node.pod("p1").unwrap(), node.pod("p2").unwrap());
    let hostage = fault::lock_hostage(node.containerd(), &pod).unwrap();
    let (facts, unread) = wait_for("a request that waits at the shim", LIMIT, || {
        let facts = census();
        let unread = process(&facts, hostage.shim()).sockets.iter().find(|socket| socket.unread > 0).cloned();
        Ok(unread.filter(|socket| !socket.listening).map(|socket| (facts, socket)))
    })
    .unwrap();

    let shim = process(&facts, hostage.shim());
    assert_eq!((shim.component, shim.state, shim.stopped), (Component::Shim, 'T', shim.threads));
    let holders: Vec<u32> = unread.peers.iter().map(|peer| peer.pid).collect();
    assert!(holders.contains(&node.containerd().pid()), "{unread:?}");
    let container = shim.container.as_ref().expect("a sandbox");
    assert!(container.id == pod.sandbox && is_p1(container), "{container:?}");
    assert_eq!((container.namespace.as_deref(), container.source.as_str()), (Some("default"), "bundle"));
    let Some(Command::Shim { id, namespace, .. }) = &shim.command else { panic!("{:?}", shim.command) };
    assert_eq!((id.as_deref(), namespace.as_deref()), (Some(pod.sandbox.as_str()), Some("k8s.io")));
    assert!(!shim.pipes.is_empty(), "the container's output");

    let well = process(&facts, node.containerd().shim_of(&other.sandbox).unwrap());
    assert_eq!(well.stopped, 0);
    let containerd = process(&facts, node.containerd().pid());
    assert_eq!(containerd.component, Component::Containerd);
    let socket = node.containerd().socket().to_str();
    assert!(containerd.sockets.iter().any(|one| one.listening && one.path.as_deref() == socket));
    assert_eq!(process(&facts, node.kubelet().pid()).component, Component::Kubelet);

    let Some(Fact::Census(round)) = facts.last() else { panic!("{facts:?}") };
    let inside = round.containers.iter().find(|one| one.id == pod.container).expect("a bundle");
    assert!(inside.sandbox.as_deref() == Some(&pod.sandbox) && is_p1(inside), "{inside:?}");
    hostage.release().unwrap();
}

/// Only the census: no eBPF, and an end of its own when it has looked often enough.
#[test]
fn census_alone() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 1, ..Knobs::default() }).unwrap();
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["-v", "--sources", "census", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let ended = Running::start(&about).unwrap().finish(Duration::from_secs(40)).unwrap();
    // It cannot tell: relists are not seen.
    assert_eq!(ended.status.code(), Some(5), "{}\n{}", ended.stdout, ended.stderr);
    assert!(!ended.stderr.contains("armed: "), "{}", ended.stderr);
    assert!(ended.stdout.contains("census: 3 rounds over "), "{}", ended.stdout);
}
