//! Each way to attach sees the same, by the kubelet's and containerd's own counters; and nothing stays behind.

use crate::{modes, safety};

use super::on_node;

const CYCLES: usize = 5;
const KILLS: usize = 3;

#[test]
fn by_address_is_exact() {
    on_node(|node| modes::mode_is_exact(node, modes::ADDRESS));
}

#[test]
fn by_cookie_is_exact() {
    on_node(|node| modes::mode_is_exact(node, modes::COOKIE));
}

#[test]
fn by_multi_is_exact() {
    on_node(|node| modes::mode_is_exact(node, modes::MULTI));
}

#[test]
fn comes_and_goes_without_a_trace() {
    on_node(|node| safety::attaches_leave_no_trace(node, CYCLES));
}

#[test]
fn killed_it_leaves_nothing() {
    on_node(|node| safety::kills_leave_nothing(node, KILLS, &[modes::ADDRESS.0]));
}
