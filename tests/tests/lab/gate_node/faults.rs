//! Faults that plegtrace sees by different means: a state of a process, a lock in containerd, runc and its hook, a network plugin, the
//! freezer, a socket that nobody reads. Each is named by one that was there before and by two that come later.

use plegtrace_lab::fault::Kind;

use crate::matrix;

use super::hitting_node;

fn is_named(kind: Kind, pod: &str) {
    hitting_node(|node| _ = matrix::inject_and_name(node, kind, pod));
}

#[test]
fn a_frozen_container() {
    is_named(Kind::ContainerFrozen, "p3");
}

#[test]
fn a_hook_that_hangs() {
    is_named(Kind::Hook, "p2");
}

#[test]
fn a_lock_hostage() {
    is_named(Kind::LockHostage, "p1");
}

#[test]
fn a_network_plugin_that_hangs() {
    is_named(Kind::Cni, "p2");
}

#[test]
fn a_stopped_containerd() {
    is_named(Kind::ContainerdStopped, "p1");
}

#[test]
fn a_stopped_shim() {
    is_named(Kind::ShimStopped, "p2");
}
