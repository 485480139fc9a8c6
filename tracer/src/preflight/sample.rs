//! A node on which everything is as it should be, for tests to spoil.

use super::{
    facts::{Facts, HidePid, Lockdown},
    features::Features,
    version::KernelVersion,
};

/// root on Linux 6.12.
pub(super) fn node() -> Facts {
    on("6.12.43+deb13-amd64")
}

/// The same on another kernel.
pub(super) fn on(release: &str) -> Facts {
    Facts {
        arch: "x86_64",
        release: Some(release.to_owned()),
        version: KernelVersion::parse(release),
        euid: Some(0),
        capabilities: Some(0x1ff_ffff_ffff),
        initial_user_ns: Some(true),
        initial_pid_ns: Some(true),
        lockdown: Lockdown::Open("none"),
        btf: Ok(()),
        perf_event_paranoid: Some(3),
        unprivileged_bpf_disabled: Some(2),
        hidepid: Some(HidePid::Off),
    }
}

/// A kernel that has everything.
pub(super) fn every_feature() -> Features {
    Features {
        uprobe_programs: Ok(true),
        raw_tracepoints: Ok(true),
        ring_buffer: Ok(true),
        cookies: Ok(true),
        uprobe_multi: Ok(true),
    }
}
