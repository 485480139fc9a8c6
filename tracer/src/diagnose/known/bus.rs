//! Causes in what runtimes wait for: systemd and D-Bus.

use super::Known;
use crate::diagnose::Area::Bus;

pub(super) const KNOWN: &[Known] = &[Known {
    id: "D11",
    title: "a library of CRI-O holds its job lock while nobody reads from a job's channel",
    area: Bus,
    versions: "CRI-O before 1.25",
    symptoms: &["moving conmon to its cgroup hangs"],
    look: "crio sends no more jobs to systemd, although systemd is well",
    next: "restart crio, then upgrade it",
    sources: &["cri-o PR 5922"],
}];
