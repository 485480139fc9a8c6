//! Components whose files have other names.

use plegtrace_common::role::Role;

use super::{
    discover::{Overrides, Recognised, discover},
    fake_tree::FakeTree,
    node::Node,
};

const SOCKET: &str = "/run/containerd/containerd.sock";

fn find(tree: &FakeTree, recognised: &[Recognised]) -> Node {
    let recognised = recognised.to_vec();
    discover(tree.root(), &Overrides { recognised, ..Overrides::default() }).unwrap()
}

fn pids(node: &Node) -> (Option<u32>, Option<u32>) {
    (node.kubelet().map(|process| process.pid), node.runtime().map(|process| process.pid))
}

/// A node with programs that are called by no name of ours.
fn node() -> FakeTree {
    FakeTree::new()
        .process(
            10,
            "/opt/microlet",
            "microlet --container-runtime-endpoint=/run/containerd/containerd.sock",
            0,
        )
        .process(20, "/opt/runtime", "runtime", 0)
        .process(30, "/usr/sbin/sshd", "sshd", 0)
        .file("etc/kubernetes/kubelet.conf")
}

/// Names with something around them are names.
#[test]
fn versions_and_wrappers() {
    let tree = FakeTree::new().process(10, "/usr/bin/kubelet-1.36", "kubelet-1.36", 0).process(
        20,
        "/nix/store/x/bin/.containerd-wrapped",
        "/nix/store/x/bin/containerd",
        0,
    );
    assert_eq!(pids(&find(&tree, &[])), (Some(10), Some(20)));
}

/// Who holds the socket where runtimes listen is the runtime; the first process keeps it for a service, and no other user can have it.
#[test]
fn the_runtime_by_its_socket() {
    let found = find(&node().listens(77, SOCKET, Some(20)), &[]);
    assert_eq!(pids(&found), (None, Some(20)));
    let runtime = found.runtime().unwrap();
    assert_eq!((runtime.role, runtime.facts.serves.as_deref()), (Role::Containerd, Some(SOCKET.as_ref())));
    let remembered = Recognised { pid: 20, started_ns: runtime.started_ns, role: Some(Role::Containerd) };
    assert_eq!(found.recognised, [remembered]);
    assert_eq!(pids(&find(&node(), &found.recognised)).1, Some(20), "it is not searched again");
    let kept = find(&node().listens(77, SOCKET, Some(1)), &[]);
    assert_eq!((pids(&kept).1, kept.listening.unwrap().sockets), (None, vec![]));
    let nobodys = node().process(40, "/tmp/x", "x", 65_534).listens(77, SOCKET, Some(40));
    let found = find(&nobodys, &[]);
    assert_eq!((pids(&found).1, found.unheld.into_iter().collect::<Vec<_>>()), (None, vec![77]));
    assert_eq!(found.listening.unwrap().sockets, [SOCKET], "somebody listens");
}

/// Who listens on a port of kubelets may be one. It is one when its functions were looked at, as long as it is that process.
#[test]
fn the_kubelet_by_its_port() {
    let tree = node().port(501, 10_250, 0, Some(10)).port(502, 22, 0, Some(30));
    let found = find(&tree, &[]);
    assert_eq!(pids(&found).0, None);
    let suspects: Vec<u32> = found.suspects.iter().map(|suspect| suspect.pid).collect();
    assert_eq!((suspects, found.listening.unwrap().ports), (vec![10], vec![10_250]));
    let known = |started_ns| Recognised { pid: 10, started_ns, role: Some(Role::Kubelet) };
    let started_ns = found.suspects[0].started_ns;
    let found = find(&tree, &[known(started_ns)]);
    assert_eq!(pids(&found).0, Some(10));
    assert!(found.suspects.is_empty());
    assert_eq!(found.kubelet().unwrap().facts.calls.as_deref(), Some(SOCKET.as_ref()), "by its arguments");
    assert_eq!(pids(&find(&tree, &[known(started_ns + 1)])).0, None, "another process with its number");
    let nobodys = node().port(501, 10_250, 65_534, Some(30));
    let found = find(&nobodys, &[]);
    assert_eq!((found.suspects, found.listening.unwrap().ports), (vec![], vec![]));
}

/// What was looked for in vain is not looked for at each survey.
#[test]
fn not_searched_again() {
    let tree = node().port(501, 10_250, 0, None);
    let found = find(&tree, &[]);
    assert_eq!(found.unheld.iter().copied().collect::<Vec<_>>(), [501]);
    let tree = node().port(501, 10_250, 0, Some(10));
    let again = Overrides { fruitless: found.unheld, ..Overrides::default() };
    let found = discover(tree.root(), &again).unwrap();
    assert_eq!((found.suspects, found.listening.unwrap().ports), (vec![], vec![10_250]));
}

/// A program of root's that is called kubelet and was seen to be none hides nothing.
#[test]
fn what_is_no_kubelet_is_not_meant() {
    let tree = node().process(5, "/srv/tools/kubelet", "kubelet 1000", 0);
    let found = find(&tree, &[]);
    let fake = found.kubelet().unwrap();
    assert_eq!(fake.pid, 5);
    let known = Recognised { pid: 5, started_ns: fake.started_ns, role: None };
    assert_eq!(pids(&find(&tree, &[known])).0, None);
    let given = Overrides { kubelet: Some(5), recognised: vec![known], ..Overrides::default() };
    assert_eq!(discover(tree.root(), &given).unwrap().kubelet().unwrap().pid, 5, "the operator says so");
}
