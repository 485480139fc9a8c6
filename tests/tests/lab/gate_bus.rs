//! The gate, on the bus: calls of the real runc over a real D-Bus.

use plegtrace_lab::{Containerd, Generation};

use super::bus;
use super::shared::{self, Shared};

static CONTAINERD: Shared<Containerd> = Shared::new(|| shared::containerd(Generation::V1_6));

#[test]
fn calls_are_exact() {
    CONTAINERD.lend(bus::calls_are_exact);
}

#[test]
fn each_job_is_done_once() {
    CONTAINERD.lend(bus::each_job_is_done_once);
}

#[test]
fn the_silent_are_named() {
    CONTAINERD.lend(bus::the_silent_are_named);
}
