//! The gate, on a node whose daemons die and come back, also as other programs.

use plegtrace_lab::fault::Kind;
use plegtrace_lab::{Knobs, Node};

use super::shared::{self, Shared};
use super::{matrix, names, targets};

const PODS: usize = 1;

/// Has a test work with the node, and sees that it leaves the node well.
fn on_node(test: impl FnOnce(&Node)) {
    static NODE: Shared<Node> = Shared::new(|| shared::node(&Knobs { pods: PODS, ..Knobs::default() }));
    NODE.lend(|node| {
        shared::wait_for_pods(node, PODS);
        test(node);
        matrix::wait_until_well(node);
    });
}

#[test]
fn a_confined_plegtrace_follows() {
    on_node(targets::confined_plegtrace_follows);
}

#[test]
fn a_killed_containerd_is_named() {
    on_node(|node| _ = matrix::inject_and_name(node, Kind::ContainerdKilled, "p1"));
}

#[test]
fn a_killed_kubelet_is_named() {
    on_node(|node| _ = matrix::inject_and_name(node, Kind::KubeletKilled, "p1"));
}

#[test]
fn names_of_programs_deceive_nobody() {
    on_node(names::deceive_nobody);
}

#[test]
fn a_restarted_containerd_is_probed_again() {
    on_node(targets::containerd_is_probed_again);
}

#[test]
fn a_restarted_kubelet_is_followed() {
    on_node(targets::kubelet_is_followed);
}
