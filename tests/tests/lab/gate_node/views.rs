//! What plegtrace shows of a node: that it is well, who waits where, what slow requests spent their time with, what was recorded, and the
//! windows of a watch. Runs after the faults: what they did to the node must be over.

use plegtrace_lab::fault::Kind;

use crate::{failing, goroutines, healthy, recording, request_trees, watch};

use super::{LIMIT, hitting_node, on_node};

#[test]
fn a_node_that_is_well() {
    on_node(|node| {
        node.wait_for_relists(3, LIMIT).unwrap();
        let found = healthy::findings(node);
        assert!(found.is_empty(), "{found:#?}");
    });
}

#[test]
fn goroutines_of_both_daemons() {
    on_node(goroutines::daemons_are_read);
}

#[test]
fn recordings_of_a_fault() {
    hitting_node(|node| recording::same_report(node, Kind::LockHostage));
}

#[test]
fn recordings_have_no_secrets() {
    on_node(recording::keeps_no_secret);
}

#[test]
fn trees_of_slow_requests() {
    on_node(request_trees::slow_requests_are_whole);
}

#[test]
fn windows_of_a_watch() {
    on_node(watch::writes_windows);
}

#[test]
fn a_runtime_without_network() {
    hitting_node(failing::without_network);
}

#[test]
fn a_network_plugin_that_fails() {
    hitting_node(failing::plugin_fails);
}
