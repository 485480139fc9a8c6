//! The gate, on one node with all that faults need: kubelet 1.20 and containerd 1.6, three pods with probes, gates for hooks and network
//! plugins. What a test does to it is undone when it ends; one that fails takes the node along.
//!
//! These are the fewest tests that cross every part of plegtrace once; the modules whose functions they call have the rest, and run by
//! `cargo xtask test --all`. Nothing here claims how long something takes.

mod attach;
mod faults;
mod views;

use std::time::Duration;

use plegtrace_lab::{Knobs, Node};

use super::matrix;
use super::shared::{self, Shared};

const LIMIT: Duration = Duration::from_secs(120);
const PODS: usize = 3;

/// Has a test work with the node when all its pods run.
fn on_node(test: impl FnOnce(&Node)) {
    static NODE: Shared<Node> = Shared::new(|| {
        shared::node(&Knobs { gates: true, exec_probes: true, pods: PODS, ..Knobs::default() })
    });
    NODE.lend(|node| {
        shared::wait_for_pods(node, PODS);
        test(node);
    });
}

/// The same for a test that does something to the node: it has to be well again.
fn hitting_node(test: impl FnOnce(&Node)) {
    on_node(|node| {
        test(node);
        matrix::wait_until_well(node);
    });
}
