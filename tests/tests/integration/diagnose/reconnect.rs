//! K8: the runtime is back, and the kubelet waits before it tries to connect again.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Severity, diagnose};
use plegtrace::input::{Armed, Component, Fact, GoroutineGroup, Layer, ProcessFact, SocketFact};
use plegtrace_common::rec::CALL_FAILED;
use plegtrace_common::role::Role;
use plegtrace_tests::found::{group, process, relist, stopped};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, PLEG, S, Story};

use super::{culprit, ids, only};

/// When containerd is started again, and when the node is looked at.
const BACK: u64 = 60 * S;
const NOW: u64 = 70 * S;
/// Where a kubelet waits between two attempts.
const BETWEEN: &[&str] = &[
    "runtime.gopark",
    "runtime.selectgo",
    "k8s.io/kubernetes/vendor/google.golang.org/grpc.(*addrConn).resetTransport",
];

/// A node whose relists fail from the second second on, because containerd was gone until [`BACK`].
#[derive(Clone)]
struct Node {
    version: &'static str,
    listens: bool,
    /// The kubelet's goroutines.
    kubelet: Vec<GoroutineGroup>,
    fails: bool,
    /// The end of the containerd before this one was seen.
    end_seen: bool,
    now: u64,
    containerd: ProcessFact,
}

impl Node {
    fn new() -> Self {
        Self {
            version: "1.20.2",
            listens: true,
            kubelet: vec![group(&[31, 57], "select", BETWEEN)],
            fails: true,
            end_seen: false,
            now: NOW,
            containerd: process(Component::Containerd, CONTAINERD, 1, BACK),
        }
    }

    fn seen(&self) -> Snapshot {
        let mut story = Story::blank();
        story.start().target(Component::Kubelet, KUBELET, self.version);
        if self.end_seen {
            let old = CONTAINERD - 1;
            story.target(Component::Containerd, old, "1.6.20").found(old, Role::Containerd).exit(S, old, 9);
        }
        story.target_at(BACK, Component::Containerd, CONTAINERD, "1.6.20").hooks();
        let armed = Armed { mode: "uprobe_multi".into(), sites: 112, took_ns: 9 * MS, hooks: None };
        story.fact(0, &Fact::Armed(armed)).relist(0, 0);
        for from in [2 * S, BACK - S, self.now - S] {
            let flags = if self.fails { CALL_FAILED } else { 0 };
            story.begin(Layer::Relist, "Relist", PLEG, 100, from);
            story.call(Layer::KubeletCall, "ListPodSandbox", (PLEG, 900), from + 10, from + MS, flags);
            story.end(Layer::Relist, "Relist", PLEG, from + 2 * MS, 0);
        }
        let path = Some("/run/containerd/containerd.sock".to_owned());
        let socket = SocketFact { path, listening: true, ..SocketFact::default() };
        let sockets = if self.listens { vec![socket] } else { Vec::new() };
        let containerd = ProcessFact { sockets, ..self.containerd.clone() };
        story.census(self.now - S, &[containerd], &[], &self.kubelet).read_open(self.now);
        story.snapshot(self.now)
    }

    fn names(&self) -> Vec<&'static str> {
        ids(&diagnose(&self.seen()))
    }
}

/// Named with the kubelet, since when the runtime is back, and how long it can still last.
#[test]
fn k8_names_the_kubelet_that_waits() {
    let finding = only(&Node::new().seen(), "K8");
    assert_eq!((culprit(&finding), finding.confidence), (Some(KUBELET), Confidence::High));
    assert_eq!((finding.severity, finding.since.unwrap().ns), (Severity::Stall, NOW - BACK));
    assert!(finding.evidence[0].text.contains("containerd.sock"), "{:?}", finding.evidence);
    assert!(finding.evidence[1].text.contains("2 connections"), "{:?}", finding.evidence);
    assert!(finding.next[0].contains("within 2 min 20 s"), "{:?}", finding.next);
    assert_eq!(diagnose(&Node::new().seen()).unexplained().count(), 0);
    // That the runtime came back is told with it.
    let finding = only(&Node { end_seen: true, ..Node::new() }.seen(), "K8");
    assert!(finding.evidence[2].text.contains("signal 9"), "{:?}", finding.evidence);
    let kubelet = Node { version: "v1.27.16", ..Node::new() };
    only(&kubelet.seen(), "K8");
}

/// What else it could be: the runtime does not serve or is stopped, the kubelet does something else or is none that waits for long,
/// it has tried again since, or its lists are fine.
#[test]
fn k8_is_not_guessed() {
    let no = |node: &Node| assert!(!node.names().contains(&"K8"), "{:?}", node.names());
    no(&Node { listens: false, ..Node::new() });
    no(&Node { containerd: stopped(process(Component::Containerd, CONTAINERD, 1, BACK)), ..Node::new() });
    for kubelet in [Vec::new(), vec![relist()], vec![group(&[31], "chan receive", BETWEEN)]] {
        no(&Node { kubelet, ..Node::new() });
    }
    no(&Node { version: "1.28.0", ..Node::new() });
    no(&Node { version: "v2.0.1", ..Node::new() });
    no(&Node { now: BACK + 151 * S, ..Node::new() });
    no(&Node { now: BACK + 2 * S, ..Node::new() });
    no(&Node { fails: false, ..Node::new() });
    // A runtime that was there when the last list succeeded was no other one.
    no(&Node { containerd: process(Component::Containerd, CONTAINERD, 1, 0), ..Node::new() });
}
