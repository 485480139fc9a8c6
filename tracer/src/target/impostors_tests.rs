//! Processes that are called like a component and are none.

use super::{
    discover::{Overrides, discover},
    fake_tree::FakeTree,
    node::Node,
};

const NOBODY: u32 = 65_534;
const SOCKET: &str = "/run/containerd/containerd.sock";

fn find(tree: &FakeTree) -> Node {
    discover(tree.root(), &Overrides::default()).unwrap()
}

fn pids(node: &Node) -> (Option<u32>, Option<u32>) {
    (node.kubelet().map(|process| process.pid), node.runtime().map(|process| process.pid))
}

/// A node whose kubelet and containerd are root's, beside whatever nobody calls so.
fn node() -> FakeTree {
    FakeTree::new()
        .process(5, "/tmp/kubelet", "/tmp/kubelet 1000", NOBODY)
        .process(6, "/tmp/containerd", "/tmp/containerd 1000", NOBODY)
        .process(10, "/usr/bin/kubelet", "kubelet", 0)
        .process(20, "/usr/bin/containerd", "containerd", 0)
        .file("etc/kubernetes/kubelet.conf")
        .file("run/containerd/containerd.sock")
}

/// Whoever is older, or as old, the node's own are root's; and where the node's own do not run, nobody's do not stand in for them.
#[test]
fn nobody_is_not_the_node() {
    let tree = node();
    let found = find(&tree);
    assert_eq!((pids(&found), found.is_ambiguous()), ((Some(10), Some(20)), false));
    tree.end(10);
    assert_eq!(pids(&find(&tree)), (None, Some(20)), "the kubelet is down");
    tree.end(20);
    let found = find(&tree);
    assert_eq!((pids(&found), found.is_ambiguous()), ((None, None), false), "the runtime, too");
}

/// The same of all that is looked for by name: a daemon behind the runtime, a shim.
#[test]
fn nobody_is_behind_no_runtime() {
    let shim = "containerd-shim-runc-v2 -namespace k8s.io -id ab -address /run/containerd/containerd.sock";
    let exe = "/usr/bin/containerd-shim-runc-v2";
    let tree = node().process(30, exe, shim, 0).process(31, exe, shim, NOBODY);
    let shims: Vec<u32> = find(&tree).shims().iter().map(|shim| shim.pid).collect();
    assert_eq!(shims, [30]);
    let cri = "cri-dockerd --container-runtime-endpoint /run/cri-dockerd.sock";
    let tree = FakeTree::new()
        .process(10, "/usr/bin/kubelet", "kubelet --container-runtime-endpoint=/run/cri-dockerd.sock", 0)
        .process(40, "/usr/bin/dockerd", "dockerd", NOBODY)
        .process(50, "/usr/bin/dockerd", "dockerd", 0)
        .process(60, "/usr/bin/cri-dockerd", cri, 0);
    let behind: Vec<u32> = find(&tree).runtime_and_behind().iter().map(|process| process.pid).collect();
    assert_eq!(behind, [60, 50]);
}

/// Where nothing of a node is installed, and nothing is root's, a node of a user is one (rootless), and the operator has the last word
/// anyway.
#[test]
fn a_node_of_a_user() {
    let tree = FakeTree::new().process(5, "/srv/me/kubelet", "kubelet", 1000).process(
        6,
        "/srv/me/containerd",
        "containerd",
        1000,
    );
    assert_eq!(pids(&find(&tree)), (Some(5), Some(6)));
    let given = Overrides { kubelet: Some(5), runtime: Some(6), ..Overrides::default() };
    assert_eq!(pids(&discover(node().root(), &given).unwrap()), (Some(5), Some(6)));
}

/// Root may run another program of that name: the runtime is who holds the socket.
#[test]
fn the_holder_of_the_socket_is_the_runtime() {
    let two = || node().process(15, "/srv/tools/containerd", "containerd 1000", 0);
    let found = find(&two());
    assert!(found.is_ambiguous(), "who listens is not known");
    let found = find(&two().listens(77, SOCKET, Some(20)));
    assert_eq!((pids(&found), found.is_ambiguous()), ((Some(10), Some(20)), false));
    let found = find(&two().listens(77, "/run/other.sock", Some(15)));
    assert!(found.is_ambiguous(), "another socket");
    let held_by_both = two().listens(77, SOCKET, Some(20)).listens(78, SOCKET, Some(15));
    assert!(find(&held_by_both).is_ambiguous());
}
